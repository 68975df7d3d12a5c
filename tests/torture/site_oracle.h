/* SPDX-License-Identifier: MIT
 *
 * site_oracle.h: what every site held at the peak, compared with the simple method: a copy of
 * all sites at every new peak.
 *
 * Workers allocate and free under sites of two devices and reset peaks, with windows (test
 * points) in every step. Inside the gate each call gets the next ticket of its device, and the
 * sums are sometimes read there. A viewer reads as another process would. Afterwards the calls
 * are replayed in ticket order with the simple method. All values must be equal, both at rest
 * and in each peak that the viewer saw.
 */
#ifndef GP_TEST_TORTURE_SITE_ORACLE_H
#define GP_TEST_TORTURE_SITE_ORACLE_H

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

enum {
    THREADS = 4,
    DEVICES = 2,
    SITES = 12 /* per device */,
    OPS = 20000,
    HELD = 64,
    LOOKS = 1 << 16,
    STACK = 20,
    ORACLE_NAME = 500
};

struct call {
    uint32_t ticket, site; /* site 0: a reset */
    int64_t bytes;
};

struct look {
    uint64_t seq;
    uint32_t site;
    int64_t bytes;
};

struct worker {
    pthread_t thread;
    uint64_t random;
    struct call *calls[DEVICES];
    uint32_t made[DEVICES];
    struct {
        uint32_t site;
        int64_t bytes;
    } held[HELD];
    unsigned held_count;
};

static struct gp_wire_sites *oracle_head;
static struct gp_wire_site *oracle_rows;
static uint32_t oracle_ids[DEVICES][SITES];
static uint32_t oracle_tickets[DEVICES]; /* under the device's gate */
static unsigned oracle_wrong_sums, oracle_last_wrong_sums;
static uint64_t oracle_sums, oracle_taken_looks;
static int x_stop;
static struct look looks[DEVICES][LOOKS];
static uint32_t look_count[DEVICES];

static __thread struct worker *oracle_me;
static __thread int oracle_device = -1;
static __thread uint64_t oracle_random_state;
static __thread unsigned oracle_stack_seed, oracle_python_seed;

/* ---- stacks that the oracle makes up ----------------------------------------------------------------------------- */

int gp_native_start(void);
int gp_native_start(void)
{
    return 0;
}

/* Two seeds in three share all but the outermost frame. */
static uint64_t oracle_pc(unsigned seed, unsigned frame)
{
    return 0x400000 + frame * 64 + (frame == STACK - 1 ? seed * 1024u : seed % 3 * 8);
}

unsigned gp_stack_native(uint64_t *pcs, unsigned room, bool *more)
{
    unsigned n = STACK < room ? STACK : room;
    for (unsigned i = 0; i < n; i++)
        pcs[i] = oracle_pc(oracle_stack_seed, i);
    *more = false;
    return n;
}

/* Names at an address that all seeds share, as when code objects reuse an address one after
 * another. */
static void oracle_name(char *name, unsigned seed, char kind)
{
    if (seed < 1000000)
        snprintf(name, ORACLE_NAME, "%c%u", kind, seed % 97);
    else /* to fill the table with */
        snprintf(name, ORACLE_NAME, "%c%u%0450u", kind, seed, seed);
}

/* The invented stacks need no explanation. */
const char *gp_python_note(void)
{
    return NULL;
}

bool gp_stack_has_python(bool *more)
{
    (void)more;
    return oracle_python_seed != 0;
}

unsigned gp_stack_python(struct gp_python_frame *frames, unsigned room, bool *more)
{
    static __thread char function[ORACLE_NAME], file[ORACLE_NAME];
    (void)room;
    *more = false;
    if (!oracle_python_seed)
        return 0;
    oracle_name(function, oracle_python_seed, 'f');
    oracle_name(file, oracle_python_seed, 'p');
    frames[0] = (struct gp_python_frame){.code = 64 * (oracle_python_seed % 5), .line = oracle_python_seed};
    frames[0].function = (struct gp_python_text){function, (uint32_t)strlen(function)};
    frames[0].file = (struct gp_python_text){file, (uint32_t)strlen(file)};
    return 1;
}

/* ---- live numbers ------------------------------------------------------------------------------------------------ */

static int64_t oracle_at_peak(const struct gp_wire_site *row, const struct gp_wire_site_device *device)
{
    return row->peak_seq == device->peak_seq ? row->at_peak_bytes : row->live_bytes;
}

