# The device kinds of profiles/devices, compiled in: write_kinds reads them as the programs read a user's
# kind, and writes C text. First the kinds of this list, in the order in which `elapse devices` prints
# them; a file that is not in it comes after them, so a new kind is a new file.
KIND_ORDER := v100 v100-16gb t4 rtx5000 rtx2080ti a100 a100-40gb a100-pcie a800 a10 a30 a40 a6000 rtx3090 \
  l4 l40s rtx4090 rtx6000ada h100 h100-pcie h100-nvl h20 h800 h200 gh200 b200 gb200 b300 gb300 rtx5090 \
  rtxpro6000 mi250x mi300x mi325x mi355x gaudi2 gaudi3 tpu-v4 tpu-v5e tpu-v5p epyc-7763 epyc-9654 \
  xeon-8480 cpu
KIND_FOUND := $(sort $(wildcard profiles/devices/*.json))
KIND_FIRST := $(KIND_ORDER:%=profiles/devices/%.json)
KIND_FILES := $(filter $(KIND_FOUND),$(KIND_FIRST)) $(filter-out $(KIND_FIRST),$(KIND_FOUND))
WRITE_KINDS := profiles/devices/write_kinds.c
KIND_SRC := $(WRITE_KINDS) partition/cluster/device_kinds.c profiles/job/kind_json.c \
  $(filter-out %/build_facts.c,$(filter partition/base/% profiles/base/% profiles/json/%,$(SRC_partition) $(SRC_profiles)))
$(OUT)/write_kinds: $(patsubst %,$(OUT)/%.o,$(KIND_SRC))
	$(Q)$(CC) $(OPT) $(SANFLAGS) -pthread $^ $(LIBS_base) -o $@
$(OUT)/kinds.c: $(OUT)/write_kinds $(KIND_FILES)
	$(if $(Q),@echo "  GEN device kinds")
	$(Q)$< $(KIND_FILES) >$@.new && mv $@.new $@
$(OUT)/kinds.c.o: $(OUT)/kinds.c
	$(Q)$(CC) $(BASE) $(CFLAGS_partition) -c $< -o $@
$(OUT)/libpartition.a: $(OUT)/kinds.c.o
