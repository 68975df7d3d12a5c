/* SPDX-License-Identifier: MIT
 * session.c: see session.h. */
#include <lib/session.h>

#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE_UP(_x) (((_x) + 4095u) & ~(size_t)4095u)

static void test_header_fill(struct gp_wire_header *h, uint32_t chunk_count)
{
    h->abi = GP_WIRE_ABI;
    h->header_bytes = sizeof(*h);
    h->pid = (uint32_t)getpid();
    h->start_ns = gp_clock_ns();
    for (int i = 0; i < 16; i++)
        h->session_id[i] = (uint8_t)(h->start_ns >> (i % 8) * 8) ^ (uint8_t)(h->pid >> (i % 4));
    h->devices_offset = PAGE_UP(sizeof(*h));
    h->device_bytes = sizeof(struct gp_wire_device);
    h->device_count = GP_WIRE_DEVICES;
    h->scopes_offset = h->devices_offset + sizeof(struct gp_wire_device) * GP_WIRE_DEVICES;
    h->scope_bytes = sizeof(struct gp_wire_scope);
    h->scope_count = GP_WIRE_SCOPES;
    h->failures_offset = h->scopes_offset + sizeof(struct gp_wire_scope) * GP_WIRE_SCOPES;
    h->failure_bytes = sizeof(struct gp_wire_failure);
    h->failure_count = GP_WIRE_FAILURES;
    h->oom_offset = h->failures_offset + sizeof(struct gp_wire_failure) * GP_WIRE_FAILURES;
    h->oom_bytes = sizeof(struct gp_wire_oom);
    h->cupti_offset = h->oom_offset + sizeof(struct gp_wire_oom);
    h->cupti_bytes = sizeof(struct gp_wire_cupti);
    h->mailbox_offset = PAGE_UP(h->cupti_offset + sizeof(struct gp_wire_cupti));
    h->mailbox_bytes = sizeof(struct gp_wire_mailbox);
    h->slot_count = GP_WIRE_SLOTS;
    h->ring_offset = PAGE_UP(h->mailbox_offset + sizeof(struct gp_wire_mailbox));
    h->chunk_bytes = sizeof(struct gp_wire_chunk);
    h->chunk_count = chunk_count;
    h->total_bytes = h->ring_offset + (uint64_t)chunk_count * sizeof(struct gp_wire_chunk);
    h->source = GP_SOURCE_CUPTI;
    h->driver_version = 13000;
    snprintf(h->source_detail, sizeof(h->source_detail), "subscribed");
    snprintf(h->allocator, sizeof(h->allocator), "off");
    h->enabled_callbacks = 73;
}

