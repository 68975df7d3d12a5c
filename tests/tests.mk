# SPDX-License-Identifier: MIT
# How tests are built and found.  One binary per source, found by wildcard:
#   unit/FOLDER/test_X.c Criterion, linked with the target's and the tools' objects; FOLDER is that of the product which it
#                        tests, and the binary is unit/test_X
#   integration/test_X.c Criterion, spawns programs under the library and the simulated GPU
#   torture/X.c          plain programs for races, short as they are, long with MODE=tsan; print "N passed, N failed"
#   programs/X.c         CUDA programs (X_rt.c: runtime API), run by integration tests
#   bench/X.c            benches: TSV on stdout

UNIT_SRC    := $(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c)
UNIT        := $(patsubst %.c,$(B)/tests/unit/%,$(notdir $(UNIT_SRC)))
INTEGRATION := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/integration/test_*.c))
TORTURE     := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/torture/*.c))
PROGRAMS    := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/programs/*.c))
BENCHES     := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/bench/*.c))
TINY        := $(patsubst tests/bench/%.c,$(B)/tests/tiny/%,$(wildcard tests/bench/*.c))
TESTLIB_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(filter-out tests/lib/lockcheck.c tests/lib/recsave.c,$(wildcard tests/lib/*.c))) \
    $(B)/tests/librecsave.a
# In an archive: it needs the recorder's writer, whose functions some tests replace.
$(B)/tests/librecsave.a: $(B)/obj/tests/lib/recsave.o
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@; $(AR) rcs $@ $^
# Unit tests alone: it makes a lock slower, which a bench must not be.
LOCKCHECK   := $(B)/obj/tests/lib/lockcheck.o

$(B)/tests/unit/% $(B)/tests/integration/%: TESTLINK = -lcriterion
# It stands in front of libc and the driver, so its symbols must be seen.
$(B)/tests/unit/test_hookslookup: TESTLINK = -lcriterion -rdynamic
# A stand-in for NAME (tests/lib/standin.h) is __wrap_NAME.  Without an object nm would read a.out.
standins = $$(echo $(filter $(B)/obj/tests/unit/%.o $(B)/obj/tests/integration/%.o,$^) | xargs -r $(CROSS)nm -g --defined-only | sed -n 's/.* __wrap_/-Wl,--wrap=/p')
define testprogram
	$(call say,TEST,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) $(standins) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(filter %.a,$^) $(TESTLINK) $(TOOL_LIBS) -lm
endef
# These run the command itself.
$(B)/tests/unit/test_cli $(B)/tests/unit/test_cli_run $(B)/tests/unit/test_fit $(B)/tests/unit/test_phases $(B)/tests/unit/test_cli_export $(B)/tests/unit/test_cli_leaks $(B)/tests/unit/test_cli_cdi $(B)/tests/unit/test_sites $(B)/tests/unit/test_top_tmux $(B)/tests/unit/test_replay_run $(B)/tests/unit/test_analyze_report $(INTEGRATION): | $(BIN) $(LIB) $(SHIM) $(SIM)
$(foreach source,$(UNIT_SRC),$(eval $(B)/tests/unit/$(basename $(notdir $(source))): $(B)/obj/$(source:.c=.o)))
$(UNIT): $(LOCKCHECK) $(TESTLIB_OBJ) $(B)/libtarget.a $(B)/libtools.a $(CORE)
	$(testprogram)
$(B)/tests/integration/%: $(B)/obj/tests/integration/%.o $(TESTLIB_OBJ) $(B)/libtools.a $(B)/libtarget.a $(CORE)
	$(testprogram)
$(B)/tests/bench/%: $(B)/obj/tests/bench/%.o $(TESTLIB_OBJ) $(B)/libtarget.a $(B)/libtools.a $(CORE)
	$(testprogram)
# The same with hardly any repetitions, for `make check` (tests/bench/tiny.sh).
$(B)/tests/tiny/%: $(B)/obj/tests/tiny/%.o $(TESTLIB_OBJ) $(B)/libtarget.a $(B)/libtools.a $(CORE)
	$(testprogram)
$(B)/obj/tests/tiny/%.o: tests/bench/%.c $(STAMP)
	$(call compile,$(TEST_CFLAGS) -DBENCH_TINY)
$(B)/tests/tiny/%.so: $(B)/tests/bench/%.so
	@mkdir -p $(@D)
	$(Q)cp $< $@

# Torture programs compile the data structure themselves, with its test points open; those of the cache the cache too.
TORTURE_SRC := $(foreach f,counter map maplevel ring span kept loader,core/base/$f.c) core/record/order.c
TORTURE_CACHE := $(B)/tests/torture/cache $(B)/tests/torture/cache_mutant
TORTURE_CACHE_SRC := $(wildcard core/cache/*.c) core/base/lock.c core/base/gauge.c tests/lib/fakedev.c tests/lib/cachecheck.c
$(TORTURE_CACHE): TORTURE_MORE = $(TORTURE_CACHE_SRC)
$(TORTURE_CACHE): $(TORTURE_CACHE_SRC)
# Those of the call sites make up their stacks themselves; the mutant has its own live.c.
TORTURE_SITE_SRC := src/stack/site.c src/stack/names.c core/base/lock.c
$(B)/tests/torture/site: TORTURE_MORE = $(TORTURE_SITE_SRC) src/stack/live.c
$(B)/tests/torture/site_mutant: TORTURE_MORE = $(TORTURE_SITE_SRC)
$(B)/tests/torture/switch: TORTURE_MORE = $(TORTURE_SITE_SRC) src/stack/live.c
# Its mutant has its own site.c.
$(B)/tests/torture/switch_mutant: TORTURE_MORE = src/stack/names.c src/stack/live.c core/base/lock.c
$(addprefix $(B)/tests/torture/,site site_mutant switch switch_mutant): $(wildcard src/stack/*.[ch]) core/base/lock.c
# That of the batches compiles batch.c in, with another probe.
TORTURE_BATCH_SRC := core/record/ringread.c core/base/text.c core/base/lock.c
$(B)/tests/torture/batch: TORTURE_MORE = $(TORTURE_BATCH_SRC)
$(B)/tests/torture/batch: src/session/batch.c $(TORTURE_BATCH_SRC)
# Those of the frameworks have stand-ins for PyTorch's libraries; the mutant has its own owner.c.
TORTURE_FRAMEWORK_SRC := src/stack/object.c core/base/known.c src/account/framework/slot.c core/base/image.c core/base/lock.c
TORTURE_FRAMEWORK_LIBS := $(B)/tests/framework/unsigned-now-fake/libc10_cuda.so $(B)/tests/framework/unsigned-lazy-fake/libc10_cuda.so \
    $(B)/tests/preload/pass.so
$(B)/tests/torture/framework: TORTURE_MORE = $(TORTURE_FRAMEWORK_SRC) src/stack/owner.c -ldl
$(B)/tests/torture/framework_mutant: TORTURE_MORE = $(TORTURE_FRAMEWORK_SRC) -ldl
$(B)/tests/torture/framework $(B)/tests/torture/framework_mutant: $(wildcard src/account/framework/*.[ch] src/stack/*.[ch]) core/base/loader.c \
    tests/torture/framework_oracle.h tests/framework/c10.h \
    | $(TORTURE_FRAMEWORK_LIBS)
# Those of attach have threads that enter and leave; the mutant has its own thread.c.
$(B)/tests/torture/attach: TORTURE_MORE = core/base/thread.c
$(B)/tests/torture/attach $(B)/tests/torture/attach_mutant: core/base/thread.c tests/torture/attach_oracle.h
# Those of the readers of events compile in what writes a framework's events.
TORTURE_READER_SRC := core/base/gauge.c core/record/ringread.c core/base/text.c
TORTURE_READER := $(patsubst %,$(B)/tests/torture/%,reader reader_mutant listen listen_mutant)
$(TORTURE_READER): TORTURE_MORE = $(TORTURE_READER_SRC) $(TORTURE_LISTEN_SRC)
# Of a cache's blocks, in a cache.
$(filter %/listen %/listen_mutant,$(TORTURE_READER)): TORTURE_LISTEN_SRC = $(wildcard core/cache/*.c) core/base/lock.c
$(filter %/listen %/listen_mutant,$(TORTURE_READER)): $(wildcard core/cache/*.c)
$(TORTURE_READER): $(TORTURE_READER_SRC) src/account/event.c src/account/framework.c src/account/cached.c $(wildcard src/account/*.h)
$(B)/tests/torture/%: tests/torture/%.c $(TORTURE_SRC) $(wildcard tests/torture/*.h) $(STAMP)
	$(call say,TORT,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CFLAGS) $(ALL_LDFLAGS) -DGP_TESTPOINTS -MMD -MP -o $@ $< $(TORTURE_SRC) $(TORTURE_MORE) -lpthread -lm

# cub's caching allocator, a peer of bench_cache: only where NVIDIA's toolkit brings its header and there is a C++ compiler.
CUB_HEADER := $(wildcard $(CUDA_HOME)/include/cccl/cub/util_allocator.cuh)
CUB_PEER := $(if $(and $(CUB_HEADER),$(shell command -v $(CXX))),$(B)/tests/bench/cub.so)
# A driver and a CUPTI whose calls do nothing.
IDLE_DRIVER := $(B)/tests/bench/idle/libcuda.so.1
$(IDLE_DRIVER): tests/bench/peer/idle_driver.c src/source/abi.h $(STAMP)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -fsanitize% -fno-sanitize% --coverage,$(TEST_CFLAGS)) -fPIC -fvisibility=hidden -shared -Wl,-soname,libcuda.so.1 -o $@ $< -ldl
	$(Q)ln -sf libcuda.so.1 $(@D)/libcupti.so.13
$(B)/tests/bench/bench_budget $(B)/tests/tiny/bench_budget: | $(IDLE_DRIVER) $(LIB) $(SHIM)
# Our cache with counters that count nothing.
CACHE_BARE := $(B)/tests/bench/cache_bare.so
$(CACHE_BARE): tests/bench/peer/cache_bare.c $(wildcard core/cache/*.[ch] tests/bench/*.h tests/bench/peer/*.h) core/base/counter.h core/base/lock.c $(STAMP)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CFLAGS) $(ALL_LDFLAGS) -include tests/bench/peer/no_gauges.h -fPIC -shared -Wl,-Bsymbolic -o $@ $(filter %.c,$^)
$(B)/tests/bench/cub.so: tests/bench/cxx/bench_cub.cc tests/bench/cache_load.h
	$(call say,CXX,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) -O2 -fPIC -shared -Wl,-Bsymbolic -I$(CUDA_HOME)/include -I$(CUDA_HOME)/include/cccl -o $@ $<

# The programs of the GPU bundle that need no toolkit where they run.
FIRST := $(B)/tests/gpu/first $(B)/tests/gpu/libfirst_ctor.so
$(B)/tests/gpu/first: tests/gpu/first.c $(STAMP) | $(SIM)
	$(program)
$(B)/tests/gpu/libfirst_ctor.so: tests/gpu/first_ctor.c $(STAMP) | $(SIM)
	$(call say,SHLIB,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PROGRAM_CFLAGS) -shared -fPIC -o $@ $< -L$(SIMD) -lcuda

.PHONY: unit integration torture programs benches tiny
unit: $(UNIT) ## build the unit tests
integration: $(INTEGRATION) ## build the integration tests
torture: $(TORTURE) ## build the torture tests
programs: $(PROGRAMS) $(FIRST) ## build the programs that tests start
benches: $(BENCHES) $(CUB_PEER) $(CACHE_BARE) ## build the benches
tiny: $(TINY) $(patsubst $(B)/tests/bench/%,$(B)/tests/tiny/%,$(CUB_PEER) $(CACHE_BARE)) ## build the benches as make check runs them

# Fuzz targets: linked with a main that replays files, so that any compiler runs the corpus; `make fuzzers` links libFuzzer instead.
FUZZ := $(patsubst tests/fuzz/%.c,$(B)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,$(B)/fuzzers/%,$(wildcard tests/fuzz/fuzz_*.c))
$(B)/tests/fuzz/%: tests/fuzz/%.c $(TESTLIB_OBJ) $(B)/libtools.a $(B)/libtarget.a $(CORE) $(STAMP)
	$(call say,FUZZ,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CFLAGS) $(ALL_LDFLAGS) -DGP_FUZZ_REPLAY -MMD -MP -o $@ $< $(filter %.o,$^) $(filter %.a,$^) $(TOOL_LIBS)
# The writers of statistics and events; what they call beyond these comes from the archive, without the sanitizers.
$(B)/fuzzers/session: tests/lib/session.c $(CORE_SRC) $(wildcard tools/read/collect/*.c) tools/common/values.c $(foreach f,eventtext forecast names oomreport ownerbill statjson stattable summary,tools/show/text/$f.c) $(B)/libtools.a $(CORE)
$(B)/fuzzers/cfi: src/stack/cfi.c
$(B)/fuzzers/cache: $(wildcard core/cache/*.c) $(foreach f,counter map maplevel ring span lock kept loader,core/base/$f.c) core/base/gauge.c $(foreach f,fakedev fakeuse cachemodel cachejudge cachecheck,tests/lib/$f.c)
$(B)/fuzzers/recording $(B)/fuzzers/trace: $(PROFILE_PB).c
$(B)/fuzzers/recording $(B)/fuzzers/trace: TEST_CFLAGS += -I$(B)/gen
$(B)/fuzzers/recording: $(CORE_SRC) $(wildcard tools/read/recording/*.c) tools/read/common/hash.c
$(B)/fuzzers/library: tools/agent/find/candidate.c tools/agent/kernel/probe.c tools/agent/kernel/probeargs.c $(B)/libtools.a $(CORE)
$(B)/fuzzers/library: TEST_CFLAGS += -Ibpf
$(B)/fuzzers/symbol: $(wildcard tools/symbol/*.c) tools/read/common/elfimage.c tools/read/common/foreign.c $(B)/libtools.a $(CORE)
$(B)/fuzzers/pep768: tools/attach/pep768.c $(B)/libtools.a $(B)/libtarget.a $(CORE)
$(B)/fuzzers/trace: tools/convert/replay/trace.c tools/read/common/hash.c $(CORE_SRC) $(wildcard tools/read/recording/*.c)
$(B)/fuzzers/%: tests/fuzz/fuzz_%.c $(STAMP)
	@mkdir -p $(@D)
	$(Q)clang $(filter-out $(MODE_$(MODE)),$(TEST_CFLAGS)) -O1 -fsanitize=fuzzer,address,undefined -o $@ $(filter %.c,$^) $(filter %.a,$^) $(TOOL_LIBS)

.PHONY: fuzz fuzzers testtools
fuzz: $(FUZZ) ## build the fuzz targets, to replay the corpus
fuzzers: $(FUZZERS) ## libFuzzer targets (clang): build/fuzzers/NAME CORPUS
# Libraries that tests put in front of a program to make it fail.
PRELOADS := $(patsubst tests/lib/preload/%.c,$(B)/tests/preload/%.so,$(wildcard tests/lib/preload/*.c))
$(B)/tests/preload/%.so: tests/lib/preload/%.c $(STAMP)
	$(call say,SHLIB,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PROGRAM_CFLAGS) -shared -fPIC -o $@ $< $(PRELOAD_LIBS) -ldl
$(B)/tests/preload/plugged.so $(B)/tests/preload/xla_cuda_plugin.so: PRELOAD_LIBS = -L$(SIMD) -lcuda
$(B)/tests/preload/plugged.so $(B)/tests/preload/xla_cuda_plugin.so: | $(SIM)
$(B)/tests/preload/variables_needed.so: $(B)/tests/preload/variables.so
$(B)/tests/preload/variables_needed.so: PRELOAD_LIBS = -L$(@D) -l:variables.so -Wl,-rpath,'$$ORIGIN'
# Stand-ins for two libraries of PyTorch, in one folder for each way to build and link them: the names' age, and words
# that the rule looks for: now or lazy, norelro, noplt, rt (cudaMalloc), early (calls the program while it is relocated), fake
# (no driver).
FRAMEWORK_LINKS := now lazy now-norelro lazy-norelro now-noplt lazy-noplt now-norelro-noplt lazy-norelro-noplt now-rt now-early \
    now-norelro-early lazy-early now-fake lazy-fake
FRAMEWORK := $(patsubst %,$(B)/tests/framework/%/libc10_cuda.so,$(addprefix unsigned-,$(FRAMEWORK_LINKS)) \
    $(foreach age,old signed,$(age)-now $(age)-lazy-norelro))
frameworkword = $(filter $1,$(subst -, ,$*))
frameworklink = -shared -fPIC -fexceptions -Itests -Wl,-soname,$(@F) -DSPELLING_$(firstword $(subst -, ,$*)) \
    -Wl,-z,$(if $(call frameworkword,now),now,lazy) -Wl,-z,$(if $(call frameworkword,norelro),norelro,relro) \
    $(if $(call frameworkword,noplt),-fno-plt) $(if $(call frameworkword,rt),-DRUNTIME) $(if $(call frameworkword,early),-DEARLY) \
    $(if $(call frameworkword,fake),-DFAKE)
$(B)/tests/framework/%/libc10.so: tests/framework/c10.c $(STAMP)
	$(call say,SHLIB,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PROGRAM_CFLAGS) -MMD -MP $(frameworklink) -o $@ $<
$(B)/tests/framework/%/libc10_cuda.so: tests/framework/c10_cuda.c $(B)/tests/framework/%/libc10.so $(STAMP) | $(SIM)
	$(call say,SHLIB,$@)
	$(Q)$(CC) $(PROGRAM_CFLAGS) -MMD -MP $(frameworklink) -o $@ $< -L$(@D) -lc10 -L$(SIMD) $(if $(call frameworkword,rt),-lcudart) $(if $(call frameworkword,fake),,-lcuda) \
	    -lpthread -Wl,-rpath,'$$ORIGIN',--allow-shlib-undefined
FRAMEWORK_POOLS := $(addprefix $(B)/tests/framework/unsigned-now/,libtorch_cuda.so libtorch_python.so)
$(FRAMEWORK_POOLS): tests/framework/torch_cuda.c $(B)/tests/framework/unsigned-now/libc10_cuda.so $(STAMP)
	$(call say,SHLIB,$@)
	$(Q)$(CC) $(PROGRAM_CFLAGS) -MMD -MP -shared -fPIC -fexceptions -Itests -Wl,-soname,$(@F),-z,now,-z,relro $(if $(findstring python,$@),-DPYTHON) \
	    -o $@ $< -L$(@D) -lc10_cuda -Wl,-rpath,'$$ORIGIN',--allow-shlib-undefined
ENGINE := $(B)/tests/framework/libengine.so
$(ENGINE): tests/framework/engine.c $(STAMP) | $(SIM)
	$(call say,SHLIB,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PROGRAM_CFLAGS) -shared -fPIC -o $@ $< -L$(SIMD) -Wl,--exclude-libs,ALL -lcudart_static -ldl -lpthread
# They load libraries.
$(B)/tests/programs/loader_cross: | $(B)/tests/preload/constructor.so $(B)/tests/preload/pause.so
$(B)/tests/programs/loader_busy $(B)/tests/programs/loader_first: | $(B)/tests/preload/constructor.so
$(B)/tests/programs/plugged: | $(B)/tests/preload/plugged.so $(B)/tests/preload/plugged_alone.so
# Not linked to the driver, whose functions would be what the loader finds for their names.
$(B)/tests/programs/variables $(B)/tests/programs/variables_own $(B)/tests/programs/variables_linked: PROGRAM_LIBS = -ldl
$(B)/tests/programs/variables_own: PROGRAM_CFLAGS += -rdynamic
$(B)/tests/programs/variables_linked: PROGRAM_LIBS = -L$(B)/tests/preload -l:variables.so -ldl -Wl,-rpath,'$$ORIGIN/../preload'
$(B)/tests/programs/variables_linked: | $(B)/tests/preload/variables.so
$(B)/tests/programs/variables: | $(B)/tests/preload/variables.so $(B)/tests/preload/variables_needed.so $(B)/tests/preload/plugged.so
$(B)/tests/programs/jax: | $(B)/tests/preload/xla_cuda_plugin.so
$(B)/tests/programs/framework: PROGRAM_CFLAGS += -fexceptions
$(B)/tests/programs/framework: | $(FRAMEWORK) $(FRAMEWORK_POOLS) $(ENGINE)
$(B)/tests/programs/attach_tsan $(B)/tests/programs/attach_tsan_static: PROGRAM_CFLAGS += $(if $(CROSS),,-fsanitize=thread)
$(B)/tests/programs/attach_tsan_static: PROGRAM_CFLAGS += $(if $(CROSS),,-static-libtsan)
$(B)/tests/programs/attach_tsan $(B)/tests/programs/attach_tsan_static: tests/programs/attach_target.c
$(B)/tests/programs/shim_late: | $(B)/tests/preload/destructor.so $(B)/tests/preload/destructor_too.so
$(B)/tests/integration/test_asking: | $(B)/tests/preload/waits.so $(B)/tests/programs/poll_waits
$(B)/tests/integration/test_owners: | $(B)/tests/preload/takes.so $(B)/tests/programs/owners
# Makes the pages that tests/web opens in a browser.
MKREPORT := $(B)/tests/web/mkreport
$(MKREPORT): $(B)/obj/tests/web/mkreport.o $(B)/libtools.a $(B)/libtarget.a $(CORE)
	$(testprogram)

# The probe is fired from a function that calls nothing: where the kernel makes a call of the probe's nop, the red zone is overwritten.
$(B)/tests/programs/probe_%: PROGRAM_CFLAGS += $(NO_RED_ZONE)
# The programs for another C library, whose files are under ROOT (tests/real/roots.sh), which has no sys/sdt.h, and no
# stand-ins for PyTorch (tests/framework).
ifdef ROOT
ROOT_PROGRAMS := $(patsubst tests/programs/%.c,$(ROOT)/programs/%,$(filter-out %/probe_fire.c %/framework.c %/attach_tsan.c %/attach_tsan_static.c %/variables_linked.c,$(wildcard tests/programs/*.c)))
.PHONY: root-programs
root-programs: $(ROOT_PROGRAMS) ## build the programs that run in roots of other releases
ROOT_LIB := $(ROOT)/usr/lib/$(TARGET)
$(ROOT)/programs/%: PROGRAM_CFLAGS += --sysroot=$(ROOT) -B$(ROOT_LIB)/ -L$(ROOT_LIB)
$(ROOT)/programs/%: tests/programs/%.c $(STAMP) | $(SIM)
	$(program)
endif
# A listener to the library's batches, for tests and benches.
COUNT_BPF := $(B)/tests/bpf/count.bpf.o
$(COUNT_BPF): tests/bpf/count.bpf.c tests/bpf/count.h include/gpuprof/batch.h include/gpuprof/wire.h $(STAMP)
	$(call say,BPF,$@)
	@mkdir -p $(@D)
	$(Q)clang -target bpf -D__TARGET_ARCH_$(BPF_ARCH) -ffreestanding -O2 -g -Wall -Iinclude -Itests -I$(SYSROOT)/usr/include/$(TARGET) -c -o $@ $<
$(B)/tests/integration/test_batch: TESTLINK = -lcriterion -lbpf
$(B)/tests/bench/bench_batch $(B)/tests/tiny/bench_batch: TESTLINK = -lbpf
$(B)/tests/bench/bench_framework $(B)/tests/tiny/bench_framework: TESTLINK = -ldl
$(B)/tests/bench/bench_framework $(B)/tests/tiny/bench_framework: | $(B)/tests/framework/unsigned-now-fake/libc10_cuda.so
# It starts the command.
$(B)/tests/bench/bench_agent $(B)/tests/tiny/bench_agent: TESTLINK = -lbpf
$(B)/tests/bench/bench_agent $(B)/tests/tiny/bench_agent $(B)/tests/tiny/bench_session $(B)/tests/tiny/bench_snapshot: | $(BIN) $(LIB) $(SIM)
$(B)/tests/integration/test_batch $(B)/tests/bench/bench_batch $(B)/tests/tiny/bench_batch: | $(COUNT_BPF)
# Serves metrics of a made-up machine to a real Prometheus.
SERVE := $(B)/tests/metrics/serve
$(SERVE): $(B)/obj/tests/metrics/serve.o $(TESTLIB_OBJ) $(B)/libtools.a $(B)/libtarget.a $(CORE)
	$(testprogram)
# Writes the recordings of a made-up job.
MKRANKS := $(B)/tests/jobs/mkranks
$(MKRANKS): $(B)/obj/tests/jobs/mkranks.o $(TESTLIB_OBJ) $(B)/libtools.a $(B)/libtarget.a $(CORE)
	$(testprogram)
testtools: $(PRELOADS) $(FRAMEWORK) $(MKREPORT) $(MKRANKS) $(SERVE) ## build what tests preload and serve
# Write the rows of the tables themselves, and know how arguments are encoded.
$(B)/obj/tests/integration/test_deaths.o $(B)/obj/tests/integration/test_bpf.o: TEST_CFLAGS += -Ibpf
