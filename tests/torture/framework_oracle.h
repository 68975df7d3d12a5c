/* SPDX-License-Identifier: MIT
 *
 * framework_oracle.h: a framework's blocks and the owners of memory under many threads.
 *
 * Threads allocate through the stand-in for PyTorch's allocator (tests/framework), whose driver is a function here,
 * while others load and unload libraries and ask who owns. torch.c, slot.c and owner.c are the product's; stacks are
 * made up. After every report the sums here must be the allocator's totals, each segment must be known as one, each
 * question must be answered with the right library, and libc10 must be called once for each block. In every third
 * round a thread writes the original functions back into the slots; then blocks are missed, but every call arrives.
 */
#ifndef GP_TEST_TORTURE_FRAMEWORK_ORACLE_H
#define GP_TEST_TORTURE_FRAMEWORK_ORACLE_H

#include "../../src/account/framework/torch.c"
#include "account/feed/framework.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "framework/c10.h"
#include "lib/random.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include "torture/yield.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALLOCATORS = 3, LOADERS = 2, READERS = 2, DEVICES = 2, HELD = 32, ROUND_MS = 60 };

static struct oracle_device {
    int64_t allocated, reserved; /* under the allocator's lock of the device */
    uint64_t calls;
} devices[DEVICES];
static uint64_t oracle_wrong_sums, oracle_wrong_segments, oracle_wrong_owners, oracle_questions, oracle_reports;
static uint64_t x_operations[DEVICES];
static bool x_stop, x_restoring;
static char oracle_folder[1100], oracle_copies[] = "/tmp/gpuprof-torture-XXXXXX";
static __thread uint64_t oracle_pcs[2], oracle_state;

#define TORCH_ROW(_result, _name, _params) static _result(*oracle_##_name) _params;
TORCH_ROWS(TORCH_ROW)
#undef TORCH_ROW

static uint64_t oracle_random(void)
{
    if (!oracle_state) {
        uint64_t own = (uint64_t)(uintptr_t)&oracle_state; /* each thread has its own */
        /* GCC 14 would add the constant below to the address in one relocation of 32 bits. */
        __asm__("" : "+r"(own));
        oracle_state = own;
    }
    return random_mix(&oracle_state);
}

void gp_testpoint(const char *name)
{
    /* Readers find the list fresh, wait, and come while it is written. */
    if ((strcmp(name, "owner.entry") == 0 || strcmp(name, "owner.fresh") == 0) && oracle_random() % 16 == 0)
        usleep(50);
    else if (oracle_random() % 64 == 0)
        torture_yield();
}