int gp_test_session_make(struct gp_test_session *s, uint32_t chunk_count, bool seal)
{
    struct gp_wire_header header;
    memset(&header, 0, sizeof(header));
    memset(s, 0, sizeof(*s));
    test_header_fill(&header, chunk_count);
    s->bytes = header.total_bytes;
    s->fd = memfd_create(GP_WIRE_SESSION_NAME, MFD_ALLOW_SEALING | MFD_CLOEXEC);
    if (s->fd < 0)
        return -errno;
    if (ftruncate(s->fd, (off_t)s->bytes) != 0)
        return -errno;
    s->map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (s->map == MAP_FAILED)
        return -errno;
    char *base = s->map;
    s->header = (void *)base;
    s->devices = (void *)(base + header.devices_offset);
    s->scopes = (void *)(base + header.scopes_offset);
    s->failures = (void *)(base + header.failures_offset);
    s->oom = (void *)(base + header.oom_offset);
    s->cupti = (void *)(base + header.cupti_offset);
    s->mailbox = (void *)(base + header.mailbox_offset);
    s->chunks = (void *)(base + header.ring_offset);
    memcpy(base, &header, sizeof(header));
    if (seal && fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return -errno;
    __atomic_store_n(&s->header->magic, GP_WIRE_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

void gp_test_session_free(struct gp_test_session *s)
{
    gp_test_drain_stop(s);
    munmap(s->map, s->bytes);
    close(s->fd);
}

static void test_value(struct gp_wire_value *value, int64_t current)
{
    *value = (struct gp_wire_value){current, 2 * current, 3 * current, 2 * current};
}

void gp_test_session_device(struct gp_test_session *s, int index, const char *name, int64_t bytes)
{
    struct gp_wire_device *d = &s->devices[index];
    d->flags = GP_DEVICE_PRESENT | GP_DEVICE_IDENTIFIED;
    d->ordinal = index == (int)GP_WIRE_HOST ? -1 : index;
    for (int i = 0; i < 16; i++)
        d->uuid[i] = (uint8_t)(0xa0 + index + i);
    snprintf(d->name, sizeof(d->name), "%s", name);
    d->total_bytes = 16ll << 30;
    d->max_split_size = -1;
    for (int i = 0; i < GP_STATS; i++) {
        bool counts = i < GP_STAT_ALLOCATED_BYTES;
        test_value(&d->stats[i][GP_POOL_ALL], counts ? 4 : bytes);
        test_value(&d->stats[i][GP_POOL_LARGE], counts ? 3 : bytes - bytes / 4);
        test_value(&d->stats[i][GP_POOL_SMALL], counts ? 1 : bytes / 4);
    }
    int kind = index == (int)GP_WIRE_HOST ? GP_KIND_PINNED : GP_KIND_LINEAR;
    d->kinds[kind] = (struct gp_wire_kind_value){bytes, 2 * bytes, 3 * bytes, 2 * bytes, 4, 8, 12, 0};
    d->kinds[GP_KIND_POOL].reserved_bytes = -1;
}

void gp_test_session_host(struct gp_test_session *s, int64_t bytes)
{
    gp_test_session_device(s, (int)GP_WIRE_HOST, "host", bytes);
    s->devices[GP_WIRE_HOST].flags = GP_DEVICE_PRESENT;
    s->devices[GP_WIRE_HOST].total_bytes = -1;
}

void gp_test_session_scope(struct gp_test_session *s, int slot, const char *name, int64_t peak)
{
    snprintf(s->scopes[slot].name, sizeof(s->scopes[slot].name), "%s", name);
    s->scopes[slot].in_use = 1;
    s->scopes[slot].begin_ns = gp_clock_ns();
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        s->devices[i].scopes[slot].allocated_peak_bytes = peak;
        s->devices[i].scopes[slot].reserved_peak_bytes = peak + 1;
    }
}

void gp_test_session_publish(struct gp_test_session *s)
{
    __atomic_fetch_add(&s->header->publish_seq, 1, __ATOMIC_ACQ_REL);
    __atomic_store_n(&s->header->publish_ns, gp_clock_ns(), __ATOMIC_RELAXED);
    __atomic_fetch_add(&s->header->publish_seq, 1, __ATOMIC_RELEASE);
}

void gp_test_session_event(struct gp_test_session *s, int type, int kind, int device, uint64_t address, uint64_t bytes)
{
    if (s->turn == 0 || s->used == GP_RING_EVENTS) {
        s->turn++;
        s->used = 0;
        struct gp_wire_chunk *taken = &s->chunks[(s->turn - 1) % s->header->chunk_count];
        taken->written_before += GP_CHUNK_COUNT(taken->state);
        taken->tid = (uint32_t)getpid();
        __atomic_store_n(&taken->state, GP_CHUNK_STATE(s->turn, 0, 0), __ATOMIC_RELEASE);
    }
    struct gp_wire_chunk *chunk = &s->chunks[(s->turn - 1) % s->header->chunk_count];
    struct gp_wire_event event = {.seq = (s->turn - 1) * GP_RING_EVENTS + s->used,
                                  .time_ns = gp_clock_ns(),
                                  .address = address,
                                  .bytes = bytes,
                                  .requested_bytes = bytes,
                                  .tid = (uint32_t)getpid(),
                                  .type = (uint8_t)type,
                                  .kind = (uint8_t)kind,
                                  .device = (uint8_t)device};
    chunk->events[s->used++] = event;
    __atomic_store_n(&chunk->state, GP_CHUNK_STATE(s->turn, 0, s->used), __ATOMIC_RELEASE);
}

/* ---- drain thread -------------------------------------------------------------------------------------------- */

static void test_reset(struct gp_wire_value *value, uint32_t what)
{
    if (what == GP_RESET_ACCUMULATED)
        value->allocated = value->freed = 0;
    else
        value->peak = value->current;
}

static bool test_touched(uint32_t what, int stat)
{
    bool reserved = stat == GP_STAT_SEGMENT || stat == GP_STAT_RESERVED_BYTES || stat == GP_STAT_INACTIVE_SPLIT ||
                    stat == GP_STAT_INACTIVE_SPLIT_BYTES;
    return what == GP_RESET_PEAKS || what == GP_RESET_ACCUMULATED || reserved == (what == GP_RESET_RESERVED);
}

static void test_answer_reset(struct gp_test_session *s, struct gp_wire_slot *slot)
{
    slot->reply_count = 0;
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        struct gp_wire_device *d = &s->devices[i];
        if (!(d->flags & GP_DEVICE_PRESENT) || (slot->device >= 0 && slot->device != (int32_t)i))
            continue;
        struct gp_wire_before_after *reply = &slot->reply[slot->reply_count++];
        reply->device = (int32_t)i;
        for (int k = 0; k < GP_STATS; k++) {
            reply->before[k] = d->stats[k][GP_POOL_ALL];
            for (int pool = 0; pool < GP_POOLS && test_touched(slot->what, k); pool++)
                test_reset(&d->stats[k][pool], slot->what);
            reply->after[k] = d->stats[k][GP_POOL_ALL];
        }
    }
    slot->result = slot->reply_count ? 0 : -ENODEV;
}

static int test_scope_find(struct gp_test_session *s, const char *name)
{
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++)
        if (s->scopes[i].in_use && strcmp(s->scopes[i].name, name) == 0)
            return (int)i;
    return -1;
}

