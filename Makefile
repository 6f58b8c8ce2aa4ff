# Elapse - elastic pipeline training: simulator and executor.
#
#   make               build all that this machine can, on all cores (-jN: on N), print what was found
#   make cuda          the same with the CUDA kernels, which make leaves out where no GPU is
#   make deps          install what is missing (apt; Debian 12, Ubuntu 24.04)
#   make test          unit and end-to-end tests, about 4 minutes on 2 cores; ends with "N passed, N failed"
#   make test-slow     longer ones: several nodes, memory as predicted
#   make test-emulated the CUDA backend on emulated GPUs (tests/cudasim), of which make test runs a smoke
#   make test-rest     what make test leaves out: slow, emulated, more trials; make test-all: all in one
#   make mutate        break the code on purpose, one small edit at a time, and see tests fail (ONLY=PATTERN)
#   make chaos         kill, stop and starve runs, and see them go on to the same weights; make soak: a long run
#   make test_NAME     one test program; ELAPSE_TEST_FILTER='PATTERN*' runs some of its tests
#   make install       what is built, under PREFIX=/usr/local (DESTDIR= LIBDIR= STRIP=1); make uninstall
#   make deb           Debian packages in build/deb; make wheel, make sdist: the Python package in build
#   make demo          the main job: profile, plan, simulate, train, compare, plot
#   make gpu-check     all that wants a GPU: tests, ranks, profile, table beside PyTorch
#   make gpu-bundle    the same, built, in one folder to carry to a GPU (docs/gpu.md)
#   make bench         speed, as ratios against a peer in the same run
#   make speed         simulator and planner alone; writes the table of docs/measured.md (a quiet machine)
#   make analyse       cppcheck; make fuzz, asan, tsan: libFuzzer and sanitizers (tests/checkers/checkers.mk)
#   make truth         predictions beside published measurements (TRUTH_DATA=FOLDER: tests/truth/README.md)
#   make page          the module of `elapse page`, where emcc is (page/page.mk); make page-check: the same bytes again
#   make docs-files    man pages and completion in build/share (part of make)
#   make check-layers  who may include whom; every header compiles alone
#   make format        clang-format in place      make format-check   only look
#   make test-docs     the commands of README.md and of pages in docs, in full
#   make golden        rewrite tests/golden from the present programs (review the diff)
#   make clean         remove build/              make help           this text
#
# Force a probe: MPI=0 CUDA=0 MPI_PC=mpich.  Also: V=1 (show commands)  SAN=address,undefined  CC=clang
# OPT="-O2 -g"  ARCH=native|x86-64-v3 (exec/cpu kernels)  CUDA_ARCH="80 90"  WERROR=1

SHELL := /bin/bash
.DEFAULT_GOAL := all
CC ?= cc
OPT ?= -O2 -g
ARCH ?= native
CUDA_ARCH ?= 80 90
PYTHON ?= /usr/bin/python3
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1) # a -j of the command line wins
endif
ifneq ($(and $(filter clean,$(MAKECMDGOALS)),$(filter-out clean,$(MAKECMDGOALS))),)
.NOTPARALLEL: # the goals after clean build what it removes
endif

# --- probes -----------------------------------------------------------------------------------------
pkg = $(shell pkg-config --exists $(1) 2>/dev/null && echo 1 || echo 0)
NVCC ?= $(firstword $(wildcard $(shell command -v nvcc 2>/dev/null) /usr/local/cuda/bin/nvcc))
MPI ?= $(if $(filter 1,$(call pkg,ompi-c)),1,$(call pkg,mpich))
MPI_PC ?= $(if $(filter 1,$(call pkg,ompi-c)),ompi-c,mpich)
# Where several MPIs are installed, mpirun may be another one's.
LAUNCHER := $(notdir $(firstword $(shell command -v mpirun.$(if $(filter mpich,$(MPI_PC)),mpich,openmpi) 2>/dev/null) mpirun))
BLAS ?= $(call pkg,openblas)
CRYPTO := $(call pkg,libcrypto)
SQLITE := $(call pkg,sqlite3)
CJSON := $(call pkg,libcjson)
ZLIB := $(call pkg,zlib)
CMOCKA := $(call pkg,cmocka)
WEBP ?= $(call pkg,libwebp)
UNICODE := $(and $(filter 1,$(call pkg,libpcre2-8)),$(filter 1,$(call pkg,libutf8proc)))
GPU := $(wildcard /dev/nvidiactl /dev/nvidia0 /dev/dxg)
CUDA ?= $(if $(and $(NVCC),$(wildcard exec/cuda),$(or $(GPU),$(filter cuda gpu-%,$(MAKECMDGOALS)))),1,0)
EXEC := $(if $(filter 1111,$(MPI)$(BLAS)$(CRYPTO)$(UNICODE)),1,0)

