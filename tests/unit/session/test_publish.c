/* SPDX-License-Identifier: MIT
 *
 * test_publish.c: what a publication writes into the session, and the table of scopes against a model
 * (src/session/publish.c); the layout of a session and the failures of its making (session.c); and the memfd of all extents
 * (extents.c).
 */
#include "lib/sanitized.h"
#include "session/extents.h"
#include "session/internal.h"
#include "session/session.h"
#include "session_fixture.h"
#include <fcntl.h>
#include <gpuprof/gpuprof.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void enter(void);
TestSuite(publish, .init = enter, .timeout = 60);

/* ---- system calls that fail -------------------------------------------------------------------------------------- */

static struct {
    const char *call;
    unsigned number; /* the call that fails: 1 the next one; 0: none */
    int error;       /* -1: a write of nothing; -2: half of it */
} fails;
static long long mapped;

static int failing(const char *call)
{
    if (!fails.number || strcmp(fails.call, call) != 0 || --fails.number)
        return 0;
    errno = fails.error;
    return fails.error;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    int error = failing("pwrite");
    if (error > 0)
        return -1;
    return error == -1 ? 0 : syscall(SYS_pwrite64, fd, bytes, error ? (count + 1) / 2 : count, at);
}

int ftruncate(int fd, off_t bytes)
{
    return failing("ftruncate") ? -1 : (int)syscall(SYS_ftruncate, fd, bytes);
}

static bool fails_too(long number)
{
    return (number == SYS_memfd_create && failing("memfd")) || (number == SYS_getrandom && failing("getrandom"));
}

int mprotect(void *at, size_t bytes, int access)
{
    return failing("mprotect") ? -1 : (int)syscall(SYS_mprotect, at, bytes, access);
}

void *mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset)
{
    if (fd >= 0 && failing("mmap"))
        return MAP_FAILED;
    mapped += (long long)bytes;
    return (void *)syscall(SYS_mmap, at, bytes, access, flags, fd, offset);
}

int munmap(void *at, size_t bytes)
{
    mapped -= (long long)bytes;
    return (int)syscall(SYS_munmap, at, bytes);
}

static void enter(void)
{
    test_fails = fails_too;
}

