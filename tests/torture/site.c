/* SPDX-License-Identifier: MIT
 *
 * site.c: call sites under many threads. It checks the live numbers against site_oracle.h, and
 * the tables while threads look up new and known stacks with shared frames and names in any
 * order. Usage: site [seconds] [seed].
 */
#include "torture/site_oracle.h"

#include "base/clock.h"

enum { STACKS = 3000 };

static uint32_t x_numbers[STACKS]; /* the number that the first thread received */
static unsigned x_wrong;

static const char *table_string(uint32_t offset)
{
    const char *strings = (const char *)oracle_head + oracle_head->strings_offset;
    return offset < __atomic_load_n(&oracle_head->strings, __ATOMIC_ACQUIRE) ? strings + offset : "?";
}

static bool table_right(unsigned seed, uint32_t id)
{
    const struct gp_wire_site *row = &oracle_rows[id];
    const struct gp_wire_frame *frames =
        (const struct gp_wire_frame *)((const char *)oracle_head + oracle_head->frames_offset) + row->first_frame;
    char function[ORACLE_NAME], file[ORACLE_NAME];
    if (id == 0 || id >= __atomic_load_n(&oracle_head->rows, __ATOMIC_ACQUIRE) || row->frame_count != STACK + 1u ||
        row->kind != GP_KIND_POOL || row->device != seed % 7)
        return false;
    for (unsigned i = 0; i < STACK; i++)
        if (frames[i].pc != oracle_pc(seed, i) || frames[i].type != GP_FRAME_NATIVE)
            return false;
    oracle_name(function, seed + 1, 'f');
    oracle_name(file, seed + 1, 'p');
    return frames[STACK].type == GP_FRAME_PYTHON && frames[STACK].line == seed + 1 &&
           strcmp(table_string(frames[STACK].function), function) == 0 &&
           strcmp(table_string(frames[STACK].file), file) == 0;
}

static void *table_main(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    for (unsigned i = 0; i < 4 * STACKS; i++) {
        /* First the new stacks, in a different order in every thread; then any stacks. */
        unsigned seed = (unsigned)(random_mix(&random) % STACKS);
        uint32_t none = 0;
        oracle_stack_seed = seed;
        oracle_python_seed = seed + 1;
        uint32_t id = gp_site_here((int)(seed % 7), GP_KIND_POOL, true);
        bool first =
            __atomic_compare_exchange_n(&x_numbers[seed], &none, id, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        if (!table_right(seed, id) || (!first && none != id))
            __atomic_fetch_add(&x_wrong, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static unsigned tables(uint64_t seed)
{
    pthread_t threads[THREADS];
    uint32_t before = oracle_head->rows, different = 0;
    for (uintptr_t t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, table_main, (void *)(seed * THREADS + t));
    for (unsigned t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (unsigned i = 0; i < STACKS; i++)
        different += x_numbers[i] != 0;
    /* 97 functions and 97 files, each stored once: the names f0-f9 and p0-p9 have two bytes, the
     * others three, plus the NULs. */
    uint32_t strings = 1 + 2 * (10 * 3 + 87 * 4);
    printf("site: %u stacks, %u rows, %u bytes of names\n", different, oracle_head->rows - before,
           oracle_head->strings);
    return x_wrong + (oracle_head->rows - before != different) + (oracle_head->strings != strings) +
           (oracle_head->lost_rows || oracle_head->lost_frames || oracle_head->lost_strings);
}

/* Adds names until the table is full: then a new frame has no name but keeps its line, and known
 * names stay. */
static unsigned names_full(void)
{
    uint32_t id = 0, wanted = oracle_head->string_limit / 400;
    unsigned seed = 1000000;
    oracle_stack_seed = 0;
    for (; !oracle_head->lost_strings && seed < 1000000 + wanted; seed++) {
        oracle_python_seed = seed;
        id = gp_site_here(1, GP_KIND_LINEAR, true);
    }
    const struct gp_wire_frame *frames =
        (const struct gp_wire_frame *)((const char *)oracle_head + oracle_head->frames_offset);
    const struct gp_wire_frame *frame = &frames[oracle_rows[id].first_frame + STACK];
    unsigned wrong = !oracle_head->lost_strings || frame->line != seed - 1 || (frame->function && frame->file) ||
                     oracle_head->strings > oracle_head->string_limit;
    oracle_python_seed = 18;
    id = gp_site_here(4, GP_KIND_POOL, true);
    frame = &frames[oracle_rows[id].first_frame + STACK];
    return wrong + (strcmp(table_string(frame->function), "f18") != 0);
}

int main(int argc, char **argv)
{
    uint64_t end = gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 8) * 1000000000ull;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : gp_clock_ns();
    unsigned passed = 0, failed = 0;
    printf("site: seed %llu\n", (unsigned long long)seed);
    oracle_start();
    do {
        if (oracle_live(seed++))
            failed++;
        else
            passed++;
    } while (gp_clock_ns() < end);
    printf("site: %llu sums inside the gate, %llu readings of a peak from outside\n", (unsigned long long)oracle_sums,
           (unsigned long long)oracle_taken_looks);
    if (!oracle_sums || !oracle_taken_looks)
        failed++;
    if (tables(seed))
        failed++;
    else
        passed++;
    if (names_full())
        failed++;
    else
        passed++;
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
