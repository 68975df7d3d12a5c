/* SPDX-License-Identifier: MIT
 *
 * switch_oracle.h: what every call site holds while stacks are switched, compared with the blocks
 * themselves.
 *
 * Workers allocate, and free their own and each other's blocks, as account/ does: first the total
 * moves, then the site. Windows (test points) and yields lie between the steps. The main thread
 * switches stacks and corrects "before stacks". In the quiet after it, every site must hold exactly
 * the live blocks that have it, and all sites together the total. Each round is a process of its own,
 * because the first switch happens once in a process.
 */
#ifndef GP_TEST_TORTURE_SWITCH_ORACLE_H
#define GP_TEST_TORTURE_SWITCH_ORACLE_H

#include "base/clock.h"
#include "base/compiler.h"
#include "lib/random.h"
#include "stack/internal.h"
#include "stack/python.h"
#include "stack/stack.h"
#include "torture/yield.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SWITCH_THREADS = 4, SWITCH_DEVICES = 2, SWITCH_SLOTS = 256, SWITCH_TURNS = 60 };

struct switch_block {
    uint32_t site;
    int device;
    int64_t bytes;
};

static struct switch_block *switch_slots[SWITCH_SLOTS]; /* exchanged: the thread that takes one out frees it */
static int64_t switch_total[SWITCH_DEVICES], switch_blocks[SWITCH_DEVICES];
static struct gp_wire_sites *switch_head;
static struct gp_wire_site *switch_rows;
static int switch_end;
static __thread uint64_t switch_state;
static __thread unsigned switch_seed;

static uint64_t switch_random(void)
{
    return random_mix(&switch_state);
}

/* ---- what site.c needs ------------------------------------------------------------------------------------------- */

int gp_native_start(void);
int gp_native_start(void)
{
    return 0;
}

unsigned gp_stack_native(uint64_t *pcs, unsigned room, bool *more)
{
    unsigned depth = switch_seed % 5; /* some stacks cannot be read */
    for (unsigned i = 0; i < depth && i < room; i++)
        pcs[i] = 0x400000 + 64 * switch_seed + i;
    *more = false;
    return depth;
}

bool gp_stack_has_python(bool *more)
{
    (void)more;
    return switch_seed % 2 == 0;
}

unsigned gp_stack_python(struct gp_python_frame *out, unsigned room, bool *more)
{
    static const char name[] = "train";
    *more = false;
    if (!room || switch_seed % 2)
        return 0;
    out[0] = (struct gp_python_frame){1, {name, 5}, {name, 5}, switch_seed};
    return 1;
}

const char *gp_python_note(void)
{
    return NULL;
}