static void test_answer_scope(struct gp_test_session *s, struct gp_wire_slot *slot)
{
    int at = test_scope_find(s, slot->name);
    if (slot->command == GP_COMMAND_SCOPE_BEGIN) {
        slot->result = at >= 0 ? -EEXIST : 0;
        for (unsigned i = 0; at < 0 && i < GP_WIRE_SCOPES; i++) {
            if (!s->scopes[i].in_use) {
                gp_test_session_scope(s, (int)i, slot->name, 123456);
                return;
            }
        }
        return;
    }
    slot->result = at < 0 ? -ENOENT : 0;
    for (unsigned i = 0; at >= 0 && i < GP_WIRE_DEVICES; i++)
        slot->scope[i] = s->devices[i].scopes[at];
    if (at >= 0)
        s->scopes[at].in_use = 0;
}

static void test_answer(struct gp_test_session *s, struct gp_wire_slot *slot)
{
    slot->result = 0;
    if (slot->command == GP_COMMAND_RESET)
        test_answer_reset(s, slot);
    else if (slot->command == GP_COMMAND_SCOPE_BEGIN || slot->command == GP_COMMAND_SCOPE_END)
        test_answer_scope(s, slot);
    else if (slot->command == GP_COMMAND_MARK)
        gp_test_session_event(s, GP_EVENT_MARK, GP_KIND_NONE, 255, 0, 0);
    else if (slot->command != GP_COMMAND_SNAPSHOT)
        slot->result = -EOPNOTSUPP;
    gp_test_session_publish(s);
}