static void oracle_count(uint64_t *what)
{
    __atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

/* ---- what the product's files stand on ----------------------------------------------------------------------------- */

int gp_native_start(void)
{
    return 0;
}

unsigned gp_stack_native(uint64_t *pcs, unsigned room, bool *more)
{
    (void)room;
    memcpy(pcs, oracle_pcs, sizeof(oracle_pcs));
    *more = false;
    return 2;
}

bool gp_stack_begin(struct gp_stack_place *place)
{
    *place = (struct gp_stack_place){.pc = oracle_pcs[0], .sp = 1};
    return true;
}

unsigned gp_stack_more(struct gp_stack_place *place, uint64_t *pcs, unsigned room)
{
    unsigned n = 0;
    for (; n < room && place->sp < sizeof(oracle_pcs) / sizeof(oracle_pcs[0]); n++)
        pcs[n] = oracle_pcs[place->sp++];
    return n;
}

static int oracle_changes(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uint64_t *)arg = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

uint64_t gp_stack_generation(void)
{
    uint64_t changes = 0;
    dl_iterate_phdr(oracle_changes, &changes);
    return changes;
}

__thread struct gp_thread gp_thread; /* its number stays 0, so that all threads share what they found last */
bool gp_thread_enter(void)
{
    return true;
}

void gp_thread_leave(void)
{
}

bool gp_doors_find(const uint64_t *pcs, unsigned count)
{
    (void)pcs, (void)count;
    return true;
}

void gp_doors_restore(void)
{
}

void gp_log(enum gp_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

void gp_feed_framework_conf(const struct gp_framework_conf *conf)
{
    (void)conf;
}

void gp_feed_framework_start(const char *name)
{
    (void)name;
}

void gp_feed_framework_tells_pools(bool tells)
{
    (void)tells;
}

void gp_feed_framework_pool(int device, uint64_t first, uint64_t second, enum gp_pool_use use)
{
    (void)device, (void)first, (void)second, (void)use;
}

void gp_feed_framework_oom(const char *api, int device, uint64_t requested_bytes)
{
    (void)api;
    (void)requested_bytes;
    devices[device].calls++;
}

void gp_feed_framework_block(const struct gp_framework_event *event, uint8_t row)
{
    struct oracle_device *device = &devices[event->device];
    device->allocated += event->bytes;
    device->calls++;
    bool right =
        device->allocated == event->allocated_bytes && device->reserved == event->reserved_bytes && row == owner;
    if (!right && !__atomic_load_n(&x_restoring, __ATOMIC_RELAXED))
        oracle_count(&oracle_wrong_sums);
    oracle_count(&oracle_reports);
}

/* ---- threads ------------------------------------------------------------------------------------------------------- */

static bool oracle_driver(int device, uint64_t *address, size_t bytes)
{
    if (*address) {
        devices[device].reserved -= (int64_t)bytes;
        munmap((void *)(uintptr_t)*address, bytes);
        return true;
    }
    oracle_pcs[0] = (uint64_t)(uintptr_t)oracle_driver + 8; /* this program passes requests on */
    oracle_pcs[1] = (uint64_t)(uintptr_t)__builtin_return_address(0);
    if (!gp_owner_here().segment)
        oracle_count(&oracle_wrong_segments);
    void *pages = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *address = (uint64_t)(uintptr_t)pages;
    devices[device].reserved += (int64_t)bytes;
    return pages != MAP_FAILED;
}

static void *oracle_allocate(void *arg)
{
    struct {
        void *pointer;
        int device;
    } held[HELD] = {{0}};
    (void)arg;
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        unsigned at = oracle_random() % HELD;
        if (held[at].pointer) {
            oracle_count(&x_operations[held[at].device]);
            oracle_torch_free(held[at].device, held[at].pointer);
            held[at].pointer = NULL;
        } else {
            held[at].device = (int)(oracle_random() % DEVICES);
            oracle_count(&x_operations[held[at].device]);
            held[at].pointer = oracle_torch_alloc(held[at].device, 1 + oracle_random() % (3u << 20));
        }
        if (oracle_random() % 64 == 0)
            oracle_torch_empty_cache((int)(oracle_random() % DEVICES));
    }
    for (unsigned at = 0; at < HELD; at++)
        if (held[at].pointer) {
            oracle_count(&x_operations[held[at].device]);
            oracle_torch_free(held[at].device, held[at].pointer);
        }
    return NULL;
}

static void oracle_ask(const void *function, unsigned number)
{
    struct gp_wire_owner table[GP_WIRE_OWNERS];
    char name[32];
    oracle_pcs[0] = (uint64_t)(uintptr_t)oracle_driver + 8;
    oracle_pcs[1] = (uint64_t)(uintptr_t)function + 1;
    uint8_t row = gp_owner_here().row;
    gp_owner_rows(table);
    snprintf(name, sizeof(name), "libengine%u.so", number);
    if (strcmp(table[row].owner, name) != 0)
        oracle_count(&oracle_wrong_owners);
    oracle_count(&oracle_questions);
}

static void *oracle_load(void *arg)
{
    unsigned number = (unsigned)(uintptr_t)arg;
    char path[128];
    snprintf(path, sizeof(path), "%s/libengine%u.so", oracle_copies, number);
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        oracle_ask(dlsym(library, "pass"), number);
        dlclose(library);
    }
    return NULL;
}

/* Has its library all the time, and asks while the list changes. */
static void *oracle_read(void *arg)
{
    unsigned number = (unsigned)(uintptr_t)arg;
    char path[128];
    snprintf(path, sizeof(path), "%s/libengine%u.so", oracle_copies, number);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *function = dlsym(library, "pass");
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED))
        oracle_ask(function, number);
    dlclose(library);
    return NULL;
}

/* As a thread inside the loader's resolver does, which knows nothing of our lock; but only one thread
 * at a time may change the pages' protection. */
static void oracle_restore_once(void *arg)
{
    struct gp_slot_import import = {
        .name = imports[TORCH_REPORT].name, .definer = "libc10.so", .importer = "libc10_cuda"};
    (void)arg;
    gp_lock_take(&lock);
    import.replacement = imports[TORCH_REPORT].x_original;
    if (import.replacement)
        gp_slots_replace(&import, 1, NULL);
    gp_lock_give(&lock);
}

static void *oracle_restore(void *arg)
{
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        gp_loader_with(oracle_restore_once, NULL);
        for (unsigned i = 0; i < oracle_random() % 8; i++)
            torture_yield();
    }
    return arg;
}

/* ---- a round ------------------------------------------------------------------------------------------------------- */

static void oracle_quiet(const uint64_t *calls)
{
    for (int d = 0; d < DEVICES; d++) {
        struct torch_stats stats;
        oracle_torch_stats(d, &stats);
        bool seen = stats.allocated == devices[d].allocated && calls[d] == devices[d].calls;
        if ((!seen && !x_restoring) || stats.reserved != devices[d].reserved || calls[d] != x_operations[d])
            oracle_wrong_sums++;
        devices[d] = (struct oracle_device){0};
        x_operations[d] = 0;
    }
}

static void oracle_round(unsigned number)
{
    pthread_t threads[ALLOCATORS + LOADERS + READERS + 1];
    char path[1200];
    unsigned n = 0;
    x_restoring = number % 3 == 2;
    x_stop = false;
    snprintf(path, sizeof(path), "%s/unsigned-%s-fake/libc10_cuda.so", oracle_folder, number % 2 ? "lazy" : "now");
    void *torch = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    strcpy(strrchr(path, '/'), "/libc10.so");
    void *c10 = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!torch || !c10) {
        printf("framework: %s\n", dlerror());
        exit(1);
    }
#define TORCH_ROW(_result, _name, _params) *(void **)&oracle_##_name = dlsym(torch, #_name);
    TORCH_ROWS(TORCH_ROW)
#undef TORCH_ROW
    *(bool (**)(int, uint64_t *, size_t))dlsym(torch, "torch_driver") = oracle_driver;
    for (unsigned i = 0; i < ALLOCATORS; i++)
        pthread_create(&threads[n++], NULL, oracle_allocate, NULL);
    for (unsigned i = 0; i < LOADERS + READERS; i++)
        pthread_create(&threads[n++], NULL, i < LOADERS ? oracle_load : oracle_read, (void *)(uintptr_t)i);
    if (x_restoring)
        pthread_create(&threads[n++], NULL, oracle_restore, NULL);
    usleep(ROUND_MS * 1000);
    __atomic_store_n(&x_stop, true, __ATOMIC_RELAXED);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    for (int d = 0; d < DEVICES; d++)
        oracle_torch_empty_cache(d);
    oracle_quiet(dlsym(c10, "c10_calls"));
    dlclose(torch);
    dlclose(c10);
}

static void oracle_copy(const char *from, unsigned number)
{
    static char bytes[1 << 20];
    char path[128];
    snprintf(path, sizeof(path), "%s/libengine%u.so", oracle_copies, number);
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    if (!in || !out || fwrite(bytes, 1, fread(bytes, 1, sizeof(bytes), in), out) == 0 || fclose(out) != 0) {
        printf("framework: cannot copy %s to %s\n", from, path);
        exit(1);
    }
    fclose(in);
}

static void oracle_start(void)
{
    char path[1024] = "";
    ssize_t length = readlink("/proc/self/exe", path, 400);
    path[length > 0 ? length : 0] = '\0';
    *strrchr(path, '/') = '\0';
    snprintf(oracle_folder, sizeof(oracle_folder), "%s/../framework", path);
    strcat(path, "/../preload/pass.so");
    if (!mkdtemp(oracle_copies))
        exit(1);
    for (unsigned i = 0; i < LOADERS + READERS; i++)
        oracle_copy(path, i);
    gp_owner_start();
    gp_framework_start();
}

static void oracle_end(void)
{
    char path[128];
    for (unsigned i = 0; i < LOADERS + READERS; i++) {
        snprintf(path, sizeof(path), "%s/libengine%u.so", oracle_copies, i);
        unlink(path);
    }
    rmdir(oracle_copies);
}

#endif