HAVE_CUDA := $(if $(filter 11,$(CUDA)$(EXEC)),1,0)
# Where nvcc says that it lives: the one on the path may be a script.
CUDA_HOME := $(if $(NVCC),$(realpath $(shell $(NVCC) --dryrun -x cu /dev/null 2>&1 | sed -n 's/.* TOP=//p')))
HAVE_NCCL := $(if $(wildcard $(addsuffix /nccl.h,$(CUDA_HOME)/include /usr/include /usr/local/include $(subst :, ,$(C_INCLUDE_PATH)))),1,0)

# --- flags ------------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wshadow -Wvla -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes $(if $(WERROR),-Werror)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
# No contraction to FMA outside the kernels: the simulator answers alike on every machine.
BASE := -std=c11 -D_GNU_SOURCE -I. $(WARN) $(OPT) $(SANFLAGS) -pthread
VERSION := 0.1.0
DEFS := -DELAPSE_VERSION='"$(VERSION)"'
# The rooms of libelapse (library/library.mk): one object for programs and library.
CFLAGS_partition := -ffp-contract=off -fPIC -fvisibility=hidden
CFLAGS_profiles := $(CFLAGS_partition) $(shell pkg-config --cflags sqlite3 libcjson 2>/dev/null)
CFLAGS_sim := $(CFLAGS_partition)
CFLAGS_cli := -ffp-contract=off -DELAPSE_LAUNCHER='"$(LAUNCHER)"'
CFLAGS_partition/step := -O3
CFLAGS_partition/search := -O3
CFLAGS_exec := $(shell pkg-config --cflags $(MPI_PC) openblas libcrypto libpcre2-8 libutf8proc 2>/dev/null) -fopenmp \
  $(if $(filter 1,$(WEBP)),-DELAPSE_WEBP)
CFLAGS_exec/cpu := -O3 -march=$(ARCH) -ffp-contract=fast -fno-math-errno -fno-trapping-math
CFLAGS_tests := $(CFLAGS_exec) $(CFLAGS_profiles)
LIBS_base := $(shell pkg-config --libs sqlite3 libcjson 2>/dev/null) -lm
LIBS_cli := -lz
LIBS_exec := $(shell pkg-config --libs $(MPI_PC) openblas 2>/dev/null) -fopenmp -lz \
  $(shell pkg-config --libs libcrypto libjpeg libpng libpcre2-8 libutf8proc $(if $(filter 1,$(WEBP)),libwebp) 2>/dev/null) -ldl
# The cuda backend is a shared object that the program loads when a device is asked for.
CUDA_DEFS := -DELAPSE_CUDA_MIN_ARCH=$(firstword $(CUDA_ARCH))
CUDA_CFLAGS := -fPIC -isystem $(CUDA_HOME)/include $(CUDA_DEFS)
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart -lcublasLt
NVCC_OPT ?= -O3
NVCCFLAGS := -std=c++17 $(NVCC_OPT) -I. $(DEFS) $(CUDA_DEFS) --expt-relaxed-constexpr -Xcompiler -Wall,-fPIC \
  $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
  -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH))

HASH := $(shell echo '$(CC) $(BASE) $(DEFS) $(CFLAGS_partition) $(CFLAGS_exec) $(ARCH)' | cksum | cut -d' ' -f1)
OUT := build/$(HASH)
CUDA_OUT := $(OUT)/cuda-$(shell echo '$(NVCC) $(NVCCFLAGS)' | cksum | cut -d' ' -f1)
Q := $(if $(V),,@)

