# library/library.mk - libelapse: the rooms partition, sim and the job reading of profiles behind
# library/elapse.h. It is made of the objects that the programs are made of (-fPIC, hidden symbols).
#
#   libelapse.a    one object with all that is needed, in which only elapse_* is not local
#   libelapse.so   the soname has ELAPSE_ABI_VERSION, library/elapse.map the symbol versions

SRC_library := $(wildcard library/*.c)
CFLAGS_library := -ffp-contract=off -fPIC -fvisibility=hidden $(shell pkg-config --cflags sqlite3 libcjson 2>/dev/null)
ABI := $(shell sed -n 's/^\#define ELAPSE_ABI_VERSION //p' library/elapse.h)
SONAME := libelapse.so.$(ABI)
# A sanitizer's own library belongs to the program.
LIBRARY := $(OUT)/lib/libelapse.a $(if $(SAN),,$(OUT)/lib/$(SONAME))
OBJCOPY ?= objcopy

$(OUT)/lib/libelapse.a: $(call objs,library) $(call libs,sim profiles partition)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  AR  libelapse.a")
	$(Q)$(CC) -r -nostdlib $^ -o $(@D)/elapse.o
	$(Q)$(OBJCOPY) --localize-hidden $(@D)/elapse.o
	$(Q)rm -f $@ && ar rcs $@ $(@D)/elapse.o && rm $(@D)/elapse.o
$(OUT)/lib/$(SONAME): $(call objs,library) $(call libs,sim profiles partition) library/elapse.map
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD  $(SONAME)")
	$(Q)$(CC) -shared $(OPT) -pthread $(filter-out %.map,$^) $(LIBS_base) -Wl,--no-undefined -Wl,-z,relro \
	  -Wl,-soname,$(SONAME) -Wl,--version-script=library/elapse.map -o $@.new && mv $@.new $@
	$(Q)ln -sf $(SONAME) $(@D)/libelapse.so
