# SPDX-License-Identifier: MIT
# gpuprof: one file, plain make.  `make help` lists the targets.
#
#   MODE=release|debug|asan|tsan|cov    each in its own tree: build/, build-debug/, ...
#   V=1                                 show whole command lines
#   CROSS=aarch64-linux-gnu- SYSROOT=DIR    for another processor, in build-aarch64/; DIR has its headers and libraries
#                                       (tests/real/aarch64.sh fills one)
#   CUDA_HOME=DIR                       where NVIDIA's toolkit is, for the ABI lint alone (the build needs none)

MODE ?= release
CROSS ?=
CROSS_CPU := $(firstword $(subst -, ,$(CROSS)))
B := build$(addprefix -,$(CROSS_CPU))$(addprefix -,$(filter-out release,$(MODE)))
PREFIX ?= /usr/local
ifneq ($(CROSS),)
SYSROOT_LIB := $(SYSROOT)/usr/lib/$(CROSS:%-=%)
# The compiler would take its own C library first.
CC := $(CROSS)gcc $(if $(SYSROOT),--sysroot=$(SYSROOT) -B$(SYSROOT_LIB)/ -L$(SYSROOT_LIB))
AR := $(CROSS)ar
LD := $(CROSS)ld
RUN := qemu-$(CROSS_CPU)-static $(if $(SYSROOT),-L $(SYSROOT))
else
SYSROOT :=
CC ?= cc
endif
TARGET := $(shell $(CC) -dumpmachine 2>/dev/null)
CUDA_HOME ?= /usr/local/cuda
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(patsubst $(B)/%,%,$(2))')

.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all

# ---- flags -----------------------------------------------------------------------------------------------------------
MODE_release := -O2 -DNDEBUG
MODE_debug   := -O1 -DGP_DEBUG
MODE_asan    := -O1 -DGP_DEBUG -fsanitize=address,undefined -fno-sanitize-recover=undefined
MODE_tsan    := -O1 -DNDEBUG -DGP_TSAN -fsanitize=thread
MODE_cov     := -O0 --coverage -DGP_DEBUG
ifeq ($(filter $(MODE),release debug asan tsan cov),)
$(error MODE=$(MODE): must be release, debug, asan, tsan or cov)
endif

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wundef -Werror=implicit-function-declaration
ALL_CFLAGS := -std=gnu11 -D_GNU_SOURCE= -g -fno-omit-frame-pointer $(MODE_$(MODE)) $(WARN) $(CFLAGS)
ALL_LDFLAGS := $(filter -fsanitize% --coverage,$(MODE_$(MODE))) $(LDFLAGS)
# What is loaded into somebody's process: hidden symbols, nothing undefined, all relocations done at load.
TARGET_CFLAGS := $(ALL_CFLAGS) -fPIC -fvisibility=hidden -ftls-model=initial-exec -Iinclude -Icore -Isrc -include core/base/glibc.h
TOOL_CFLAGS := $(ALL_CFLAGS) -Iinclude -Icore -Itools
TEST_CFLAGS := $(ALL_CFLAGS) -Iinclude -Icore -Isrc -Itools -Itests

# Changed flags rebuild: the stamp's contents are the flags.
STAMP := $(B)/flags
FLAGS_NOW := $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)
$(shell mkdir -p $(B); [ "$$(cat $(STAMP) 2>/dev/null)" = '$(FLAGS_NOW)' ] || printf '%s' '$(FLAGS_NOW)' > $(STAMP))

# Before glibc 2.34 what is loaded into programs finds these functions in libraries of their own (core/base/glibc.h).  Newer ones
# have them as empty files.
OLD_GLIBC := -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state

