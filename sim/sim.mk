# SPDX-License-Identifier: MIT
# How the simulated GPU is built: libraries with the names of NVIDIA's, in build/lib/gpuprof/sim.  It includes nothing of the
# profiler and is linked with nothing of it.  Read by the Makefile of the root, which has the modes, the flags and `compile`.

# Never sanitized: a test program that is not must be able to load these libraries.
SIM_CFLAGS := $(filter-out -fsanitize% -fno-sanitize% --coverage,$(ALL_CFLAGS)) -fPIC -fvisibility=hidden -Isim/include -Isim -include sim/glibc.h

SIM_CUDA_OBJ   := $(patsubst %.c,$(B)/obj/%.o,$(wildcard sim/cuda/*.c sim/cuda/api/*.c) sim/report.c)
SIM_CUPTI_OBJ  := $(patsubst %.c,$(B)/obj/%.o,$(wildcard sim/cupti/*.c))
SIM_CUDART_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard sim/cudart/*.c))
SIM_CUDART12_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard sim/cudart12/*.c))
SIM_NCCL_OBJ   := $(patsubst %.c,$(B)/obj/%.o,$(wildcard sim/nccl/*.c) sim/standin/standin.c sim/report.c)
SIM_NVSHMEM_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard sim/nvshmem/*.c) sim/nccl/room.c sim/nccl/driver.c sim/standin/standin.c sim/report.c)
SIM_NVML_OBJ   := $(patsubst %.c,$(B)/obj/%.o,$(wildcard sim/nvml/*.c) sim/report.c)

SIMD := $(B)/lib/gpuprof/sim
# Stand-ins for NVIDIA's mathematics libraries: one library per name that a program may want, all names of one from the same objects.
STANDIN_NAMES := $(foreach n,11 12 13,libcublas.so.$n libcublasLt.so.$n) libcudnn.so.8 libcudnn.so.9 \
	$(foreach n,10 11 12,libcufft.so.$n) libcurand.so.10 $(foreach n,11 12,libcusolver.so.$n libcusparse.so.$n) libcusparseLt.so.0 libcufile.so.0
STANDIN_cublas := cublas blas
STANDIN_cusolver := cusolver blas
STANDIN_cudnn := cudnn cudnnconv cudnnplan cudnnrnn cudnntensor
# The parts of cuDNN, which some programs open by themselves: empty, and each needs the whole.
STANDIN_PARTS := $(foreach p,adv cnn engines_precompiled engines_runtime_compiled engines_tensor_ir ext graph heuristic ops,libcudnn_$p.so.9) \
	$(foreach p,adv cnn ops,libcudnn_$p_infer.so.8 libcudnn_$p_train.so.8)
STANDINS := $(STANDIN_NAMES:%=$(SIMD)/standin/%) $(STANDIN_PARTS:%=$(SIMD)/standin/%) $(SIMD)/standin/libgpuprof-standin.so
SIM_PYTHON := $(patsubst sim/%,$(SIMD)/%,$(wildcard sim/python/*.py))
SIM  := $(SIMD)/libcuda.so.1 $(SIMD)/libcupti.so.13 $(SIMD)/libcupti.so.12 $(SIMD)/libcudart.so.13 $(SIMD)/libcudart.so.12 $(SIMD)/libgpuprof-sim.so $(SIMD)/libcudart_static.a $(SIMD)/libnvidia-ml.so.1 $(SIMD)/bin/nvidia-smi $(SIM_PYTHON)
SIM  += $(STANDINS) $(SIMD)/standin/libnccl.so.2 $(SIMD)/standin/libnvshmem_host.so.3

# ---- objects ---------------------------------------------------------------------------------------------------------
$(B)/obj/sim/%.o: sim/%.c sim/glibc.h $(STAMP)
	$(call compile,$(SIM_CFLAGS))

# ---- libraries -------------------------------------------------------------------------------------------------------
define simlib
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) $(if $(1),-Wl$(comma)--version-script=$(1)) $(2) -o $@.new $(filter %.o,$^) $(OLD_GLIBC) -lm
	$(Q)mv -f $@.new $@
endef
# As in NVIDIA's, its own functions are what it answers with, whatever else has their names.
$(SIMD)/libcuda.so.1: $(SIM_CUDA_OBJ)
	$(call simlib,,-Wl$(comma)-Bsymbolic-functions)
	$(Q)ln -sf libcuda.so.1 $(SIMD)/libcuda.so
$(SIMD)/libcupti.so.13: $(SIM_CUPTI_OBJ) sim/cupti/libcupti.map
	$(call simlib,sim/cupti/libcupti.map)
$(SIMD)/libcupti.so.12: $(SIM_CUPTI_OBJ) sim/cupti/libcupti12.map
	$(call simlib,sim/cupti/libcupti12.map)
# The runtime as libcute_dsl_runtime.so has it (sim/cudart/launch.c).
SIM_CUTE := DeviceGetAttribute DeviceSynchronize EventCreate EventDestroy EventElapsedTime EventRecord EventSynchronize Free FreeAsync \
    FreeHost FuncSetAttribute GetDevice GetDeviceCount GetDeviceProperties GetLastError GraphDestroy GraphExecDestroy \
    GraphInstantiate GraphLaunch KernelSetAttributeForDevice LibraryGetGlobal LibraryGetKernel LibraryGetKernelCount \
    LibraryGetManaged LibraryGetUnifiedFunction LibraryLoadData LibraryLoadFromFile LibraryUnload Malloc MallocAsync MallocHost \
    MallocManaged Memcpy MemcpyAsync Memset MemsetAsync OccupancyMaxActiveBlocksPerMultiprocessor ProfilerStart ProfilerStop \
    SetDevice StreamAddCallback StreamBeginCapture StreamCreate StreamDestroy StreamEndCapture StreamSynchronize StreamWaitEvent
sim_cute := $(foreach name,$(SIM_CUTE),-Wl,--defsym,_cuda$(name)=cuda$(name)) -Wl,--defsym,_cudaLaunchKernelEx=cudaLaunchKernelExC
$(SIMD)/libcudart.so.13: $(SIM_CUDART_OBJ) sim/cudart/libcudart.map
	$(call simlib,sim/cudart/libcudart.map,$(sim_cute))
	$(Q)ln -sf libcudart.so.13 $(SIMD)/libcudart.so
# The runtime of CUDA 12: the same objects, in which the calls that CUDA 13 changed get other names.
$(B)/obj/sim/cudart12.o: $(filter-out %/version.o,$(SIM_CUDART_OBJ)) sim/cudart12/forms.names
	$(call say,LINK,$@)
	$(Q)$(LD) -r -o $@.new $(filter %.o,$^)
	$(Q)$(CROSS)objcopy --redefine-syms=sim/cudart12/forms.names $@.new $@
	$(Q)rm $@.new
$(SIMD)/libcudart.so.12: $(B)/obj/sim/cudart12.o $(SIM_CUDART12_OBJ) sim/cudart12/libcudart.map
	$(call simlib,sim/cudart12/libcudart.map,$(sim_cute))
# In front of programs (LD_PRELOAD): empty, and it needs those above.  A library whose name is loaded is not searched for again,
# so the run path of a Python package does not lead to NVIDIA's copy, and NVML is found as beside every driver.
$(SIMD)/libgpuprof-sim.so: $(SIMD)/libcudart.so.12 $(SIMD)/libcudart.so.13 $(SIMD)/libcupti.so.12 $(SIMD)/libcupti.so.13 $(SIMD)/libnvidia-ml.so.1
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -nostdlib -Wl,-z,noexecstack -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' -Wl,--enable-new-dtags -Wl,--no-as-needed -Wl,--allow-shlib-undefined -L$(@D) -o $@.new $(patsubst %,-l:%,$(notdir $^))
	$(Q)mv -f $@.new $@
# The version of every symbol is the library's name, as in NVIDIA's; two of them have none.
standin_objects = $(patsubst %,$(B)/obj/sim/standin/%.o,standin $(or $(STANDIN_$(1)),$(1))) $(B)/obj/sim/report.o
define standin
$(SIMD)/standin/$(1): $(call standin_objects,$(patsubst lib%,%,$(firstword $(subst .so., ,$(1)))))
	$$(call say,LINK,$$@)
	@mkdir -p $$(@D)
	$(Q)echo '$(if $(filter libcusparseLt% libcufile%,$(1)),,$(1) ){ global: cu*; local: *; };' > $(B)/obj/sim/standin/$(1).map
	$(Q)$(CC) -shared -Wl,-soname,$(1) -Wl,-e,standin_real -Wl,--version-script=$(B)/obj/sim/standin/$(1).map -o $$@.new $$^ $(OLD_GLIBC)
	$(Q)mv -f $$@.new $$@
endef
$(foreach s,$(STANDIN_NAMES),$(eval $(call standin,$(s))))
$(STANDIN_PARTS:%=$(SIMD)/standin/%): $(SIMD)/standin/libcudnn.so.8 $(SIMD)/standin/libcudnn.so.9
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -nostdlib -Wl,-z,noexecstack -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' -Wl,--enable-new-dtags -Wl,--no-as-needed -Wl,--allow-shlib-undefined -L$(@D) -o $@.new -l:libcudnn$(suffix $(basename $(@F)))$(suffix $(@F))
	$(Q)mv -f $@.new $@
# The loader's audit library, without libc: nothing may call memset and the like for it.
$(B)/obj/sim/standin/audit.o: SIM_CFLAGS += -ffreestanding -fno-stack-protector -fno-tree-loop-distribute-patterns
$(SIMD)/standin/libgpuprof-standin.so: $(B)/obj/sim/standin/audit.o
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -nostdlib -Wl,-z,noexecstack -Wl,-soname,$(@F) -Wl,-z,defs -o $@.new $<
	$(Q)mv -f $@.new $@
# The runtime that nvcc links by default: the same objects, and the program itself does not name the driver.
$(SIMD)/libcudart_static.a: $(SIM_CUDART_OBJ)
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@; $(AR) rcs $@ $^

$(SIMD)/python/%.py: sim/python/%.py
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(SIMD)/libnvidia-ml.so.1: $(SIM_NVML_OBJ) sim/nvml/libnvidia-ml.map
	$(Q)rm -f $(@D)/standin/$(@F) # an older build's: whatever lies there is installed
	$(call simlib,sim/nvml/libnvidia-ml.map)
# Programs take a machine without this command for one without a GPU.
$(SIMD)/bin/nvidia-smi: $(B)/obj/sim/smi/smi.o
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -pie -o $@.new $^ -ldl
	$(Q)mv -f $@.new $@
$(SIMD)/standin/libnccl.so.2: $(SIM_NCCL_OBJ)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) -Wl,-e,standin_real -o $@.new $^ $(OLD_GLIBC) -lm
	$(Q)mv -f $@.new $@
$(SIMD)/standin/libnvshmem_host.so.3: $(SIM_NVSHMEM_OBJ) sim/nvshmem/libnvshmem_host.map
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) -Wl,-e,standin_real -Wl,--version-script=$(lastword $^) -o $@.new $(filter %.o,$^) $(OLD_GLIBC)
	$(Q)mv -f $@.new $@
