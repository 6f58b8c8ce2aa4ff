# What --version prints: $(OUT)/build_facts.c holds struct build_facts. It is written again only where a
# fact has changed. In git a commit counts if its top is this folder, so that a copy of the sources inside
# another repository does not name that one's.
FACTS_DATE = $$(date -u -d "@$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || stat -c %Y README.md)}" +%Y-%m-%d)
FACTS_CUDA := $(if $(filter 1,$(HAVE_CUDA)),1)
.PHONY: build-facts
build-facts:
$(OUT)/build_facts.c: build-facts
	@mkdir -p $(@D)
	@commit=; [ "$$(git rev-parse --show-toplevel 2>/dev/null)" != "$(CURDIR)" ] || \
	  commit=$$(git describe --always --dirty --abbrev=12 --exclude='*'); \
	cuda=no; [ -z "$(FACTS_CUDA)" ] || cuda=$$($(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'); \
	{ echo '#include "profiles/json/build_facts.h"'; echo 'const struct build_facts build_facts = {'; \
	  printf '    .%s = "%s",\n' version '$(VERSION)' commit "$$commit" date "$(FACTS_DATE)" \
	    compiler "$$($(CC) --version | head -1)" flags '$(strip $(OPT) $(SANFLAGS) -march=$(ARCH))' \
	    mpi "$(if $(filter 1,$(MPI)),$(MPI_PC) $$(pkg-config --modversion $(MPI_PC)),no)" \
	    blas "$(if $(filter 1,$(BLAS)),openblas $$(pkg-config --modversion openblas),no)" \
	    cuda "$$cuda" cuda_archs '$(if $(FACTS_CUDA),$(CUDA_ARCH),no)'; echo '};'; } > $@.new; \
	if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(OUT)/build_facts.o: $(OUT)/build_facts.c
	$(Q)$(CC) $(BASE) -c $< -o $@
$(OUT)/bin/elapse $(OUT)/bin/elapse-exec: $(OUT)/build_facts.o