/* Reads the sums of live.c, inside the gate. */
static void oracle_sum(int d)
{
    const struct gp_wire_site_device *device = &oracle_head->devices[d];
    int64_t live = 0, at_peak = 0;
    for (unsigned s = 0; s < SITES; s++) {
        live += oracle_rows[oracle_ids[d][s]].live_bytes;
        at_peak += oracle_at_peak(&oracle_rows[oracle_ids[d][s]], device);
    }
    if (live != device->live_bytes || at_peak != device->peak_bytes || live > at_peak)
        __atomic_fetch_add(&oracle_wrong_sums, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&oracle_sums, 1, __ATOMIC_RELAXED);
}

void gp_testpoint(const char *name)
{
    if (!oracle_random_state)
        oracle_random_state = (uint64_t)(uintptr_t)&oracle_random_state;
    if (oracle_me && oracle_device >= 0 && strcmp(name, "live.done") == 0) {
        struct worker *me = oracle_me;
        me->calls[oracle_device][me->made[oracle_device]].ticket = ++oracle_tickets[oracle_device];
        if (random_mix(&oracle_random_state) % 8 == 0)
            oracle_sum(oracle_device);
    }
    if (random_mix(&oracle_random_state) % 256 == 0)
        torture_yield();
}

static void worker_call(struct worker *self, int d, uint32_t site, int64_t bytes)
{
    self->calls[d][self->made[d]] = (struct call){.site = site, .bytes = bytes};
    oracle_device = d;
    if (!site)
        gp_site_reset(d);
    else if (bytes > 0)
        gp_site_alloc(site, (uint64_t)bytes);
    else
        gp_site_free(site, (uint64_t)-bytes);
    oracle_device = -1;
    self->made[d]++;
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    oracle_me = self;
    for (unsigned op = 0; op < OPS; op++) {
        uint64_t r = random_mix(&self->random);
        int d = (int)(r >> 8 & 1);
        bool rising = op / 512 % 2 == 0;
        if (r % 509 == 0) {
            worker_call(self, d, 0, 0);
        } else if (self->held_count < HELD && (self->held_count == 0 || (r >> 16) % 8 < (rising ? 6 : 2))) {
            uint32_t site = oracle_ids[d][(r >> 24) % SITES];
            int64_t bytes = (int64_t)((r >> 32) % 4096 + 1) * 256;
            worker_call(self, d, site, bytes);
            self->held[self->held_count].site = site;
            self->held[self->held_count++].bytes = bytes;
        } else if (self->held_count) {
            unsigned i = (unsigned)((r >> 24) % self->held_count);
            worker_call(self, oracle_rows[self->held[i].site].device, self->held[i].site, -self->held[i].bytes);
            self->held[i] = self->held[--self->held_count];
        }
    }
    return NULL;
}

static void *viewer_main(void *argument)
{
    uint64_t random = 1;
    (void)argument;
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        int d = (int)(random_mix(&random) & 1);
        const struct gp_wire_site_device *device = &oracle_head->devices[d];
        const struct gp_wire_site *row = &oracle_rows[oracle_ids[d][random_mix(&random) % SITES]];
        uint64_t seq = __atomic_load_n(&device->peak_seq, __ATOMIC_ACQUIRE);
        int64_t bytes = __atomic_load_n(&row->live_bytes, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&row->peak_seq, __ATOMIC_ACQUIRE) == seq)
            bytes = __atomic_load_n(&row->at_peak_bytes, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&device->peak_seq, __ATOMIC_ACQUIRE) != seq || look_count[d] == LOOKS)
            continue;
        looks[d][look_count[d]++] = (struct look){seq, (uint32_t)(row - oracle_rows), bytes};
        if (random_mix(&random) % 64 == 0)
            torture_yield();
    }
    return NULL;
}

/* ---- the replay -------------------------------------------------------------------------------------------------- */

struct replay {
    int64_t live[DEVICES * SITES + 1], peak[DEVICES * SITES + 1], at_peak[DEVICES * SITES + 1];
    int64_t calls[DEVICES * SITES + 1], allocated[DEVICES * SITES + 1];
    int64_t device_live, device_peak;
    uint64_t seq;
};

static int look_order(const void *a, const void *b)
{
    uint64_t x = ((const struct look *)a)->seq, y = ((const struct look *)b)->seq;
    return x < y ? -1 : x > y;
}

/* Compares the viewer's readings of the peak that the replay has reached. */
static unsigned replay_looks(const struct replay *replay, int d, uint32_t *next)
{
    unsigned wrong = 0;
    for (; *next < look_count[d] && looks[d][*next].seq == replay->seq; ++*next, oracle_taken_looks++)
        wrong += looks[d][*next].bytes != replay->at_peak[looks[d][*next].site];
    return wrong;
}

static void replay_peak(struct replay *replay)
{
    replay->device_peak = replay->device_live;
    replay->seq++;
    memcpy(replay->at_peak, replay->live, sizeof replay->live);
}

