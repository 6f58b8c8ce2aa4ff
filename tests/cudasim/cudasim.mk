# tests/cudasim/cudasim.mk - CUDA without a GPU (README.md beside this file), included by the Makefile.
#
# Two backends that ELAPSE_CUDA_LIB can name: plain and check hold the kernels as g++ compiles them. libcuda.so.1
# is a driver that does nothing, for tests/unit/exec/test_cudnn.c. Without CUDA's toolkit or g++, and with SAN, there
# is nothing of this.

SIM := $(if $(filter 1,$(HAVE_CUDA)),$(if $(shell command -v $(CXX)),$(if $(SAN),,1)))
SIM_OUT := $(OUT)/cudasim
SIM_LIBS := $(if $(SIM),$(patsubst %,$(SIM_OUT)/elapse-cuda-%.so,plain check))
SIM_DRIVER := $(if $(SIM),$(SIM_OUT)/libcuda.so.1)
SIM_TESTS := $(if $(SIM),$(OUT)/tests/test_cudasim $(if $(filter 1,$(HAVE_NCCL)),$(OUT)/tests/test_cudasim_nccl))
SIM_FLAGS := -std=c++17 -g1 -fPIC -U_FORTIFY_SOURCE -fstack-clash-protection -pthread -Wall -Wextra -Wno-unknown-pragmas \
  -Wno-maybe-uninitialized -I. -isystem $(CUDA_HOME)/include $(DEFS) -DELAPSE_CUDASIM
SIM_CHECKS := -fsanitize=thread,alignment,bounds,shift

$(SIM_OUT)/%.cpp.o: %.cpp
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CXX $<")
	$(Q)$(CXX) $(SIM_FLAGS) $(if $(filter %_lt.cpp,$<),-O3 -march=$(ARCH),-O2) -MMD -MP -c $< -o $@
$(SIM_OUT)/plain/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CXX $< (emulated)")
	$(Q)$(CXX) -x c++ $(SIM_FLAGS) -O2 -include tests/cudasim/cudasim.h -MMD -MP -c $< -o $@
$(SIM_OUT)/check/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CXX $< (emulated, checked)")
	$(Q)$(CXX) -x c++ $(SIM_FLAGS) -O1 $(SIM_CHECKS) -include tests/cudasim/cudasim.h -MMD -MP -c $< -o $@
$(SIM_OUT)/tests/cudasim/%.c.o: tests/cudasim/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(DEFS) $(CUDA_CFLAGS) -MMD -MP -c $< -o $@
SIM_DEVICE := $(patsubst %,$(SIM_OUT)/%.o,$(filter-out %_nccl.cpp,$(wildcard tests/cudasim/cudasim_*.cpp)))
SIM_HOST := $(patsubst %,$(CUDA_OUT)/%.o,$(filter %.c,$(SRC_cuda)))
# NCCL's stand-in lies in the same object as the runtime's: they share its streams.
SIM_NCCL := $(if $(filter 1,$(HAVE_NCCL)),$(CUDA_OUT)/exec/comm/nccl_device.c.o $(SIM_OUT)/tests/cudasim/cudasim_nccl.cpp.o)
$(SIM_OUT)/elapse-cuda-plain.so: $(patsubst %,$(SIM_OUT)/plain/%.o,$(filter %.cu,$(SRC_cuda))) $(SIM_HOST) $(SIM_DEVICE) $(SIM_NCCL)
$(SIM_OUT)/elapse-cuda-check.so: $(patsubst %,$(SIM_OUT)/check/%.o,$(filter %.cu,$(SRC_cuda))) \
  $(filter-out %/cuda_arena.c.o,$(SIM_HOST)) $(SIM_OUT)/tests/cudasim/cudasim_arena.c.o $(SIM_DEVICE) $(SIM_NCCL)
$(SIM_LIBS):
	$(Q)$(CXX) -shared -pthread $^ -Wl,-Bsymbolic,--no-undefined,-rpath,$(CUDA_HOME)/lib64 -ldl -lm -o $@.new && mv $@.new $@
$(SIM_DRIVER): $(SIM_OUT)/tests/cudasim/cudasim_driver.c.o
	$(Q)$(CC) -shared -Wl,-soname,libcuda.so.1 $^ -o $@.new && mv $@.new $@
$(SIM_OUT)/tests/cudasim/test_cudasim.cpp.o: tests/cudasim/test_cudasim.cpp
	@mkdir -p $(@D)
	$(Q)$(CXX) $(SIM_FLAGS) -O1 $(SIM_CHECKS) -include tests/cudasim/cudasim.h -MMD -MP -c $< -o $@
$(OUT)/tests/test_cudasim: $(SIM_OUT)/tests/cudasim/test_cudasim.cpp.o $(SIM_DEVICE) $(TEST_FILTER)
	@mkdir -p $(@D)
	$(Q)$(CXX) -pthread $^ -ldl -lm -lcmocka -o $@
$(OUT)/tests/test_cudasim_nccl: $(SIM_OUT)/tests/cudasim/test_cudasim_nccl.cpp.o $(SIM_DEVICE) $(SIM_NCCL) $(addprefix $(CUDA_OUT)/partition/base/,status.c.o safe_text.c.o) $(TEST_FILTER)
	@mkdir -p $(@D)
	$(Q)$(CXX) -pthread $^ -ldl -lm -lcmocka -o $@