static void *test_drain(void *argument)
{
    struct gp_test_session *s = argument;
    while (__atomic_load_n(&s->x_running, __ATOMIC_ACQUIRE)) {
        uint32_t bell = __atomic_load_n(&s->mailbox->doorbell, __ATOMIC_ACQUIRE);
        for (unsigned i = 0; i < GP_WIRE_SLOTS; i++) {
            struct gp_wire_slot *slot = &s->mailbox->slots[i];
            if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != GP_SLOT_REQUESTED)
                continue;
            test_answer(s, slot);
            uint32_t was = GP_SLOT_REQUESTED;
            __atomic_fetch_add(&s->x_answers, 1, __ATOMIC_RELAXED);
            if (__atomic_compare_exchange_n(&slot->state, &was, GP_SLOT_DONE, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_RELAXED))
                syscall(SYS_futex, &slot->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
        struct timespec nap = {0, 50000000};
        syscall(SYS_futex, &s->mailbox->doorbell, FUTEX_WAIT, bell, &nap, NULL, 0);
    }
    return NULL;
}

int gp_test_drain_start(struct gp_test_session *s)
{
    __atomic_store_n(&s->x_running, 1, __ATOMIC_RELEASE);
    int rc = pthread_create(&s->drain, NULL, test_drain, s);
    if (!rc)
        __atomic_store_n(&s->mailbox->drain_tid, (uint32_t)getpid(), __ATOMIC_RELEASE);
    return -rc;
}

void gp_test_drain_stop(struct gp_test_session *s)
{
    if (!__atomic_exchange_n(&s->x_running, 0, __ATOMIC_ACQ_REL))
        return;
    __atomic_fetch_add(&s->mailbox->doorbell, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &s->mailbox->doorbell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    pthread_join(s->drain, NULL);
}

/* ---- a whole process ----------------------------------------------------------------------------------------- */

static void test_process(const struct gp_test_process_options *o, int ready)
{
    struct gp_test_session s;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, o->comm ? o->comm : "profiled");
    /* A change of user makes a process undumpable, and root the owner of its descriptors. */
    if (o->uid && (setresuid(o->uid, o->uid, o->uid) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0))
        _exit(1);
    if (gp_test_session_make(&s, 64, !o->no_seal) != 0)
        _exit(1);
    int devices = o->devices ? o->devices : 1;
    for (int i = 0; i < devices; i++)
        gp_test_session_device(&s, i, "Simulated GPU 0", (int64_t)(i + 1) << 20);
    gp_test_session_host(&s, 4096);
    gp_test_session_scope(&s, 0, "epoch", 777);
    s.header->lost[GP_LOST_RING] = 5;
    s.failures[0] = (struct gp_wire_failure){.api = "cuMemAlloc_v2", .error = 2, .count = 3};
    for (uint64_t i = 0; i < 10; i++)
        gp_test_session_event(&s, i % 2 ? GP_EVENT_FREE : GP_EVENT_ALLOC, GP_KIND_LINEAR, 0,
                              0x7f0000000000 + i / 2 * 4096, 4096 << i);
    if (!o->no_publish)
        gp_test_session_publish(&s);
    if (o->no_drain)
        s.mailbox->drain_tid = (uint32_t)getpid();
    else
        gp_test_drain_start(&s);
    if (write(ready, "r", 1) != 1)
        _exit(1);
    close(ready);
    if (o->close_soon) {
        usleep(300000);
        gp_test_drain_stop(&s);
        __atomic_fetch_or(&s.header->flags, GP_SESSION_CLOSED, __ATOMIC_RELEASE);
        gp_test_session_publish(&s);
        _exit(7);
    }
    for (;;)
        pause();
}

pid_t gp_test_process_start(const struct gp_test_process_options *options)
{
    int ends[2];
    char byte;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        test_process(options, ends[1]);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], &byte, 1);
    close(ends[0]);
    if (n != 1) {
        if (pid > 0)
            waitpid(pid, NULL, 0);
        return -1;
    }
    return pid;
}

void gp_test_process_stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
