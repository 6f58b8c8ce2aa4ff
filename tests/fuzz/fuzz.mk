# tests/fuzz/fuzz.mk - libFuzzer over the parsers of foreign input, included by the Makefile.
#
#   make fuzz [ONLY="PARSER ..."] [SECONDS=60]    SECONDS for each parser; 0: corpus and findings only
#
# It builds with clang into a folder of its own (build/<hash>). tests/test_fuzz.c replays the committed inputs
# without clang.

FUZZ_CC := $(firstword $(foreach c,clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14,$(shell command -v $(c) 2>/dev/null)))
SRC_test_fuzz := tests/fuzz/fuzz.c $(wildcard tests/fuzz/parsers_*.c)
FUZZ_LIBS := $(call libs,exec cli sim profiles partition)
SECONDS ?= 60

.PHONY: fuzz fuzz-program
fuzz:
	$(if $(FUZZ_CC),,@echo "fuzz: no clang here; run: apt-get install clang libomp-dev" >&2; exit 3)
	$(Q)$(MAKE) --no-print-directory CC=$(notdir $(FUZZ_CC)) OPT="-O1 -g" SAN=fuzzer-no-link,address,undefined CUDA=0 WERROR= fuzz-program
fuzz-program: $(OUT)/bin/elapse-fuzz
	$(Q)tests/fuzz/run.sh $< $(SECONDS) $(ONLY)
$(OUT)/bin/elapse-fuzz: $(patsubst %,$(OUT)/%.o,tests/fuzz/libfuzzer.c $(SRC_test_fuzz)) $(FUZZ_LIBS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPT) -fsanitize=$(subst fuzzer-no-link,fuzzer,$(SAN)) -pthread $^ $(LIBS_exec) $(LIBS_base) -o $@