# --- sources ----------------------------------------------------------------------------------------
# A room is its folder and the wings in it.
found_in = $(sort $(shell find $(1) -name '$(2)' 2>/dev/null))
$(foreach r,partition profiles sim cli exec,$(eval SRC_$(r) := $(filter-out $(r)/main.c,$(call found_in,$(r),*.c))))
SRC_exec := $(filter-out exec/cuda/% exec/comm/nccl_device.c,$(SRC_exec))
SRC_cli := $(filter-out cli/launch/local_bind.c,$(SRC_cli))
SRC_profiles := $(filter-out profiles/devices/% profiles/store/write_store.c,$(SRC_profiles))
SRC_nccl := exec/comm/nccl_device.c partition/base/status.c partition/base/safe_text.c
SRC_cuda := $(wildcard exec/cuda/*.c exec/cuda/*.cu) partition/base/status.c partition/base/safe_text.c partition/base/units.c
ROOMS := partition profiles sim library cli $(if $(filter 1,$(EXEC)),exec)
objs = $(patsubst %,$(OUT)/%.o,$(SRC_$(1)))
libs = $(foreach r,$(1),$(OUT)/lib$(r).a)
include library/library.mk

TEST_SRC := $(call found_in,tests,test_*.c)
TESTS := $(basename $(notdir $(TEST_SRC)))
EXEC_TESTS := $(basename $(notdir $(shell grep -l '"exec/' $(TEST_SRC) 2>/dev/null)))
ifneq ($(EXEC),1)
TESTS := $(filter-out $(EXEC_TESTS),$(TESTS))
endif
# What reads ELAPSE_TEST_FILTER, for every C test program.
TEST_FILTER := $(OUT)/tests/unit/cmocka_filter.c.o
BENCHES := $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/bench_*.c))
PRELOADS := $(if $(filter 1,$(EXEC)),$(if $(SAN),,$(OUT)/tests/fail_mpi.so $(OUT)/tests/chaos_strike.so))
# A test links the rooms it includes, and what those rooms include.
ROOM_USES := $(shell grep -Ho '"\(partition\|profiles\|sim\|exec\|cli\|library\)/' $(TEST_SRC) tests/bench/*.c tests/fuzz/*.c 2>/dev/null | sed 's,"\(.*\)/$$,\1,' | sort -u)
rooms_of = $(sort $(foreach f,$(1),$(patsubst $(f):%,%,$(filter $(f):%,$(ROOM_USES)))))
link_rooms = $(filter exec cli library,$(1)) $(if $(filter sim cli library,$(1)),sim) $(if $(filter profiles exec cli library,$(1)),profiles) partition

.PHONY: all cuda found deps test test-slow test-emulated test-rest test-all run-tests test-docs demo bench speed truth check-layers format format-check golden clean help lib tests gpu-check gpu-bundle gpu-bundle-folder gpu-rehearsal list-tests mutate chaos soak
BIN := $(OUT)/bin/elapse $(if $(filter 1,$(EXEC)),$(OUT)/bin/elapse-exec $(if $(SAN),,$(OUT)/bin/elapse-local.so)) \
  $(if $(filter 1,$(HAVE_CUDA)),$(OUT)/bin/elapse-cuda.so $(if $(filter 1,$(HAVE_NCCL)),$(OUT)/bin/elapse-nccl.so))

all: found $(if $(wildcard cli/main.c),$(BIN)) lib $(LIBRARY)
	@mkdir -p build && ln -sfn $(HASH)/bin build/bin && ln -sfn $(HASH)/lib build/lib
cuda: all
lib: $(call libs,$(ROOMS))
found:
	@echo "mpi: $(if $(filter 1,$(MPI)),yes ($(MPI_PC)),no)  blas: $(if $(filter 1,$(BLAS)),yes,no)  libcrypto: $(if $(filter 1,$(CRYPTO)),yes,no)  pcre2, utf8proc: $(if $(UNICODE),yes,no)  sqlite: $(if $(filter 1,$(SQLITE)),yes,no)  cjson: $(if $(filter 1,$(CJSON)),yes,no)  cmocka: $(if $(filter 1,$(CMOCKA)),yes,no)  cuda: $(if $(filter 1,$(CUDA)),yes ($(NVCC)),$(if $(NVCC),no GPU (make cuda compiles the kernels),no (CPU executor only)))"
ifneq ($(SQLITE)$(CJSON)$(ZLIB),111)
	@echo "sqlite3, cjson or zlib is missing: run 'make deps'" >&2; exit 3
endif

# --- rules ------------------------------------------------------------------------------------------
room_flags = $(CFLAGS_$(firstword $(subst /, ,$(1)))) $(CFLAGS_$(patsubst %/,%,$(dir $(1))))
$(OUT)/%.c.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC  $<")
	$(Q)$(CC) $(BASE) $(DEFS) $(call room_flags,$<) -MMD -MP -c $< -o $@
$(CUDA_OUT)/%.c.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC  $< (cuda)")
	$(Q)$(CC) $(BASE) $(DEFS) $(CUDA_CFLAGS) -MMD -MP -c $< -o $@
$(CUDA_OUT)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(if $(Q),@echo "  NVCC $<")
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -c $< -o $@
$(OUT)/bin/elapse-cuda.so: $(patsubst %,$(CUDA_OUT)/%.o,$(SRC_cuda))
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(OPT) $(SANFLAGS) -pthread $^ $(CUDA_LIBS) -Wl,--no-undefined -lstdc++ -lm -o $@.new && mv $@.new $@
$(OUT)/bin/elapse-nccl.so: $(patsubst %,$(CUDA_OUT)/%.o,$(SRC_nccl))
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(OPT) $(SANFLAGS) $^ -Wl,--as-needed $(CUDA_LIBS) -lnccl -Wl,--no-undefined -o $@.new && mv $@.new $@

include tests/cudasim/cudasim.mk
include profiles/json/build_facts.mk
include profiles/devices/devices.mk
include cli/share/share.mk
include packaging/packaging.mk
include page/page.mk
include packaging/python/wheel.mk
include tests/checkers/checkers.mk

define room_lib
$(OUT)/lib$(1).a: $(call objs,$(1))
	$(if $(Q),@echo "  AR  lib$(1).a")
	$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach r,partition profiles sim exec cli library,$(eval $(call room_lib,$(r))))

# The schema and the shipped profiles as C text: every line a quoted string.
SQL := profiles/schema.sql $(sort $(wildcard profiles/shipped/*.sql))
$(OUT)/profiles/sql_text.c: $(SQL)
	@mkdir -p $(@D)
	$(Q){ echo '#include "profiles/store/sql_text.h"'; echo 'const struct sql_text sql_texts[] = {'; \
	  for f in $^; do echo "{\"$$(basename $$f .sql)\","; \
	    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $$f; echo '},'; done; \
	  echo '{0, 0}};'; } > $@
$(OUT)/profiles/sql_text.c.o: $(OUT)/profiles/sql_text.c
	$(Q)$(CC) $(BASE) $(CFLAGS_profiles) -c $< -o $@
# And the store that is set up from them, as bytes.
$(OUT)/write_store: $(OUT)/profiles/store/write_store.c.o $(OUT)/profiles/store/schema.c.o $(OUT)/profiles/sql_text.c.o
	$(Q)$(CC) $(OPT) $(SANFLAGS) -pthread $^ $(LIBS_base) -o $@
$(OUT)/profiles/shipped_store.c: $(OUT)/write_store
	$(Q)$< >$@.new && mv $@.new $@
$(OUT)/profiles/shipped_store.c.o: $(OUT)/profiles/shipped_store.c
	$(Q)$(CC) $(BASE) $(CFLAGS_profiles) -c $< -o $@
$(OUT)/libprofiles.a: $(OUT)/profiles/sql_text.c.o $(OUT)/profiles/shipped_store.c.o

$(OUT)/cli/figures/gnuplot.c.o: $(wildcard plots/*.gp)
$(OUT)/bin/elapse: $(OUT)/cli/main.c.o $(call libs,cli sim profiles partition)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPT) $(SANFLAGS) -pthread $^ $(LIBS_cli) $(LIBS_base) -o $@
$(OUT)/bin/elapse-exec: $(OUT)/exec/main.c.o $(call libs,exec profiles partition)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPT) $(SANFLAGS) -pthread $^ $(LIBS_exec) $(LIBS_base) -o $@

define test_bin
$(OUT)/tests/$(1): $(patsubst %,$(OUT)/%.o,$(2) $(SRC_$(1))) $(if $(filter test_%,$(1)),$(TEST_FILTER)) $(call libs,$(call link_rooms,$(call rooms_of,$(2) $(SRC_$(1)))))
	@mkdir -p $$(@D)
	$(Q)$(CC) $(OPT) $(SANFLAGS) -pthread $$^ $(if $(filter exec,$(call rooms_of,$(2))),$(LIBS_exec)) $(LIBS_cli) $(LIBS_base) -lcmocka -o $$@
endef
$(foreach t,$(TESTS),$(eval $(call test_bin,$(t),$(filter %/$(t).c,$(TEST_SRC)))))
$(foreach t,$(BENCHES),$(eval $(call test_bin,$(t),tests/bench/$(t).c)))

# For LD_PRELOAD.
$(OUT)/bin/elapse-local.so: cli/launch/local_bind.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) -fPIC -fvisibility=hidden -shared $< -o $@.new -ldl && mv $@.new $@
# For LD_PRELOAD, also into programs that know no MPI.
$(PRELOADS): $(OUT)/tests/%.so: tests/e2e/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(CFLAGS_exec) -fPIC -shared -Wl,-z,lazy $< -o $@ -ldl
test_%: $(OUT)/tests/test_% ; $(Q)$<
bench_%: $(OUT)/tests/bench_% ; $(Q)$<

tests: $(addprefix $(OUT)/tests/,$(TESTS)) $(SIM_TESTS) $(SIM_LIBS) $(PRELOADS) $(SIM_DRIVER)
# After deps a fresh make looks again at what this machine has.
test: RUN_GROUPS := quick
test-slow: RUN_GROUPS := slow
test-emulated: RUN_GROUPS := emulated
test-rest: RUN_GROUPS := slow emulated repeated
test-all: RUN_GROUPS := all
test test-slow test-emulated test-rest test-all: deps
	$(Q)$(MAKE) --no-print-directory run-tests RUN_GROUPS='$(RUN_GROUPS)'
run-tests: all tests
	$(Q)ELAPSE_OUT=$(OUT) ELAPSE_MPIRUN="$${ELAPSE_MPIRUN:-$(LAUNCHER)}" TEST_GROUPS="$(or $(RUN_GROUPS),quick)" TEST_TIMES=build/times-$(firstword $(RUN_GROUPS) quick) tests/run.sh $(addprefix $(OUT)/tests/,$(TESTS)) $(SIM_TESTS)
mutate:
	@MUTATE_ONLY='$(ONLY)' tests/mutate.sh
chaos soak: all $(PRELOADS)
	@ELAPSE_BIN=$(CURDIR)/$(OUT)/bin ELAPSE_MPIRUN="$${ELAPSE_MPIRUN:-$(LAUNCHER)}" tests/e2e/$@.sh
bench: all $(addprefix $(OUT)/tests/,$(BENCHES))
	$(Q)ELAPSE_OUT=$(OUT) ELAPSE_MPIRUN="$${ELAPSE_MPIRUN:-$(LAUNCHER)}" tests/bench/run.sh $(filter $(OUT)/%,$^) $(wildcard tests/bench/bench_*.sh)
speed: $(OUT)/tests/bench_sim $(OUT)/tests/bench_planner
	$(Q)ELAPSE_OUT=$(OUT) tests/bench/run.sh $^ >$(OUT)/speed.txt && tests/bench/speed_table.py write $(OUT)/speed.txt && cat $(OUT)/speed.txt
truth: all
	$(Q)for s in $(if $(TRUTH_DATA),truth_matmul truth_steps truth_layouts truth_h100 truth_nemo truth_gptoss truth_lora) truth_megatron truth_fsdp truth_torch truth_gpu; do python3 tests/truth/$$s.py $(TRUTH_DATA) || exit 1; done
gpu-check:
	@tests/gpu/gpu_check.sh || [ $$? -eq 77 ]
# What to carry to a GPU machine, for Hopper and any processor with AVX2 (docs/gpu.md); gpu-rehearsal tries it without.
gpu-bundle:
	$(Q)$(MAKE) --no-print-directory ARCH=x86-64-v3 CUDA_ARCH=90 gpu-bundle-folder
gpu-bundle-folder: all $(addprefix $(OUT)/tests/,test_backend_cuda test_cudnn test_parity bench_device)
	$(Q)tests/gpu/bundle.sh $(OUT) build/gpu-bundle $(CUDA_HOME)
gpu-rehearsal: gpu-bundle
	$(Q)$(MAKE) --no-print-directory $(SIM_OUT)/elapse-cuda-plain.so $(SIM_DRIVER)
	$(Q)tests/gpu/gpu_rehearsal.sh build/gpu-bundle $(SIM_OUT)/elapse-cuda-plain.so
list-tests:
	@printf '%s\n' $(addprefix $(OUT)/tests/,$(TESTS))
demo: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)examples/demo.sh
deps:
	@tests/deps.sh
test-docs: all
	$(Q)tests/docs.sh full
golden: all
	$(Q)tests/golden.sh --write
check-layers:
	@tests/check-layers.sh

FORMATTED = $(foreach p,*.[ch] *.cu *.cuh,$(call found_in,$(ROOMS) page exec examples/library tests/unit tests/e2e tests/bench tests/fuzz,$(p)))
format:
	clang-format -i $(FORMATTED)
format-check:
	@clang-format --dry-run --Werror $(FORMATTED)
clean:
	rm -rf build
help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