# ---- sources: found, never listed ------------------------------------------------------------------------------------
# What libgpuprof.so and the command share, libgpuprof.so alone, its preload form, and the command.
CORE_SRC   := $(wildcard core/*/*.c)
TARGET_SRC := $(filter-out src/source/shim/%,$(wildcard src/*/*.c src/*/*/*.c))
SHIM_SRC   := $(wildcard src/source/shim/*.c)
TOOL_SRC   := $(wildcard tools/*.c tools/*/*.c tools/*/*/*.c)
CORE_OBJ   := $(CORE_SRC:%.c=$(B)/obj/%.o)
TARGET_OBJ := $(TARGET_SRC:%.c=$(B)/obj/%.o)
SHIM_OBJ   := $(SHIM_SRC:%.c=$(B)/obj/%.o)
TOOL_OBJ   := $(TOOL_SRC:%.c=$(B)/obj/%.o)
# Messages of pprof's schema, made by protoc-c.
PROFILE_PB := $(B)/gen/profile.pb-c
TOOL_OBJ   += $(PROFILE_PB:$(B)/%=$(B)/obj/%).o
# The writer of Arrow's format (third-party/nanoarrow/README.md).
NANOARROW := third-party/nanoarrow
TOOL_OBJ   += $(patsubst %.c,$(B)/obj/%.o,$(wildcard $(NANOARROW)/src/nanoarrow/*/*.c $(NANOARROW)/thirdparty/flatcc/src/runtime/*.c))

LIB  := $(B)/lib/libgpuprof.so
SHIM := $(B)/lib/libgpuprof-shim.so
BIN  := $(B)/bin/gpuprof
CORE := $(B)/libcore.a
include sim/sim.mk
EXAMPLES := $(patsubst examples/%.c,$(B)/examples/%,$(wildcard examples/*.c))
MAN := $(B)/man/gpuprof.1
COMPLETIONS := $(patsubst %,$(B)/completion/%,bash zsh fish)

TOOL_LIBS := $(shell $(if $(CROSS),false) pkg-config --libs jansson ncursesw libzstd libdw libelf sqlite3 libprotobuf-c zlib libbpf libmicrohttpd 2>/dev/null || echo -ljansson -lncursesw -ltinfo -lzstd -ldw -lelf -lsqlite3 -lprotobuf-c -lz -lbpf -lmicrohttpd) -l:libiberty.a -ldl -lpthread -lm

.PHONY: all lib tool sim examples man help
all: lib tool sim examples man ## build everything that a person runs
lib: $(LIB) $(SHIM) ## the libraries that are loaded into programs
tool: $(BIN) ## the command
sim: $(SIM) ## the simulated GPU
examples: $(EXAMPLES) ## the programs in examples/
man: $(MAN) $(COMPLETIONS) ## the manual page and the shells' completions

help: ## this list
	@awk -F ':.*## ' '/^[a-z_.-]+:.*## /{printf "  %-21s %s\n", $$1, $$2}' $(filter %.mk Makefile,$(MAKEFILE_LIST))

# ---- objects ---------------------------------------------------------------------------------------------------------
# A probe's instruction may be replaced by a call that uses the program's stack (src/session/batch.c).  Only x86-64 has a red zone.
NO_RED_ZONE := $(if $(findstring x86_64,$(TARGET)),-mno-red-zone)
$(B)/obj/src/session/batch.o: TARGET_CFLAGS += $(NO_RED_ZONE)

define compile
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(1) -MMD -MP -c $< -o $@
endef

# PyTorch's exception passes through these functions (src/allocator/torch.c).
$(B)/obj/src/allocator/torch.o: TARGET_CFLAGS += -fexceptions
# Preloaded into programs that are not sanitized.  -O2: a stub is a jump, so its caller is libgpuprof.so's caller.
$(B)/obj/src/source/shim/%.o: src/source/shim/%.c core/base/glibc.h $(STAMP)
	$(call compile,$(filter-out -fsanitize% -fno-sanitize% --coverage,$(TARGET_CFLAGS)) -DGP_OWN_DLSYM -O2)
$(B)/obj/src/%.o: src/%.c core/base/glibc.h $(STAMP)
	$(call compile,$(TARGET_CFLAGS))
$(B)/obj/core/%.o: core/%.c core/base/glibc.h $(STAMP)
	$(call compile,$(filter-out -Isrc,$(TARGET_CFLAGS)))
$(B)/obj/tools/%.o: tools/%.c $(STAMP)
	$(call compile,$(TOOL_CFLAGS))
$(PROFILE_PB).c: tools/convert/export/profile.proto
	$(call say,PROTO,$@)
	@mkdir -p $(@D)
	$(Q)protoc-c -Itools/convert/export --c_out=$(@D) $< 2>$(@D)/protoc.log || { cat $(@D)/protoc.log >&2; exit 1; }
$(PROFILE_PB).h: $(PROFILE_PB).c ;
$(B)/obj/gen/%.o: $(B)/gen/%.c $(STAMP)
	$(call compile,$(ALL_CFLAGS) -I$(B)/gen)
PROFILE_USERS := $(B)/obj/tools/convert/export/pprof.o $(B)/obj/tools/read/recording/frompprof.o
$(PROFILE_USERS): TOOL_CFLAGS += -I$(B)/gen
$(PROFILE_USERS): | $(PROFILE_PB).h
NANOARROW_INCLUDES := -isystem $(NANOARROW)/src -isystem $(NANOARROW)/thirdparty/flatcc/include
# Not ours: its warnings are not looked at, nor which lines ran.  -O2: with less, functions that nobody calls want others that
# are not there.
$(B)/obj/third-party/%.o: third-party/%.c $(STAMP)
	$(call compile,$(filter-out -W% --coverage,$(ALL_CFLAGS)) -O2 -w $(NANOARROW_INCLUDES))
$(B)/obj/tools/convert/export/arrowfile.o: TOOL_CFLAGS += $(NANOARROW_INCLUDES)
$(B)/obj/tests/%.o: tests/%.c $(STAMP)
	$(call compile,$(TEST_CFLAGS))

comma := ,
# The packer that the library carries gets no memory but what it is given, and no hooks of a zstd that the program has.  What writes
# the counts of MODE=cov needs memory.
ZSTD_ALONE := $(if $(filter cov,$(MODE)),,-Wl,--defsym=malloc=gp_file_no_memory -Wl,--defsym=calloc=gp_file_no_memory -Wl,--defsym=free=gp_file_no_free) \
  -Wl,--defsym=ZSTD_trace_compress_begin=gp_file_no_memory -Wl,--defsym=ZSTD_trace_compress_end=gp_file_no_free \
  $(if $(findstring aarch64,$(TARGET)),-Wl$(comma)--defsym=__stack_chk_guard=gp_glibc_canary)

# ---- products --------------------------------------------------------------------------------------------------------
# Libraries are linked aside and moved into place: a program that runs keeps the one that it mapped.
$(LIB): $(TARGET_OBJ) $(CORE) src/inject/libgpuprof.map
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libgpuprof.so -Wl,--version-script=src/inject/libgpuprof.map $(if $(findstring -fsanitize,$(ALL_LDFLAGS)),,-Wl$(comma)-z$(comma)defs) -Wl,-Bsymbolic-functions -Wl,-z,now -Wl,-z,nodelete -o $@.new $(TARGET_OBJ) -Wl,--whole-archive $(CORE) -Wl,--no-whole-archive $(ZSTD_ALONE) -l:libzstd.a $(OLD_GLIBC)
	$(Q)mv -f $@.new $@

# In front of programs (LD_PRELOAD): what it jumps to is the very copy of libgpuprof.so that lies beside it.
$(SHIM): $(SHIM_OBJ) src/source/shim/libgpuprof-shim.map $(LIB)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,-soname,libgpuprof-shim.so -Wl,--version-script=src/source/shim/libgpuprof-shim.map -Wl,-rpath,'$$ORIGIN' -Wl,--enable-new-dtags -Wl,-z,now -Wl,-z,nodelete -Wl,-z,initfirst -o $@.new $(SHIM_OBJ) -L$(@D) -lgpuprof $(OLD_GLIBC)
	$(Q)mv -f $@.new $@

$(CORE): $(CORE_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@; $(AR) rcs $@ $^
# Archives for tests: the same objects, so that a test can reach hidden functions.
$(B)/libtarget.a: $(TARGET_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@; $(AR) rcs $@ $^
$(B)/libtools.a: $(filter-out $(B)/obj/tools/main.o,$(TOOL_OBJ))
	$(call say,AR,$@)
	$(Q)rm -f $@; $(AR) rcs $@ $^

$(BIN): $(TOOL_OBJ) $(CORE)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib/gpuprof/bundled' -o $@ $(TOOL_OBJ) $(CORE) $(TOOL_LIBS)

# The command writes its manual page and the completion scripts from the tables of its options.
$(MAN): $(BIN)
	$(call say,MAN,$@)
	@mkdir -p $(@D)
	$(Q)$(RUN) $(BIN) help --man > $@
$(COMPLETIONS): $(B)/completion/%: $(BIN)
	$(call say,COMPL,$@)
	@mkdir -p $(@D)
	$(Q)$(RUN) $(BIN) completion $* > $@

# Programs for the simulated GPU: driver API with -lcuda, runtime API (sources named *_rt.c) with -lcudart too, and with
# the static runtime alone (*_srt.c).
PROGRAM_CFLAGS = $(filter-out -fsanitize% -fno-sanitize% --coverage,$(ALL_CFLAGS)) -Isim/include -Iinclude
PROGRAM_LIBS = $(if $(filter %_srt,$*),-lcudart_static,$(if $(filter %_rt,$*),-lcudart) -lcuda) -lpthread -lm -ldl
define program
	$(call say,PROG,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PROGRAM_CFLAGS) -MMD -MP -o $@ $< -L$(SIMD) $(PROGRAM_LIBS) -Wl,--allow-shlib-undefined
endef
$(B)/examples/%: examples/%.c $(STAMP) | $(SIM)
	$(program)
$(B)/tests/programs/%: tests/programs/%.c $(STAMP) | $(SIM)
	$(program)

include bpf/bpf.mk
include tools/show/page/html.mk
include tests/tests.mk
include docs/pictures.mk
include deploy/package.mk

-include $(shell find $(B) -path $(B)/real -prune -o -type f -name '*.d' -print 2>/dev/null)

.PHONY: clean
clean: ## remove every build tree
	$(Q)rm -rf build build-debug build-asan build-tsan build-cov build-aarch64

# ---- what people type ------------------------------------------------------------------------------------------------
JOBS := -j$(shell nproc)
# With nothing installed yet, the probes at the top of this file answer wrong: build in a second make.
again = +$(Q)$(MAKE) --no-print-directory $(JOBS)

.PHONY: needs-build needs-check needs-all needs-bench demo check check-all check-real mutate bench install uninstall gpu-bundle check-gpu findings image chart size format compile_commands.json
needs-build: ## install the packages to build with, as far as they are missing
	$(Q)deploy/needs.sh build
needs-check: ## ... and those to check with
	$(Q)deploy/needs.sh check
needs-all: ## ... and those of check-all and the GPU bundle
	$(Q)deploy/needs.sh all
needs-bench: ## ... and those of the benches and their peers
	$(Q)deploy/needs.sh bench

demo: needs-build ## build, then watch a simulated training run live
	$(again) all
	$(Q)examples/demo.sh $(B)

check: needs-check ## build and run the tests of every command and promise (10 minutes with the build); what CI runs; ends with "N passed, N failed, N skipped"
	$(again) all unit integration programs testtools torture tiny
	$(Q)tests/check

check-all: needs-all ## the same in full, with sanitizers, QEMU, a browser, Prometheus and the model (45 minutes); for releases
	$(again) all unit integration programs testtools torture tiny benches
	$(again) MODE=asan unit fuzz
	$(again) MODE=tsan torture
	$(Q)tests/check all

mutate: needs-check ## change the code at N=60 random points, and show which changes no test notices (SEED=, DIR=, JOBS=)
	$(Q)tests/mutate/mutate.py $(foreach v,N SEED DIR BUDGET JOBS PATCH,$(if $($v),$v=$($v)))

bench: needs-bench ## measure against named peers, in one run; its last line names the missing ones
	$(again) all benches
	$(Q)tests/bench/run $(B)

gpu-bundle: needs-all ## gather what a GPU machine needs in build/gpu-bundle
	$(again) all programs benches
	$(Q)tests/gpu/bundle.sh $(B)

check-real: all ## run programs of the package indexes on the simulated GPU (NAME="torch-2.7 jax-cuda13 ..", GPUPROF_REAL=DIR); tens of GB
	$(Q)tests/real/check $(B) $(NAME)

check-gpu: ## on a machine with a GPU: everything under tests/gpu; 77 without one
	$(Q)tests/gpu/run.sh

findings: ## run what surprised us in other libraries and formats, and say what changed; needs the network
	$(Q)findings/run

image: ## build the agent's container image with docker, podman or buildah (docs/containers.md)
	$(Q)deploy/container/build

chart: ## pack the Helm chart of the agent in build/chart
	$(Q)deploy/helm/pack $(B)/chart

compile_commands.json: ## what clangd and other readers of C ask for
	$(Q)$(MAKE) -nB V=1 all unit integration torture programs | deploy/compile-commands >$@

size: ## how large the tree is
	$(Q)tests/lint/size

format: ## clang-format every C file
	$(Q)find core src sim tools include examples tests -name '*.[ch]' | xargs clang-format -i

VERSION = $(shell awk '/define GPUPROF_VERSION_/ {v = v "." $$3} END {print substr(v, 2)}' include/gpuprof/gpuprof.h)
install: all ## install under PREFIX
	$(Q)deploy/install.sh install $(B) '$(PREFIX)' '$(DESTDIR)' $(VERSION)
uninstall: ## remove exactly what `make install` put under PREFIX
	$(Q)deploy/install.sh uninstall $(B) '$(PREFIX)' '$(DESTDIR)'
