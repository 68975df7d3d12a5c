# SPDX-License-Identifier: MIT
# Builds RMM's library and its tests against the simulator's libraries: make -f tests/real/rmm/build.mk SOURCE=... OUT=... SIM=...
# Tests in .cu files are left out: their kernels compute, which the simulated GPU does not.

CUDA ?= /usr/local/cuda
FLAGS = -std=c++17 -O0 -fPIC -w -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE -I tests/real/rmm -I $(SOURCE)/cpp/include \
    -I $(SOURCE)/cpp -I $(CUDA)/include/cccl -I $(CUDA)/include -I $(GTEST)/usr/include
LIBRARY = $(OUT)/librmm.so
RUNTIME = $(SIM)/libcudart.so.13 $(SIM)/libcuda.so.1
UNITS := $(shell cd $(SOURCE)/cpp/tests && ls *.cpp mr/*/*.cpp)
# Files of one program: the first one names it.
TOGETHER = mr/device/mr_ref_multithreaded_tests.cpp cuda_stream_pool_tests.cpp
PROGRAMS = $(patsubst %.cpp,$(OUT)/tests/%,$(filter-out $(TOGETHER),$(UNITS)))
OBJECTS = $(UNITS:%.cpp=$(OUT)/objects/%.o)

all: $(PROGRAMS)

$(LIBRARY): $(patsubst $(SOURCE)/cpp/src/%.cpp,$(OUT)/objects/src/%.o,$(wildcard $(SOURCE)/cpp/src/*.cpp))
	g++ -shared -Wl,-soname,librmm.so -o $@ $^ $(RUNTIME)

$(OUT)/objects/src/%.o: $(SOURCE)/cpp/src/%.cpp
	@mkdir -p $(@D)
	g++ $(FLAGS) -c -o $@ $<

$(OUT)/objects/%.o: $(SOURCE)/cpp/tests/%.cpp
	@mkdir -p $(@D)
	g++ $(FLAGS) -c -o $@ $<

$(OUT)/tests/mr/device/mr_ref_tests: $(OUT)/objects/mr/device/mr_ref_multithreaded_tests.o
$(OUT)/tests/cuda_stream_tests: $(OUT)/objects/cuda_stream_pool_tests.o

$(OUT)/tests/%: $(OUT)/objects/%.o $(LIBRARY)
	@mkdir -p $(@D)
	g++ -o $@ $(filter %.o,$^) $(LIBRARY) $(RUNTIME) -L $(GTEST)/usr/lib/x86_64-linux-gnu -lgmock_main -lgmock -lgtest -ldl -pthread \
	    -Wl,-rpath,$(abspath $(OUT))

.SECONDARY: $(OBJECTS)
.DELETE_ON_ERROR:
