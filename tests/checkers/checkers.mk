# tests/checkers/checkers.mk - libFuzzer, sanitizers and the static analyser; included by the Makefile.
#
#   make analyse                                 cppcheck over all C sources; nothing may be found
#   make fuzz [ONLY="PARSER ..."] [SECONDS=60]   the parsers of foreign input; SECONDS for each, 0: known inputs
#   make fuzz-long [ONLY="PARSER ..."]           ten minutes of each, one after another; what is found is kept in build/fuzz
#   make asan [ONLY="test_NAME ..."]             unit tests and short runs: memory errors, leaks, undefined behaviour
#   make tsan [ONLY="test_NAME ..."]             the same: data races
#   make walls [ONLY="WING ..."]                 each optional wing of walls.txt can be deleted with its rows
#
# fuzz and asan share one build. tests/fuzz/test_fuzz.c replays the fuzzer's inputs without clang in make test.

CLANG := $(notdir $(firstword $(foreach c,clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14,$(shell command -v $(c) 2>/dev/null))))
WITH_CLANG = $(if $(CLANG),,@echo "$@: no clang here; run: tests/deps.sh clang libomp-dev" >&2; exit 3)
CHECKED := $(MAKE) --no-print-directory CC=$(CLANG) OPT="-O1 -g" CUDA=0 WERROR=
SRC_test_fuzz := tests/fuzz/fuzz.c $(wildcard tests/fuzz/parsers_*.c)
SECONDS ?= 60

.PHONY: analyse fuzz fuzz-long asan tsan fuzz-program sanitized-tests walls
walls:
	$(Q)tests/checkers/walls.sh $(ONLY)
# A file that has not changed is not read again. Suppressions have their reasons in cppcheck.txt.
CPPCHECK := cppcheck -q -j 2 --std=c11 --enable=warning,portability,performance --error-exitcode=1 \
  --suppressions-list=tests/checkers/cppcheck.txt --suppress=missingIncludeSystem --cppcheck-build-dir=build/cppcheck
analyse:
	$(if $(shell command -v cppcheck 2>/dev/null),,@echo "analyse: no cppcheck here; run: tests/deps.sh cppcheck" >&2; exit 3)
	@mkdir -p build/cppcheck
	$(Q)$(CPPCHECK) -I. -D_GNU_SOURCE -D__GNUC__ -D__x86_64__ $(DEFS) -DELAPSE_LAUNCHER='"mpirun"' \
	  $(sort $(foreach r,partition profiles sim cli exec,$(SRC_$(r))) $(wildcard cli/main.c exec/main.c library/*.c))
fuzz:
	$(WITH_CLANG)
	$(Q)$(CHECKED) SAN=fuzzer-no-link,address,undefined fuzz-program
fuzz-long:
	$(Q)FUZZ_JOBS=1 $(MAKE) --no-print-directory fuzz SECONDS=600
asan:
	$(WITH_CLANG)
	$(Q)$(CHECKED) SAN=fuzzer-no-link,address,undefined sanitized-tests
tsan:
	$(WITH_CLANG)
	$(Q)$(CHECKED) SAN=thread sanitized-tests

fuzz-program: $(OUT)/bin/elapse-fuzz
	$(Q)tests/fuzz/run.sh $< $(SECONDS) $(ONLY)
$(OUT)/bin/elapse-fuzz: $(patsubst %,$(OUT)/%.o,tests/fuzz/libfuzzer.c $(SRC_test_fuzz)) $(call libs,exec cli sim profiles partition)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPT) -fsanitize=$(subst fuzzer-no-link,fuzzer,$(SAN)) -pthread $^ $(LIBS_exec) $(LIBS_base) -o $@
$(OUT)/tests/keep_loaded.so: tests/checkers/keep_loaded.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -O1 -fPIC -shared $< -o $@
sanitized-tests: $(BIN) $(OUT)/tests/keep_loaded.so $(addprefix $(OUT)/tests/,$(or $(ONLY),$(TESTS)))
	$(Q)ELAPSE_OUT=$(OUT) ELAPSE_MPIRUN="$${ELAPSE_MPIRUN:-$(LAUNCHER)}" tests/checkers/run.sh $(SAN) $(addprefix $(OUT)/tests/,$(or $(ONLY),$(TESTS)))
