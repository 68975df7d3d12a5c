/* SPDX-License-Identifier: MIT
 *
 * catalog.h: one table of all test programs: how each is run and its properties. The accounting, fault and
 * harmlessness tests read it.
 */
#ifndef GP_TEST_LIB_CATALOG_H
#define GP_TEST_LIB_CATALOG_H

#include <criterion/parameterized.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "lib/ledger.h"
#include "lib/spawn.h"

#define CATALOG_ARGS 6

struct catalog_entry {
    const char *name;
    const char *args[CATALOG_ARGS];
    const char *sim;  /* GPUPROF_SIM; NULL for one device of 16 GiB */
    const char *note; /* distinguishes entries of one program */
    int processes;    /* processes that stop at their end, each with a ledger; 0 means 1 */
    int exit_code;
    struct ledger_rules rules;
    bool
        is_heavy; /* takes a second of processor time: a short run has it in the tests of the accounting and the shim */
    bool has_library; /* it loads a library built for this machine: not in a root with another C library */
    int glibc;        /* N: under gpuprof it ends with glibc 2.N and newer alone (docs/limits.md); 0: with each */
    bool has_threads; /* the order of calls differs from run to run: fault scripts by number hit different calls */
};

extern const struct catalog_entry catalog[];
extern const size_t catalog_count;

/* "name note": for messages and test names.  Static buffer. */
const char *catalog_title(const struct catalog_entry *entry);
/* Fills argv (CATALOG_ARGS + 2 entries) and those options that the entry defines. */
void catalog_options(const struct catalog_entry *entry, const char **argv, struct spawn_options *options);

/* For catalog_each: all entries in a full run, those that are not heavy in a short one. */
bool catalog_is_light(const struct catalog_entry *entry);

/* Whether the program can be run: GPUPROF_TEST_ROOT_GLIBC=N says that the root of GPUPROF_TEST_ROOT has glibc 2.N. */
static inline bool catalog_is_runnable(const struct catalog_entry *entry)
{
    const char *glibc = getenv("GPUPROF_TEST_ROOT_GLIBC");
    return getenv("GPUPROF_TEST_ROOT") == NULL ||
           (!entry->has_library && (glibc == NULL || atoi(glibc) >= entry->glibc));
}

/* For ParameterizedTestParameters: the indexes, as int, of the entries that the function selects (NULL: all). */
static inline struct criterion_test_params catalog_each(bool (*is_wanted)(const struct catalog_entry *entry))
{
    int *index = cr_malloc(sizeof(*index) * catalog_count);
    size_t count = 0, i;
    for (i = 0; i < catalog_count; i++)
        if ((is_wanted == NULL || is_wanted(&catalog[i])) && catalog_is_runnable(&catalog[i]))
            index[count++] = (int)i;
    return cr_make_param_array(int, index, count, (void (*)(struct criterion_test_params *))NULL);
}

#endif
