# SPDX-License-Identifier: MIT
# Builds RMM's library, and pools.cpp with it, against the simulator's runtime: make -f tests/real/rmm/pools/build.mk OUT=... SIM=...
# OUT has the sources of RMM (rmm) and of CCCL (cccl).

CUDA ?= /usr/local/cuda
FLAGS = -std=c++20 -O1 -fPIC -w -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE -I tests/real/rmm -I include -I $(OUT)/rmm/cpp/include \
    -I $(OUT)/rmm/cpp/src -I $(OUT)/cccl/libcudacxx/include -I $(OUT)/cccl/thrust -I $(OUT)/cccl/cub -I $(CUDA)/include
RUNTIME = $(SIM)/libcudart.so.13 $(SIM)/libcuda.so.1
SOURCES := $(shell cd $(OUT)/rmm/cpp/src && find . -name '*.cpp')

$(OUT)/pools: tests/real/rmm/pools/pools.cpp $(OUT)/librmm.so
	g++ $(FLAGS) -o $@ $< $(OUT)/librmm.so $(RUNTIME) -ldl -pthread -Wl,-rpath,$(abspath $(OUT))

# Visibility as the released library has it: its callers in it are inlined, or go through slots.
$(OUT)/librmm.so: $(SOURCES:./%.cpp=$(OUT)/objects/%.o)
	g++ -shared -Wl,-soname,librmm.so -o $@ $^ $(RUNTIME)

$(OUT)/objects/%.o: $(OUT)/rmm/cpp/src/%.cpp
	@mkdir -p $(@D)
	g++ $(FLAGS) -O2 -fvisibility=hidden -fvisibility-inlines-hidden -c -o $@ $<

.DELETE_ON_ERROR:
