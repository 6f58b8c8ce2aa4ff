# page/page.mk - `elapse page`: the programs' own code as a WebAssembly module, and the page around it.
#
#   make page          build the module where emcc is (Debian's emscripten) and keep it in page/module
#   make page-check    build it once more in another folder: the bytes are those of page/module
#
# The module in page/module is part of the tree, so `elapse page` works where emcc is missing. cJSON and
# SQLite come as Debian's source packages (page/sources.sh), or from PAGE_SOURCES=FOLDER.

EMCC ?= emcc
# -O2 is twice as fast as -Os here, and a quarter larger in the page.
PAGE_OPT ?= -O2
PAGE_OUT ?= build/page
PAGE_SOURCES ?= build/page-sources
# Files of cli that the commands in page/module.h reach are linked, no others.
PAGE_SRC := $(SRC_partition) $(SRC_profiles) $(SRC_sim) cli/main.c \
  $(filter-out cli/figures/% cli/commands/measured_% $(addprefix cli/commands/cmd_,exec.c page.c calibrate.c),$(SRC_cli))
PAGE_SRC := $(filter-out profiles/base/safe_output.c,$(PAGE_SRC)) page/module.c
PAGE_FLAGS := -std=gnu11 -D_GNU_SOURCE -DNDEBUG $(PAGE_OPT) -ffp-contract=off -I. -I$(PAGE_SOURCES)
PAGE_SQLITE := -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OMIT_DEPRECATED -DSQLITE_OMIT_SHARED_CACHE \
  -DSQLITE_DQS=0 -DSQLITE_OMIT_WAL
PAGE_LINK := -sMODULARIZE=1 -sEXPORT_NAME=ElapseModule -sENVIRONMENT=worker -sALLOW_MEMORY_GROWTH=1 -sTOTAL_STACK=4MB \
  -sMAXIMUM_MEMORY=2GB -sEXIT_RUNTIME=0 -sINVOKE_RUN=0 -sFORCE_FILESYSTEM=1 -sEXPORTED_RUNTIME_METHODS=FS,callMain \
  -sEXPORTED_FUNCTIONS=_main,_fflush
PAGE_OBJS := $(PAGE_SRC:%=$(PAGE_OUT)/%.o) $(PAGE_OUT)/kinds.o $(PAGE_OUT)/sql_text.o $(PAGE_OUT)/shipped_store.o $(PAGE_OUT)/cJSON.o $(PAGE_OUT)/sqlite3.o

$(PAGE_OUT)/%.c.o: %.c page/module.h
	@mkdir -p $(@D)
	$(if $(Q),@echo "  EMCC $<")
	$(Q)$(EMCC) $(PAGE_FLAGS) $(DEFS) -DELAPSE_LAUNCHER='"mpirun"' -include page/module.h -MMD -MP -c $< -o $@
$(PAGE_OUT)/kinds.o: $(OUT)/kinds.c
	$(Q)$(EMCC) $(PAGE_FLAGS) -c $< -o $@
$(PAGE_OUT)/%.o: $(OUT)/profiles/%.c
	$(Q)$(EMCC) $(PAGE_FLAGS) -c $< -o $@
$(PAGE_OUT)/cJSON.o: $(PAGE_SOURCES)/cjson/cJSON.c
	$(Q)$(EMCC) $(PAGE_FLAGS) -c $< -o $@
$(PAGE_OUT)/sqlite3.o: $(PAGE_SOURCES)/sqlite3.c
	$(Q)$(EMCC) $(PAGE_FLAGS) -Os $(PAGE_SQLITE) -c $< -o $@
$(PAGE_OUT)/elapse.js: $(PAGE_OBJS)
	$(Q)NODE_PATH=/usr/share/nodejs $(EMCC) $(PAGE_OPT) $(PAGE_LINK) $^ -o $@

PAGE_PARTS := $(wildcard page/*.html page/*.css page/*.js page/assemble.sh page/module/*)
build/page.html: $(PAGE_PARTS)
	@mkdir -p $(@D)
	$(Q)page/assemble.sh $(VERSION) page/module >$@.new && mv $@.new $@
$(OUT)/cli/commands/cmd_page.c.o: build/page.html
$(OUT)/cli/figures/report_timeline.c.o: page/timeline.css page/timeline.js

# gzip -n keeps neither a name nor a time.
$(PAGE_SOURCES)/sqlite3.c $(PAGE_SOURCES)/cjson/cJSON.c:
	page/sources.sh $(PAGE_SOURCES)
.PHONY: page page-check
page: $(PAGE_OUT)/elapse.js
	@mkdir -p page/module
	$(Q)cp $(PAGE_OUT)/elapse.js page/module/elapse.js
	$(Q)gzip -9nc $(PAGE_OUT)/elapse.wasm >page/module/elapse.wasm.gz
	@ls -l page/module
# Not by bytes of gzip, whose releases may pack differently.
page-check:
	$(Q)rm -rf build/page-again && $(MAKE) --no-print-directory PAGE_OUT=build/page-again build/page-again/elapse.js
	$(Q)gzip -dc page/module/elapse.wasm.gz | cmp - build/page-again/elapse.wasm
	$(Q)cmp page/module/elapse.js build/page-again/elapse.js
	@echo "page/module is what these sources give"
-include $(shell find $(PAGE_OUT) -name '*.d' 2>/dev/null)
