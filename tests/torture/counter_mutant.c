/* SPDX-License-Identifier: MIT
 *
 * counter_mutant.c: the negative control of tests/torture/counter.c. It runs the same counters
 * with one check removed (frees do not see CLOSED) under the same oracle, and passes only if the
 * oracle catches it.
 */
#define GP_COUNTER_MUTANT_OPEN_FREE

/* The real counters are linked too: every torture program links core/base. */
#define gp_counter_new          gp_mutant_new
#define gp_counter_free         gp_mutant_free
#define gp_counter_apply        gp_mutant_apply
#define gp_counter_apply_timed  gp_mutant_apply_timed
#define gp_counter_move         gp_mutant_move
#define gp_counter_putback      gp_mutant_putback
#define gp_counter_first        gp_mutant_first
#define gp_counter_snapshot     gp_mutant_snapshot
#define gp_counter_reset_peaks  gp_mutant_reset_peaks
#define gp_counter_reset_totals gp_mutant_reset_totals
#define gp_counter_watch_begin  gp_mutant_watch_begin
#define gp_counter_watch_read   gp_mutant_watch_read
#define gp_counter_watch_end    gp_mutant_watch_end
#define gp_counter_watch_turn   gp_mutant_watch_turn
#define gp_counter_slow_count   gp_mutant_slow_count
#define gp_counter_check        gp_mutant_check
#define gp_counter_bundle       gp_mutant_bundle
#define gp_counter_shards       gp_mutant_shards
#define gp_counter_used         gp_mutant_used
#define gp_counter_gate         gp_mutant_gate
#define gp_counter_freeze       gp_mutant_freeze
#define gp_counter_thaw         gp_mutant_thaw
#define gp_counter_raises       gp_mutant_raises
#define gp_counter_retract      gp_mutant_retract
#define gp_gate_recharge        gp_mutant_recharge

#include "../../core/base/counter.c"

#include "torture/counter_oracle.h"

/* The mutant is a data race by design. This tests the oracle's verdict, so TSan is silenced
 * here. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_bugs=0";
}

int main(int argc, char **argv)
{
    uint64_t limit_ns = (argc > 1 ? strtoull(argv[1], NULL, 0) : 5) * 1000000000ull;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : gp_clock_ns();
    printf("counter_mutant: seed %llu\n", (unsigned long long)seed);
    unsigned passed = 0, failed = 0;
    for (unsigned p = 0; p < GP_COUNT(oracle_profiles); p++) {
        struct tally tally = {0};
        uint64_t end = gp_clock_ns() + limit_ns / GP_COUNT(oracle_profiles);
        for (uint64_t batch = 0; tally.wrong == 0 && gp_clock_ns() < end; batch++)
            oracle_batch_run(&oracle_profiles[p], 500, seed + batch, &tally);
        printf("  open free, %-26s %s after %llu rounds\n", oracle_profiles[p].name,
               tally.wrong ? "caught" : "not caught", (unsigned long long)tally.rounds);
        *(tally.wrong ? &passed : &failed) += 1;
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
