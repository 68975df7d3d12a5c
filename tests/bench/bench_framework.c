/* SPDX-License-Identifier: MIT
 *
 * bench_framework.c: what an event of a framework's allocator costs while no viewer listens, and while one reads the
 * events ("read"): a block handed out and taken back, through torch.c over the stand-in for libc10, with few and with
 * many live blocks, and beside memory of others; the stand-in's own cost; and what the owner of a driver allocation costs.
 *
 * TSV: name, threads, ns. An event is one report.
 */
#include "account/event.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/framework/framework.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/segment.h"
#include "base/clock.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include "base/ring.h"
#include "base/thread.h"
#include "bench/count.h"
#include "framework/c10.h"
#include "stack/stack.h"
#include <dlfcn.h>
#include <gpuprof/wire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIVE    BENCH_COUNT(1000000u, 1000u)
#define BATCH   32u
#define BATCHES BENCH_COUNT(20000u, 20u)
#define CHUNKS  512u

static struct gp_ring ring;
static uint64_t lost[GP_LOSTS];
static struct gp_wire_failure failures[GP_WIRE_FAILURES];
static double ns[BATCHES];
static uint32_t listened;

static void wake_nobody(void)
{
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *name)
{
    qsort(ns, BATCHES, sizeof(*ns), by_value);
    /* The lowest tenth has the runs in which neighbours left the core alone. */
    printf("%s_p10\t1\t%.1f\n%s_p50\t1\t%.1f\n%s_p99\t1\t%.1f\n", name, ns[BATCHES / 10], name, ns[BATCHES / 2], name,
           ns[BATCHES / 100 * 99]);
}

static uint64_t reserved = LIVE * 1024; /* the framework's total */

typedef void report_fn(void *pointer, int64_t bytes, uint64_t allocated, uint64_t reserved, struct c10_device device);

/* Blocks in rotation, as an allocator gives the same ones again; `live` of them. */
static void measure(const char *name, report_fn *report, uint64_t live)
{
    static uint64_t allocated = 512, at, filled = 1;
    const uint64_t first = 0x700000000000ull;
    const struct c10_device device = {C10_CUDA, 0};
    for (; filled < live; filled++)
        report((void *)(first + filled * 512), 512, allocated += 512, reserved, device);
    for (unsigned i = 0; i < BATCHES; i++) {
        uint64_t begin = gp_clock_ns();
        for (unsigned n = 0; n < BATCH / 2; n++) {
            void *block = (void *)(first + at++ % live * 512);
            report(block, -512, allocated -= 512, reserved, device);
            report(block, 512, allocated += 512, reserved, device);
        }
        ns[i] = (double)(gp_clock_ns() - begin) / BATCH;
    }
    print(name);
}

static void measure_owner(void)
{
    for (unsigned i = 0; i < BATCHES; i++) {
        uint64_t begin = gp_clock_ns();
        for (unsigned n = 0; n < BATCH; n++)
            gp_owner_here();
        ns[i] = (double)(gp_clock_ns() - begin) / BATCH;
    }
    print("framework_owner");
}

/* The parts of an event, one by one. */
static void measure_parts(void)
{
    struct gp_move move = {
        .parts = GP_PART_ALLOCATED, .bytes = 512, .requested_bytes = 512, .class_bytes = 512, .count = 1};
    struct gp_record old, record = {.key = 0x600000000000ull, .space = GP_SPACE_BLOCK, .bytes = 512};
    for (unsigned i = 0; i < BATCHES; i++) {
        uint64_t begin = gp_clock_ns();
        for (unsigned n = 0; n < BATCH / 2; n++) {
            gp_account_move(0, GP_ADD, &move);
            gp_account_move(0, GP_SUB, &move);
        }
        ns[i] = (double)(gp_clock_ns() - begin) / BATCH;
    }
    print("framework_part_counters");
    for (unsigned i = 0; i < BATCHES; i++) {
        uint64_t begin = gp_clock_ns();
        for (unsigned n = 0; n < BATCH / 2; n++) {
            gp_map_insert(gp_accounts.blocks, &record, &old);
            gp_map_take(gp_accounts.blocks, GP_SPACE_BLOCK, record.key, &record);
        }
        ns[i] = (double)(gp_clock_ns() - begin) / BATCH;
    }
    print("framework_part_table");
    for (unsigned i = 0; i < BATCHES; i++) {
        uint64_t begin = gp_clock_ns();
        for (unsigned n = 0; n < BATCH; n++)
            gp_event_record(GP_EVENT_ALLOC, &record, 0);
        ns[i] = (double)(gp_clock_ns() - begin) / BATCH;
    }
    print("framework_part_ring");
    for (unsigned i = 0; i < BATCHES; i++) {
        uint64_t begin = gp_clock_ns(), sum = 0;
        for (unsigned n = 0; n < BATCH; n++)
            sum += gp_clock_ns();
        ns[i] = sum ? (double)(gp_clock_ns() - begin) / BATCH : 0;
    }
    print("framework_part_clock");
}

static void *library(const char *name)
{
    char path[600] = "";
    ssize_t length = readlink("/proc/self/exe", path, 400);
    path[length > 0 ? length : 0] = '\0';
    strcpy(strrchr(path, '/'), "/../framework/unsigned-now-fake/");
    strcat(path, name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "bench_framework: %s\n", dlerror());
        exit(1);
    }
    return handle;
}

int main(void)
{
    void *chunks =
        mmap(NULL, CHUNKS * sizeof(struct gp_wire_chunk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    report_fn *report = (report_fn *)dlsym(library("libc10_cuda.so"), "torch_report");
    measure("framework_without", report, 1);
    if (chunks == MAP_FAILED || gp_ring_init(&ring, chunks, CHUNKS, &lost[GP_LOST_RING]) != 0 ||
        gp_thread_life_start() != 0 ||
        gp_feed_start(&(struct gp_feed_setup){
            .ring = &ring,
            .lost = lost,
            .failures = failures,
            .wake_poller = wake_nobody,
            .map_limit = 1u << 24,
            .listened = &listened,
        }) != 0 ||
        gp_owner_start() != 0) {
        fprintf(stderr, "bench_framework: cannot set up\n");
        return 1;
    }
    gp_feed_context_created(1, 0);
    gp_framework_start();
    struct gp_record segment = {.key = 0x700000000000ull,
                                .space = GP_SPACE_DEVICE,
                                .kind = GP_KIND_LINEAR,
                                .segment = GP_SEGMENT_FRAMEWORK,
                                .bytes = LIVE * 1024};
    gp_segment_framework(&segment, GP_ADD);
    gp_map_insert(gp_accounts.blocks, &segment, NULL);
    /* The stand-in's slot leads to torch.c's function now. */
    measure("framework_event_1_at_peak", report, 1);
    /* Below the peak, as a program is most of the time, the counters need no total order. */
    report((void *)0x500000000000ull, LIVE * 1024, LIVE * 2048, LIVE * 1024, (struct c10_device){C10_CUDA, 0});
    report((void *)0x500000000000ull, -(int64_t)LIVE * 1024, LIVE * 1024, LIVE * 1024,
           (struct c10_device){C10_CUDA, 0});
    static const struct {
        const char *name;
        uint64_t live;
        uint32_t listened;
    } rows[] = {{"framework_event_1", 1, 0},       {"framework_event_1_read", 1, 1},
                {"framework_event_1000", 1000, 0}, {"framework_event_1000_read", 1000, 1},
                {"framework_event_1e6", LIVE, 0},  {"framework_event_1e6_read", LIVE, 1}};
    for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        listened = rows[i].listened;
        measure(rows[i].name, report, rows[i].live);
    }
    listened = 0;
    reserved++; /* it has memory of others, so each block is looked up by its address */
    measure("framework_event_beside", report, 1000);
    measure_parts();
    measure_owner();
    for (unsigned i = 0; i < GP_LOSTS; i++)
        if (lost[i])
            printf("framework_lost_%u\t1\t%lu\n", i, (unsigned long)lost[i]);
    return 0;
}
