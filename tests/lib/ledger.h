/* SPDX-License-Identifier: MIT
 *
 * ledger.h: compares the profiler's numbers with the simulated GPU's own account, the ledger.
 *
 * Both are read while the program is held at its documented end, so they describe the same moment. They must be
 * equal to the byte and to the call, with three exceptions:
 *   - The peak of reserved bytes where pools or graphs take part: their reserved size is polled, so a maximum between
 *     two polls is missed, and a pool that shrank counts as large for one more poll while other memory grows.
 *     There profiler <= ledger.
 *   - The peak of imported bytes: the driver is asked for the size of an import a little later, so one that is
 *     closed at once is counted as a call without bytes.  There profiler <= ledger.
 *   - Peaks of a program whose threads allocate and free at the same time.  The profiler counts a block from the end
 *     of its allocation to the start of its free, the driver for a little longer on both sides: so
 *     ledger - slack <= profiler <= ledger, where slack is the most bytes that all calls in flight can have.
 */
#ifndef GP_TEST_LIB_LEDGER_H
#define GP_TEST_LIB_LEDGER_H

#include <jansson.h>
#include <stdbool.h>

#include "lib/spawn.h"

#define LEDGER_DIFF_BYTES 8192

struct ledger_rules {
    bool is_reserved_polled;  /* pools and graphs: the reserved peak is a lower bound */
    bool is_allocated_polled; /* graphs: the memory that they serve is polled too */
    bool is_pool_left;        /* a destroyed pool has blocks: what it reserves is not known, only that it has these */
    long long peak_slack_bytes;
};

/* Collects the differences, one per line. Empty text: equal. */
struct ledger_diff {
    char text[LEDGER_DIFF_BYTES];
    int count;
};

void ledger_diff_add(struct ledger_diff *diff, const char *form, ...) __attribute__((format(printf, 2, 3)));

/* `process` is one element of stat's "processes"; `ledger` a whole ledger. */
void ledger_compare(struct ledger_diff *diff, const json_t *process, const json_t *ledger,
                    const struct ledger_rules *rules);

/* Integer at a path of keys separated by '/', in objects and arrays; `fallback` when absent or not an integer. */
long long json_at(const json_t *root, const char *path, long long fallback);

/* `gpuprof stat --json -p PID`: the process's element (new reference), or NULL with the reason in diff. */
json_t *ledger_stat(struct ledger_diff *diff, pid_t pid);
/* FORM with its `%p` replaced by the pid; NULL with the reason in diff. */
json_t *ledger_load(struct ledger_diff *diff, const char *form, pid_t pid);

/* The whole check. Runs options->argv under the library and the simulator, holds it, compares each of
 * `processes` processes, and releases it. Returns the program's own result for the caller to check and free. */
void check_against_ledger(struct ledger_diff *diff, const struct spawn_options *options, int processes,
                          const struct ledger_rules *rules, struct spawn_result *result);

#endif