static unsigned open_above(int from)
{
    unsigned count = 0;
    for (int fd = from; fd < 1100; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* ---- a publication ----------------------------------------------------------------------------------------------- */

static const char *allocator_name = "caching";
static bool is_gone;

static uint32_t version(void)
{
    return 12090;
}

static const char *name_of_allocator(void)
{
    return allocator_name;
}

static bool gone(void)
{
    return is_gone;
}

static void settle(unsigned index, int64_t bytes, int64_t count)
{
    test_note("settle %u %ld %ld\n", index, (long)bytes, (long)count);
}

Test(publish, what_a_publication_writes)
{
    struct gp_session_hooks hooks = test_hooks();
    hooks.driver_version = version;
    hooks.allocator = name_of_allocator;
    hooks.gone = gone;
    hooks.settle = settle;
    cr_expect(!gp_session_ready());
    test_open(&hooks);
    cr_expect(gp_session_ready());
    struct gp_wire_header *header = test_session.header;
    cr_expect_str_eq(header->allocator, "off");
    for (uint32_t attached = 0; attached < 2; attached++) {
        test_session.before->attached = attached;
        test_events = 4711 + attached;
        test_now += 5;
        test_notes[0] = '\0';
        uint64_t seq = header->publish_seq;
        gp_session_publish();
        cr_expect_eq(header->publish_seq, seq + 2);
        cr_expect_eq(header->publish_ns, test_now);
        cr_expect_eq(header->events, test_events);
        cr_expect_eq(header->driver_version, 12090);
        cr_expect_str_eq(header->allocator, "caching");
        cr_expect_eq(header->flags, 0);
        cr_expect_str_eq(test_notes, "settle 0 7500 30\nsettle 5 7510 35\nsettle 64 7628 94\n", "%s", test_notes);
        for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
            bool there = test_present[i], gpu = there && i < GP_WIRE_GPUS;
            cr_expect_eq(test_session.devices[i].total_bytes, there ? 7000 + i : 0, "%u", i);
            cr_expect_eq(test_session.owners->values[i][3].live, there ? 40 + i : 0, "%u", i);
            if (i == GP_WIRE_GPUS)
                continue;
            cr_expect_eq(test_session.owners->frameworks[i].blocks, gpu ? 50 + i : 0, "%u", i);
            cr_expect_eq(test_session.owners->heaps[i].blocks, gpu ? 60 + i : 0, "%u", i);
            cr_expect_eq(test_session.before->devices[i].bytes, gpu && attached ? 70 + i : 0, "%u", i);
        }
        cr_expect_eq(test_session.owners->count, 2);
        cr_expect_eq(test_session.doors->row_count, 80);
        cr_expect_str_eq(test_session.owners->rows[1].owner, "somebody");
        cr_expect_eq(test_session.blocks->state, attached ? GP_BLOCKS_DONE : GP_BLOCKS_NONE);
    }
    allocator_name = "a name that is longer than the row has bytes";
    is_gone = true;
    gp_session_publish();
    cr_expect_str_eq(header->allocator, "a name that is longer than the ");
    cr_expect_eq(header->flags, GP_SESSION_GONE);
    allocator_name = "";
    is_gone = false;
    gp_session_close(&test_session);
    cr_expect_str_eq(header->allocator, "");
    cr_expect_eq(header->flags, GP_SESSION_CLOSED, "it is there again");
}

Test(publish, sources_of_events)
{
    struct gp_session_hooks hooks = {0};
    test_open(&hooks);
    gp_session_poll(); /* no viewer polls */
    gp_session_publish();
    static const struct {
        uint32_t source, flags;
        bool sourced;
    } cases[] = {{GP_SOURCE_NONE, 0, false},
                 {GP_SOURCE_CUPTI, 0, true},
                 {GP_SOURCE_HOOKS, GP_SESSION_CLOSED | GP_SESSION_DISABLED, true},
                 {GP_SOURCE_CUPTI, GP_SESSION_YIELDED, false},
                 {GP_SOURCE_CUPTI, GP_SESSION_GONE, false}};
    for (unsigned i = 0; i < 5; i++) {
        test_session.header->source = cases[i].source;
        test_session.header->flags = cases[i].flags;
        cr_expect_eq(gp_session_sourced(), cases[i].sourced, "%u", i);
    }
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

static struct {
    char name[48];
    int handle; /* -1: not open */
    uint64_t begin_ns;
} model[GP_WIRE_SCOPES];

static int model_newest(const char *name)
{
    int newest = -1;
    for (int i = 0; i < (int)GP_WIRE_SCOPES; i++)
        if (model[i].handle >= 0 && strcmp(model[i].name, name) == 0 &&
            (newest < 0 || model[i].begin_ns >= model[newest].begin_ns))
            newest = i;
    return newest;
}

static int model_free(void)
{
    for (int i = 0; i < (int)GP_WIRE_SCOPES; i++)
        if (model[i].handle < 0)
            return i;
    return -1;
}

static void begin_scope(const char *name, bool twin)
{
    int handle = gp_session_scope_begin(name, twin), row = model_free();
    if (!twin && model_newest(name) >= 0) {
        cr_assert_eq(handle, -EEXIST);
    } else if (row < 0) {
        cr_assert_eq(handle, -ENOSPC);
    } else {
        cr_assert(handle >= 0 && handle % (int)GP_WIRE_SCOPES == row, "%d", handle);
        strcpy(model[row].name, name);
        model[row].handle = handle;
        model[row].begin_ns = test_now;
        const struct gp_wire_scope *scope = &test_session.scopes[row];
        cr_assert(scope->in_use == 1 && scope->begin_ns == test_now);
        cr_assert_str_eq(scope->name, name);
    }
}

static void end_scope(int row, int handle)
{
    static struct gp_wire_scope_value out[GP_WIRE_DEVICES];
    struct gp_wire_scope_value peaks;
    bool open = row >= 0 && model[row].handle == handle && handle >= 0;
    int read = gp_session_scope_read(handle, 5, &peaks), read_absent = gp_session_scope_read(handle, 6, &peaks);
    cr_assert_eq(read, open ? 0 : -ENOENT);
    cr_assert_eq(read_absent, open ? -ENODEV : -ENOENT);
    cr_assert_eq(gp_session_scope_end(handle, out), open ? 0 : -ENOENT);
    if (open) {
        cr_assert(out[64].reserved_peak_bytes == 1000 * row + 64);
        cr_assert_eq(test_session.scopes[row].in_use, 0);
        model[row].handle = -1;
    }
}

/* Random beginnings and ends, with few names, a clock that may stand still, and handles of scopes that have ended. */
Test(publish, scopes_against_a_model)
{
    static const char *const names[] = {"a", "b", "a long name with just as many letters as", "c"};
    static int old[64];
    unsigned state = 7;
    struct gp_session_hooks hooks = test_hooks();
    test_open(&hooks);
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++)
        model[i].handle = -1;
    cr_expect_eq(gp_session_scope_begin("", false), -EINVAL);
    cr_expect_eq(gp_session_scope_begin("", true), -EINVAL);
    for (unsigned turn = 0; turn < 20000; turn++) {
        state = state * 1664525u + 1013904223u;
        unsigned random = state >> 8;
        char name[40];
        snprintf(name, sizeof(name), "%s", names[random % 4]);
        int newest = model_newest(name);
        cr_assert_eq(gp_session_scope_find(name), newest < 0 ? -ENOENT : model[newest].handle, "turn %u", turn);
        test_now += random >> 4 & 1;
        int row = (int)(random >> 6) % (int)GP_WIRE_SCOPES;
        if ((random >> 12) % (turn % 2000 < 1000 ? 3 : 2))
            begin_scope(name, random >> 5 & 1);
        else if (random >> 16 & 3) {
            int handle = model[row].handle;
            old[turn % 64] = handle;
            end_scope(row, handle);
        } else {
            int handle = old[random % 64];
            end_scope(handle >= 0 ? handle % (int)GP_WIRE_SCOPES : -1, handle);
        }
    }
    cr_expect_eq(gp_session_scope_read(-1, 0, &(struct gp_wire_scope_value){0}), -ENOENT);
    test_scope_error = -EBUSY;
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++)
        if (model[i].handle >= 0)
            gp_session_scope_end(model[i].handle, (struct gp_wire_scope_value[GP_WIRE_DEVICES]){0});
    cr_expect_eq(gp_session_scope_begin("a", false), -EBUSY);
    cr_expect_eq(gp_session_scope_find("a"), -ENOENT);
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

#define NEXT(_offset, _bytes, _count) (header->_offset + (uint64_t)header->_bytes * (_count))

Test(publish, the_layout_of_a_session)
{
    for (int wide = 0; wide < 2; wide++) {
        struct gp_session session;
        struct stat status;
        struct gp_session_size size = {.sites_bytes = 5000, .sites = true, .wide = wide};
        cr_assert_eq(gp_session_open(&session, &size), 0);
        const struct gp_wire_header *header = session.header;
        cr_expect(header->magic == GP_WIRE_MAGIC && header->abi == GP_WIRE_ABI && header->pid == (uint32_t)getpid());
        cr_expect(header->header_bytes == sizeof(*header) && header->start_ns > 0 && header->sites_offset == 0);
        cr_expect(header->devices_offset == 4096 && header->device_count == 65 && header->scope_count == 16 &&
                  header->failure_count == 64 && header->slot_count == 8);
        cr_expect_eq(header->scopes_offset, (NEXT(devices_offset, device_bytes, 65) + 4095) / 4096 * 4096);
        cr_expect_eq(header->failures_offset, NEXT(scopes_offset, scope_bytes, 16));
        cr_expect_eq(header->oom_offset, NEXT(failures_offset, failure_bytes, 64));
        cr_expect_eq(header->oom_framework_offset, NEXT(oom_offset, oom_bytes, 1));
        cr_expect_eq(header->owners_offset, NEXT(oom_framework_offset, oom_framework_bytes, 1));
        cr_expect_eq(header->cupti_offset, NEXT(owners_offset, owners_bytes, 1));
        cr_expect_eq(header->before_offset, NEXT(cupti_offset, cupti_bytes, 1));
        cr_expect_eq(header->blocks_offset, NEXT(before_offset, before_bytes, 1));
        cr_expect_eq(header->doors_offset, NEXT(blocks_offset, blocks_bytes, 1));
        cr_expect_eq(header->mailbox_offset, (NEXT(doors_offset, doors_bytes, 1) + 4095) / 4096 * 4096);
        cr_expect_eq(header->ring_offset, (NEXT(mailbox_offset, mailbox_bytes, 1) + 4095) / 4096 * 4096);
        cr_expect(header->chunk_count == (wide ? 8192 : 512) && session.chunk_count == header->chunk_count);
        cr_expect_eq(header->total_bytes, NEXT(ring_offset, chunk_bytes, header->chunk_count) + 8192);
        cr_expect(session.bytes == header->total_bytes && session.sites_bytes == 8192);
        cr_expect_eq(fstat(session.fd, &status), 0);
        cr_expect(status.st_size == (off_t)session.bytes && session.fd >= 800);
        cr_expect_eq(fcntl(session.fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        cr_expect_eq((char *)session.sites - (char *)header, (long)(header->total_bytes - 8192));
        cr_expect_eq(gp_session_sites(&session), session.sites);
        memset(session.sites, 1, 8192);
        gp_session_show_sites(&session);
        cr_expect(header->sites_offset == header->total_bytes - 8192 && header->sites_bytes == 8192);
        cr_expect_eq(session.mailbox->drain_tid, (uint32_t)getpid());
        cr_expect(gp_session_owns(&session));
        int fd = session.fd;
        gp_session_drop(&session);
        cr_expect(session.fd == -1 && fcntl(fd, F_GETFD) < 0 && !gp_session_owns(&session));
    }
}

/* Another file has the descriptor's number: it stays open. */
Test(publish, a_descriptor_of_the_program)
{
    struct gp_session session;
    for (int way = 0; way < 2; way++) {
        cr_assert_eq(gp_session_open(&session, &(struct gp_session_size){.sites_bytes = 0}), 0);
        cr_expect_null(gp_session_sites(&session));
        int fd = session.fd, other = way ? memfd_create("other", 0) : open("/dev/null", O_RDONLY);
        cr_assert_eq(dup2(other, fd), fd);
        cr_expect(!gp_session_owns(&session));
        if (way)
            gp_session_drop(&session);
        else
            gp_session_forget(&session);
        cr_expect_eq(fcntl(fd, F_GETFD), 0);
        close(fd);
    }
    session.header = NULL;
    cr_expect(!gp_session_owns(&session));
    cr_assert_eq(gp_session_open(&session, &(struct gp_session_size){.sites_bytes = 0}), 0);
    int fd = session.fd;
    gp_session_forget(&session);
    cr_expect_lt(fcntl(fd, F_GETFD), 0);
}

/* Nothing stays of a session that cannot be made. Without room for the tables of the call sites there is one without them,
 * unless they are needed. */
/* With sanitizers the library leaves these two to the C library (base/glibc.h). */
static bool can_fail(const char *call)
{
    return !GP_TEST_SANITIZED || (strcmp(call, "memfd") != 0 && strcmp(call, "getrandom") != 0);
}

Test(publish, a_session_that_cannot_be_made)
{
    static const char *const calls[] = {"memfd", "ftruncate", "mmap", "mprotect"};
    for (unsigned call = !can_fail("memfd"); call < 4; call++)
        for (int needed = 0; needed < 2; needed++)
            for (int bytes = 0; bytes < 2; bytes++) {
                struct gp_session session = {0};
                struct gp_session_size size = {.sites_bytes = bytes ? 8192 : 0, .sites = needed};
                unsigned files = open_above(0);
                long long before = mapped;
                fails.call = calls[call];
                fails.number = 1;
                fails.error = ENOMEM;
                bool retried = bytes && !needed, asks = call < 3 || (bytes && !needed);
                int rc = gp_session_open(&session, &size);
                cr_expect_eq(rc, retried || !asks ? 0 : -ENOMEM, "%s %d %d: %d", calls[call], needed, bytes, rc);
                fails.number = 0;
                if (rc == 0) {
                    cr_expect_eq(session.sites != NULL, bytes && !retried);
                    cr_expect_eq(mapped - before, (long long)session.bytes);
                    munmap(session.header, session.bytes);
                    gp_session_drop(&session);
                }
                cr_expect_eq(open_above(0), files, "%s", calls[call]);
                cr_expect_eq(mapped, before, "%s", calls[call]);
            }
}

Test(publish, a_session_has_an_id_without_random_numbers)
{
    struct gp_session session;
    uint64_t id[2];
    if (!can_fail("getrandom"))
        cr_skip("the C library asks for random numbers here");
    fails.call = "getrandom";
    fails.number = 1;
    fails.error = EAGAIN;
    cr_assert_eq(gp_session_open(&session, &(struct gp_session_size){.sites_bytes = 0}), 0);
    memcpy(id, session.header->session_id, sizeof(id));
    cr_expect(id[0] == session.inode && id[1] == 0);
    cr_assert_eq(gp_session_open(&session, &(struct gp_session_size){.sites_bytes = 0}), 0);
    memcpy(id, session.header->session_id, sizeof(id));
    cr_expect(id[0] && id[0] != session.inode && id[1]);
}

/* The number is high, or in the upper half where few are allowed. */
Test(publish, high_descriptors)
{
    static const int limits[][2] = {{2000, 800}, {865, 800}, {864, 432}, {200, 100}};
    for (unsigned i = 0; i < 4; i++) {
        struct rlimit limit = {(rlim_t)limits[i][0], 4096};
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = (rlim_t)limits[i][0];
        cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        cr_assert_eq(gp_extents_lay(), limits[i][1], "%d", limits[i][0]);
        gp_extents_drop();
        cr_expect_lt(fcntl(limits[i][1], F_GETFD), 0);
    }
}

/* ---- extents ----------------------------------------------------------------------------------------------------- */

static struct gp_wire_extents head;
static struct gp_wire_extent *extents;

static void load_extents(int fd)
{
    struct stat status;
    cr_assert_eq(pread(fd, &head, sizeof(head), 0), (ssize_t)sizeof(head));
    cr_assert_eq(fstat(fd, &status), 0);
    cr_assert_eq(status.st_size, (off_t)(sizeof(head) + head.count * sizeof(*extents)));
    extents = realloc(extents, head.count * sizeof(*extents) + 1);
    cr_assert_eq(pread(fd, extents, head.count * sizeof(*extents), sizeof(head)),
                 (ssize_t)(head.count * sizeof(*extents)));
}

static void is_extent(unsigned i, const struct gp_wire_extent *want)
{
    cr_expect_eq(memcmp(&extents[i], want, sizeof(*want)), 0,
                 "extent %u: %lx+%lx of %lx on %lx what %u state %u flags %u", i, extents[i].address, extents[i].bytes,
                 extents[i].requested_bytes, extents[i].stream, extents[i].what, extents[i].state, extents[i].flags);
}

/* All of them, however many there are, the cache's first. */
Test(publish, extents_of_any_number)
{
    static const uint32_t counts[] = {0, 1, 4090, 4091, 4092, 6138, 6144, 12345};
    test_now = 9 * SECOND;
    for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        test_blocks = counts[c];
        unsigned files = open_above(0);
        int fd = gp_extents_lay();
        cr_assert_geq(fd, 800);
        cr_expect_eq(gp_extents_lay(), -EBUSY);
        load_extents(fd);
        cr_expect(head.magic == GP_WIRE_MAGIC && head.begin_ns == test_now && head.end_ns == test_now &&
                  head.missed == 0 && head.piece_bytes == sizeof(*extents));
        cr_assert_eq(head.count, 5 + counts[c]);
        is_extent(0, &(struct gp_wire_extent){.address = 0x90000,
                                              .bytes = 0x1000,
                                              .stream = 5,
                                              .pool = 6,
                                              .what = GP_EXTENT_SEGMENT,
                                              .kind = GP_KIND_LINEAR,
                                              .flags = GPUPROF_OURS | GPUPROF_GROWABLE,
                                              .device = 2});
        is_extent(1, &(struct gp_wire_extent){0x90000, 0x400, 0x300, 7, 6, 9, 8, GP_EXTENT_BLOCK, GP_CACHE_LIVE,
                                              GP_KIND_LINEAR, 0, 2, 0});
        is_extent(2, &(struct gp_wire_extent){0x90400, 0xc00, 0, 0, 6, 0, 0, GP_EXTENT_BLOCK, GP_CACHE_IDLE,
                                              GP_KIND_LINEAR, 0, 2, 0});
        is_extent(3, &(struct gp_wire_extent){0xa0000, 0x1000, 0, INT64_MAX, 0, 0, 0, GP_EXTENT_SEGMENT, 0,
                                              GP_KIND_LINEAR, GPUPROF_OURS | GPUPROF_SMALL, 2, 0});
        is_extent(4, &(struct gp_wire_extent){0xa0000, 0x1000, 0, 0, 0, 4, 3, GP_EXTENT_BLOCK, GP_CACHE_WAITING,
                                              GP_KIND_LINEAR, 0, 2, 0});
        for (uint32_t i = 0; i < counts[c]; i++)
            is_extent(5 + i, &(struct gp_wire_extent){0x1000 + i * 0x100ull, 256, 200, 0, 0, 5 + i, i % 7,
                                                      GP_EXTENT_WHOLE, GPUPROF_LIVE, GP_KIND_LINEAR, 0, 1, 0});
        cr_expect_eq(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        gp_extents_drop();
        gp_extents_drop();
        cr_expect_eq(open_above(0), files);
    }
}

static unsigned seen_gpus;

static void count_extent(void *arg, const struct gp_wire_extent *piece)
{
    (void)arg;
    seen_gpus += piece->device == 2;
}

Test(publish, extents_of_one_device)
{
    static const struct {
        unsigned index, seen;
        const char *notes;
    } cases[] = {{2, 5, "blocks 2\n"},
                 {1, 0, "blocks 1\n"},
                 {GP_WIRE_HOST, 0, "blocks 64\n"},
                 {GP_EXTENTS_EVERY, 5, "blocks -1\n"}};
    for (unsigned i = 0; i < 4; i++) {
        seen_gpus = 0;
        test_notes[0] = '\0';
        gp_extents_walk(cases[i].index, NULL, count_extent, NULL);
        cr_expect_eq(seen_gpus, cases[i].seen, "%u", i);
        cr_expect_str_eq(test_notes, cases[i].notes);
    }
}

/* A write that fails leaves no memfd, and the next one succeeds. */
Test(publish, extents_that_cannot_be_written)
{
    static const struct {
        const char *call;
        unsigned number;
        int error, result;
    } cases[] = {{"pwrite", 1, ENOSPC, -ENOSPC}, {"pwrite", 2, ENOMEM, -ENOMEM}, {"pwrite", 3, ENOSPC, -ENOSPC},
                 {"pwrite", 1, -1, -EIO},        {"pwrite", 1, -2, 0},           {"pwrite", 2, -2, 0},
                 {"memfd", 1, EMFILE, -EMFILE}};
    test_blocks = 5000;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]) && can_fail(cases[i].call); i++) {
        unsigned files = open_above(0);
        fails.call = cases[i].call;
        fails.number = cases[i].number;
        fails.error = cases[i].error;
        int fd = gp_extents_lay();
        cr_expect_eq(fd < 0 ? fd : 0, cases[i].result, "%u: %d", i, fd);
        fails.number = 0;
        if (fd >= 0) {
            load_extents(fd);
            cr_expect_eq(head.count, 5005);
            cr_expect_eq(extents[5004].time_ns, 5 + 4999);
            gp_extents_drop();
        }
        cr_expect_eq(open_above(0), files, "%u", i);
    }
}

/* The program has put another file in its place: it stays open. And a child closes its copy. */
Test(publish, the_descriptor_of_the_extents)
{
    int fd = gp_extents_lay();
    cr_assert_eq(dup2(memfd_create("other", 0), fd), fd);
    gp_extents_drop();
    cr_expect_eq(fcntl(fd, F_GETFD), 0);
    close(fd);
    fd = gp_extents_lay();
    gp_extents_fork_begin();
    gp_extents_forget();
    cr_expect_lt(fcntl(fd, F_GETFD), 0);
    gp_extents_fork_begin(); /* the door is open */
    gp_extents_fork_end();
    fd = gp_extents_lay();
    cr_expect_geq(fd, 0);
    gp_extents_drop();
}
