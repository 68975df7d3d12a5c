/* SPDX-License-Identifier: MIT
 *
 * leakcorpus.h: recordings of programs that leak and of programs that do not, drawn from a seed.  A row of the table is a
 * shape of a program: how its steps show, what it keeps, what else it does, and how it ends.  The seed draws sizes, counts,
 * times and the order of things.  unit/test_leak_corpus counts what the analysis says of them, and
 * docs/benchmarks.md has the numbers.
 */
#ifndef GP_TEST_LIB_LEAKCORPUS_H
#define GP_TEST_LIB_LEAKCORPUS_H

#include <lib/recmake.h>

struct leak_program {
    char name[64];
    bool is_leaking;
};

struct leak_truth {
    uint32_t sites[2]; /* that leak; 0: none */
    double bytes_per_step;
};

/* The number of programs; all of them are different shapes. */
uint32_t leak_corpus_count(void);
struct leak_program leak_corpus_program(uint32_t i);
/* The caller frees the recording with gp_recording_free. */
struct gp_recording *leak_corpus_make(uint32_t i, uint64_t seed, struct leak_truth *truth);

#endif