static void replay_call(struct replay *replay, const struct call *call)
{
    if (!call->site) {
        replay_peak(replay);
        memcpy(replay->peak, replay->live, sizeof replay->live);
        return;
    }
    int64_t *live = &replay->live[call->site];
    *live += call->bytes;
    replay->device_live += call->bytes;
    if (call->bytes > 0) {
        replay->calls[call->site]++;
        replay->allocated[call->site] += call->bytes;
    }
    if (*live > replay->peak[call->site])
        replay->peak[call->site] = *live;
    if (replay->device_live > replay->device_peak)
        replay_peak(replay);
}

static unsigned replay_rest(const struct replay *replay, int d)
{
    const struct gp_wire_site_device *device = &oracle_head->devices[d];
    unsigned wrong = device->live_bytes != replay->device_live || device->peak_bytes != replay->device_peak ||
                     device->peak_seq != replay->seq;
    for (unsigned s = 0; s < SITES; s++) {
        uint32_t id = oracle_ids[d][s];
        const struct gp_wire_site *row = &oracle_rows[id];
        wrong += row->live_bytes != replay->live[id] || row->peak_bytes != replay->peak[id] ||
                 oracle_at_peak(row, device) != replay->at_peak[id] || row->calls != replay->calls[id] ||
                 row->allocated_bytes != replay->allocated[id];
    }
    return wrong;
}

static unsigned replay_device(struct worker *workers, int d)
{
    static const struct call *order[THREADS * OPS + 2];
    static struct replay replay;
    unsigned wrong = 0;
    uint32_t next = 0;
    memset(order, 0, sizeof order);
    replay = (struct replay){0};
    for (unsigned t = 0; t < THREADS; t++)
        for (uint32_t i = 0; i < workers[t].made[d]; i++)
            order[workers[t].calls[d][i].ticket] = &workers[t].calls[d][i];
    qsort(looks[d], look_count[d], sizeof looks[d][0], look_order);
    wrong += replay_looks(&replay, d, &next);
    for (uint32_t i = 1; i <= oracle_tickets[d]; i++) {
        if (order[i]) /* the mutant gives two tickets to one call */
            replay_call(&replay, order[i]);
        wrong += replay_looks(&replay, d, &next);
    }
    return wrong + replay_rest(&replay, d) + (next != look_count[d]);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static void oracle_start(void)
{
    uint64_t bytes = gp_site_bytes();
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || gp_site_start(memory, bytes, GP_SITES_NATIVE | GP_SITES_PYTHON) != 0)
        abort();
    oracle_head = memory;
    oracle_rows = (struct gp_wire_site *)((char *)memory + oracle_head->rows_offset);
    for (int d = 0; d < DEVICES; d++)
        for (unsigned s = 0; s < SITES; s++) {
            oracle_stack_seed = s;
            oracle_ids[d][s] = gp_site_here(d, GP_KIND_LINEAR, true);
        }
}

/* Runs all workers once. Returns the number of errors. */
static unsigned oracle_live(uint64_t seed)
{
    static struct worker workers[THREADS];
    pthread_t viewer;
    unsigned wrong = 0;
    for (int d = 0; d < DEVICES; d++) {
        oracle_head->devices[d] = (struct gp_wire_site_device){0};
        oracle_tickets[d] = look_count[d] = 0;
        for (unsigned s = 0; s < SITES; s++) {
            struct gp_wire_site *row = &oracle_rows[oracle_ids[d][s]];
            row->live_bytes = row->live_count = row->peak_bytes = row->at_peak_bytes = 0;
            row->allocated_bytes = row->calls = 0;
            row->peak_seq = 0;
        }
    }
    __atomic_store_n(&x_stop, 0, __ATOMIC_RELAXED);
    pthread_create(&viewer, NULL, viewer_main, NULL);
    for (unsigned t = 0; t < THREADS; t++) {
        struct worker *worker = &workers[t];
        for (int d = 0; d < DEVICES; d++)
            if (!worker->calls[d] && !(worker->calls[d] = malloc((OPS + 1) * sizeof(struct call))))
                abort();
        worker->made[0] = worker->made[1] = worker->held_count = 0;
        worker->random = seed * THREADS + t;
        pthread_create(&worker->thread, NULL, worker_main, worker);
    }
    for (unsigned t = 0; t < THREADS; t++)
        pthread_join(workers[t].thread, NULL);
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    pthread_join(viewer, NULL);
    for (int d = 0; d < DEVICES; d++)
        wrong += replay_device(workers, d);
    oracle_last_wrong_sums = __atomic_exchange_n(&oracle_wrong_sums, 0, __ATOMIC_RELAXED);
    return wrong + oracle_last_wrong_sums;
}

#endif
