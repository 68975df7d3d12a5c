# SPDX-License-Identifier: MIT
# How tests are built and found.  One binary per source, found by wildcard:
#   unit/test_X.c        Criterion, linked with the target's and the tools' objects
#   integration/test_X.c Criterion, spawns programs under the library and the simulated GPU
#   torture/X.c          plain programs for races (TSan): MODE=tsan; print "N passed, N failed"
#   programs/X.c         CUDA programs (X_rt.c: runtime API), run by integration tests
#   bench/X.c            benches: TSV on stdout

UNIT        := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/unit/test_*.c))
INTEGRATION := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/integration/test_*.c))
TORTURE     := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/torture/*.c))
PROGRAMS    := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/programs/*.c))
BENCHES     := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/bench/*.c))
TESTLIB_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/lib/*.c))

$(B)/tests/unit/% $(B)/tests/integration/%: TESTLINK = -lcriterion
define testprogram
	$(call say,TEST,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(filter %.a,$^) $(TESTLINK) $(TOOL_LIBS) -lm
endef
# These run the command itself.
$(B)/tests/unit/test_cli $(B)/tests/unit/test_cli_run $(B)/tests/unit/test_top_tmux $(INTEGRATION): | $(BIN) $(LIB) $(SIM)
$(B)/tests/unit/%: $(B)/obj/tests/unit/%.o $(TESTLIB_OBJ) $(B)/libtarget.a $(B)/libtools.a
	$(testprogram)
$(B)/tests/integration/%: $(B)/obj/tests/integration/%.o $(TESTLIB_OBJ) $(B)/libtools.a $(B)/libtarget.a
	$(testprogram)
$(B)/tests/bench/%: $(B)/obj/tests/bench/%.o $(TESTLIB_OBJ) $(B)/libtarget.a $(B)/libtools.a
	$(testprogram)

# Torture programs compile the data structure themselves, with its test points open.
TORTURE_SRC := $(wildcard src/ds/*.c)
$(B)/tests/torture/%: tests/torture/%.c $(TORTURE_SRC) $(STAMP)
	$(call say,TORT,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CFLAGS) $(ALL_LDFLAGS) -DGP_TESTPOINTS -MMD -MP -o $@ $< $(TORTURE_SRC) -lpthread -lm

.PHONY: unit integration torture programs benches
unit: $(UNIT)
integration: $(INTEGRATION)
torture: $(TORTURE)
programs: $(PROGRAMS)
benches: $(BENCHES)

# Fuzz targets: linked with a main that replays files, so that any compiler runs the corpus; `make fuzzers` links libFuzzer instead.
FUZZ := $(patsubst tests/fuzz/%.c,$(B)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,$(B)/fuzzers/%,$(wildcard tests/fuzz/fuzz_*.c))
$(B)/tests/fuzz/%: tests/fuzz/%.c $(B)/obj/tests/lib/session.o $(B)/libtools.a $(B)/libtarget.a $(STAMP)
	$(call say,FUZZ,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CFLAGS) $(ALL_LDFLAGS) -DGP_FUZZ_REPLAY -MMD -MP -o $@ $< $(filter %.o,$^) $(filter %.a,$^) $(TOOL_LIBS)
$(B)/fuzzers/%: tests/fuzz/fuzz_%.c tests/lib/session.c $(wildcard tools/collect/*.c tools/write/*.c) $(STAMP)
	@mkdir -p $(@D)
	$(Q)clang $(filter-out $(MODE_$(MODE)),$(TEST_CFLAGS)) -O1 -fsanitize=fuzzer,address,undefined -o $@ $(filter %.c,$^) $(TOOL_LIBS)

.PHONY: fuzz fuzzers testtools
fuzz: $(FUZZ)
fuzzers: $(FUZZERS) ## libFuzzer targets (clang): build/fuzzers/NAME CORPUS
# Libraries that tests put in front of a program to make it fail.
PRELOADS := $(patsubst tests/lib/preload/%.c,$(B)/tests/preload/%.so,$(wildcard tests/lib/preload/*.c))
$(B)/tests/preload/%.so: tests/lib/preload/%.c $(STAMP)
	$(call say,SHLIB,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PROGRAM_CFLAGS) -shared -fPIC -o $@ $< -ldl
testtools: $(PRELOADS)