void gp_testpoint(const char *name)
{
    (void)name;
    if (switch_state && switch_random() % 64 == 0)
        torture_yield();
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static void switch_pause(void)
{
    if (switch_random() % 8 == 0)
        torture_yield();
}

static void switch_free(struct switch_block *block)
{
    uint64_t bytes = (uint64_t)block->bytes;
    unsigned device = (unsigned)block->device;
    __atomic_fetch_sub(&switch_total[device], block->bytes, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&switch_blocks[device], 1, __ATOMIC_RELAXED);
    switch_pause();
    if (block->site)
        gp_site_free(block->site, bytes);
    else if (gp_site_is_partial())
        gp_site_plain_free(device, bytes);
    free(block);
}

static struct switch_block *switch_alloc(void)
{
    struct switch_block *block = malloc(sizeof(*block));
    switch_seed = (unsigned)(switch_random() % 40);
    block->device = (int)(switch_random() % SWITCH_DEVICES);
    block->bytes = (int64_t)(switch_random() % 1000 + 1);
    block->site = gp_site_here(block->device, GP_KIND_LINEAR, true);
    switch_pause();
    __atomic_fetch_add(&switch_total[block->device], block->bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&switch_blocks[block->device], 1, __ATOMIC_RELAXED);
    switch_pause();
    if (block->site)
        gp_site_alloc(block->site, (uint64_t)block->bytes);
    else if (gp_site_is_partial())
        gp_site_plain_alloc((unsigned)block->device, (uint64_t)block->bytes);
    return block;
}

static void *switch_work(void *argument)
{
    switch_state = (uint64_t)(uintptr_t)argument | 1;
    while (!__atomic_load_n(&switch_end, __ATOMIC_RELAXED)) {
        struct switch_block **slot = &switch_slots[switch_random() % SWITCH_SLOTS];
        struct switch_block *put = switch_random() % 2 ? switch_alloc() : NULL;
        struct switch_block *got = __atomic_exchange_n(slot, put, __ATOMIC_ACQ_REL);
        if (got)
            switch_free(got);
    }
    return NULL;
}

/* ---- judging, in the quiet --------------------------------------------------------------------------------------- */

static void switch_settle(void)
{
    for (unsigned d = 0; d < SWITCH_DEVICES; d++)
        gp_site_settle(d, __atomic_load_n(&switch_total[d], __ATOMIC_RELAXED),
                       __atomic_load_n(&switch_blocks[d], __ATOMIC_RELAXED));
}

static unsigned switch_judge(void)
{
    static int64_t live[1 << 12], count[1 << 12];
    int64_t plain[SWITCH_DEVICES] = {0}, sum[SWITCH_DEVICES] = {0};
    unsigned wrong = 0;
    memset(live, 0, sizeof live);
    memset(count, 0, sizeof count);
    for (unsigned i = 0; i < SWITCH_SLOTS; i++) {
        const struct switch_block *block = switch_slots[i];
        if (!block)
            continue;
        live[block->site] += block->bytes;
        count[block->site]++;
        if (!block->site)
            plain[block->device] += block->bytes;
    }
    for (uint32_t id = 1; switch_head->row_bytes && id < switch_head->rows; id++) {
        const struct gp_wire_site *row = &switch_rows[id];
        bool before = row->kind == GP_KIND_NONE;
        sum[row->device] += row->live_bytes;
        wrong += row->live_bytes != (before ? plain[row->device] : live[id]);
        wrong += !before && row->live_count != count[id];
    }
    for (unsigned d = 0; switch_head->row_bytes && d < SWITCH_DEVICES; d++)
        wrong += sum[d] != switch_head->devices[d].live_bytes || sum[d] != switch_total[d];
    return wrong;
}

/* Runs the workers while stacks are switched. settles: "before stacks" is corrected meanwhile. */
static void switch_run(uint64_t seed, bool settles)
{
    static const uint32_t modes[] = {0, GP_SITES_NATIVE, 0, GP_SITES_PYTHON, GP_SITES_NATIVE | GP_SITES_PYTHON};
    pthread_t threads[SWITCH_THREADS];
    switch_end = 0;
    for (uintptr_t t = 0; t < SWITCH_THREADS; t++)
        pthread_create(&threads[t], NULL, switch_work, (void *)(uintptr_t)(seed * SWITCH_THREADS + t + 1));
    for (unsigned turn = 0; turn < SWITCH_TURNS; turn++) {
        if (gp_site_switch(switch_head, gp_site_bytes(), modes[switch_random() % GP_COUNT(modes)]) != 0)
            abort();
        if (settles)
            switch_settle();
        usleep((useconds_t)(switch_random() % 200));
    }
    __atomic_store_n(&switch_end, 1, __ATOMIC_RELAXED);
    for (unsigned t = 0; t < SWITCH_THREADS; t++)
        pthread_join(threads[t], NULL);
}

/* In a process of its own. Returns the number of errors. */
static unsigned switch_round(uint64_t seed)
{
    unsigned wrong = 0;
    switch_state = seed | 1;
    switch_head = mmap(NULL, gp_site_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (switch_head == MAP_FAILED)
        abort();
    if (seed % 2 && gp_site_start(switch_head, gp_site_bytes(), GP_SITES_NATIVE) != 0)
        abort();
    /* Beside a load the workers may not have run at all, and "before stacks" is made for a device with memory. */
    do
        switch_run(seed, true);
    while (!switch_total[0] || !switch_total[1]);
    switch_rows = (struct gp_wire_site *)((char *)switch_head + switch_head->rows_offset);
    switch_settle();
    wrong += switch_judge();
    /* Now "before stacks" exists for both devices, and is right without a correction. */
    if (gp_site_switch(NULL, 0, 0) == 0)
        switch_settle();
    switch_run(seed + 1, false);
    return wrong + switch_judge();
}

/* The errors of one round, at most 200; 255: its process did not come to the end. */
static unsigned switch_fork(uint64_t seed)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        unsigned wrong = switch_round(seed);
        _exit(wrong < 200 ? (int)wrong : 200);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        printf("switch: process %d ended with status %#x\n", (int)child, (unsigned)status);
        return 255;
    }
    return (unsigned)WEXITSTATUS(status);
}

#endif
