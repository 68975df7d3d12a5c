/* SPDX-License-Identifier: MIT
 * test_session.c: the reader of sessions reports every damage and survives everything.  Run by the unit tests. */
#include <gpuprof/wire.h>
#include <lib/full.h>
#include <lib/random.h>
#include <lib/session.h>
#include <read/collect/collect.h>
#include <read/collect/peer.h>
#include <session/session.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void make(struct gp_test_session *s)
{
    cr_assert_eq(gp_test_session_make(s, 8, true), 0);
    gp_test_session_device(s, 0, "Simulated GPU 0", 1 << 20);
    gp_test_session_host(s, 4096);
    gp_test_session_scope(s, 3, "step", 99);
    s->failures[1] = (struct gp_wire_failure){.api = "cuMemCreate", .error = 2, .count = 9};
    gp_test_session_publish(s);
}

static int load(const struct gp_test_session *s, struct gp_peer *session, char problem[GP_PROBLEM_BYTES])
{
    problem[0] = '\0';
    return gp_peer_adopt(session, dup(s->fd), problem);
}

static void read_all(const struct gp_test_session *s, struct gp_process *process)
{
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    memset(process, 0, sizeof(*process));
    cr_assert_eq(load(s, &session, problem), 0, "%s", problem);
    cr_assert_eq(gp_peer_read(&session, process), 0);
    gp_peer_close(&session);
}

Test(session, seals_and_file_types)
{
    struct gp_test_session s;
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES] = "";
    cr_assert_eq(gp_test_session_make(&s, 8, false), 0);
    cr_assert_eq(load(&s, &session, problem), -EPROTO);
    cr_assert(strstr(problem, "sealed"), "%s", problem);
    s.header->magic = 0;
    cr_assert_eq(load(&s, &session, problem), -ENOENT, "a session in the making is not damaged");
    cr_assert_eq(fcntl(s.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    s.header->magic = GP_WIRE_MAGIC;
    cr_assert_eq(load(&s, &session, problem), -EPROTO, "two of three seals");
    gp_test_session_free(&s);

    int file = open(".", O_TMPFILE | O_RDWR, 0600);
    if (file >= 0) {
        cr_assert_eq(gp_peer_adopt(&session, file, problem), -EPROTO);
        cr_assert(strstr(problem, "memfd"), "%s", problem);
    }
    int small = memfd_create("small", MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(small, 100), 0);
    cr_assert_eq(fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    cr_assert_eq(gp_peer_adopt(&session, small, problem), -EPROTO);
    cr_assert(strstr(problem, "shorter"), "%s", problem);
}

Test(session, strings_are_cleaned)
{
    struct gp_test_session s;
    struct gp_process p;
    make(&s);
    memset(s.header->trouble, 'x', sizeof(s.header->trouble)); /* no NUL */
    snprintf(s.header->stacks_detail, sizeof(s.header->stacks_detail), "too\033new");
    strcpy(s.devices[0].name, "Bad\033[2J\n\xff\xc0\xaf Gr\xc3\xb6\xc3\x9f");
    memset(s.scopes[3].name, '\x9b', sizeof(s.scopes[3].name));
    memset(s.failures[1].api, 'A', sizeof(s.failures[1].api));
    read_all(&s, &p);
    cr_assert_eq(strlen(p.trouble), sizeof(p.trouble) - 1);
    cr_assert(strncmp(p.stacks, "too", 3) == 0 && !strchr(p.stacks, '\033') && strstr(p.stacks, "new"), "%s", p.stacks);
    cr_assert_str_eq(p.devices[0].name, "Bad?[2J???? Gr\xc3\xb6\xc3\x9f");
    cr_assert_eq(strspn(p.scopes[0].name, "?"), strlen(p.scopes[0].name));
    cr_assert_eq(strlen(p.failures[0].api), sizeof(p.failures[0].api) - 1);
    cr_assert_eq(p.devices[0].wire.name[0], 0, "only the cleaned name may be used");
    gp_peer_drop(&p);
    gp_test_session_free(&s);
}

/* ---- the owner publishes while it is read ---------------------------------------------------------------------- */

struct publisher {
    struct gp_test_session *s;
    uint32_t running; /* atomic */
};

/* The same number in the first and in the last word that a reader copies, and a pause between publications in which it
 * can succeed. */
static void *publish_often(void *argument)
{
    struct publisher *p = argument;
    for (int64_t n = 1; __atomic_load_n(&p->running, __ATOMIC_ACQUIRE); n++) {
        __atomic_exchange_n(&p->s->header->publish_seq, p->s->header->publish_seq + 1, __ATOMIC_SEQ_CST);
        __atomic_store_n(&p->s->devices[0].total_bytes, n, __ATOMIC_RELAXED);
        __atomic_store_n(&p->s->devices[GP_WIRE_HOST].linear_rounded_bytes, n, __ATOMIC_RELAXED);
        __atomic_store_n(&p->s->header->publish_seq, p->s->header->publish_seq + 1, __ATOMIC_RELEASE);
        for (int i = 0; i < (n % 8 ? 2000 : 200000); i++)
            __asm__ volatile("");
    }
    return NULL;
}

Test(session, publications_are_never_torn, .timeout = 60)
{
    struct gp_test_session s;
    struct gp_process p;
    pthread_t thread;
    int good = 0;
    make(&s);
    s.devices[0].total_bytes = s.devices[GP_WIRE_HOST].linear_rounded_bytes = 0;
    struct publisher publisher = {.s = &s, .running = 1};
    cr_assert_eq(pthread_create(&thread, NULL, publish_often, &publisher), 0);
    for (int i = 0; i < 2000; i++) {
        read_all(&s, &p);
        if (p.state == GP_PROCESS_STALE) {
            good++;
            cr_assert_eq(p.devices[0].wire.total_bytes, p.devices[1].wire.linear_rounded_bytes, "torn");
        }
        gp_peer_drop(&p);
    }
    __atomic_store_n(&publisher.running, 0, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    cr_assert_gt(good, 200);
    gp_test_session_free(&s);
}

/* ---- another process changes the session while it is read ----------------------------------------------------- */

struct mutator {
    struct gp_test_session *s;
    size_t bytes;
    uint32_t running; /* atomic */
    uint64_t flips;
};

static void *mutate(void *argument)
{
    struct mutator *m = argument;
    uint64_t x = RANDOM_SEED;
    while (__atomic_load_n(&m->running, __ATOMIC_ACQUIRE)) {
        random_next(&x);
        uint8_t *byte = (uint8_t *)m->s->map + x % (x >> 60 ? m->bytes : sizeof(struct gp_wire_header));
        uint8_t was = __atomic_load_n(byte, __ATOMIC_RELAXED);
        __atomic_store_n(byte, (uint8_t)(was ^ (x >> 40)), __ATOMIC_RELAXED);
        for (int i = 0; i < 200; i++)
            __asm__ volatile("");
        __atomic_store_n(byte, was, __ATOMIC_RELAXED);
        m->flips++;
    }
    return NULL;
}

static void check_bounds(const struct gp_process *p)
{
    cr_assert(p->device_count >= 0 && p->device_count <= (int)GP_WIRE_DEVICES);
    cr_assert(p->scope_count >= 0 && p->scope_count <= (int)GP_WIRE_SCOPES);
    cr_assert(p->failure_count >= 0 && p->failure_count <= (int)GP_WIRE_FAILURES);
    cr_assert(memchr(p->trouble, 0, sizeof(p->trouble)) && memchr(p->allocator, 0, sizeof(p->allocator)));
    for (int d = 0; d < p->device_count; d++) {
        cr_assert(p->devices[d].index >= 0 && p->devices[d].index < (int)GP_WIRE_DEVICES);
        cr_assert(memchr(p->devices[d].name, 0, sizeof(p->devices[d].name)));
        for (int i = 0; i < GP_STATS; i++)
            cr_assert_geq(p->devices[d].wire.stats[i][GP_POOL_ALL].current, 0);
    }
}

Test(session, live_mutator, .timeout = 300)
{
    struct gp_test_session s;
    const char *count = getenv("GP_TEST_MUTATOR_READS");
    int reads = count ? atoi(count) : test_is_full() ? 100000 : 20000, damaged = 0, refused = 0;
    make(&s);
    struct mutator m = {.s = &s, .bytes = (size_t)s.header->mailbox_offset, .running = 1};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, mutate, &m), 0);
    for (int i = 0; i < reads; i++) {
        struct gp_peer session;
        char problem[GP_PROBLEM_BYTES];
        if (load(&s, &session, problem) != 0) {
            refused++;
            continue;
        }
        struct gp_process p;
        memset(&p, 0, sizeof(p));
        cr_assert_eq(gp_peer_read(&session, &p), 0);
        check_bounds(&p);
        damaged += p.state == GP_PROCESS_DAMAGED;
        gp_peer_drop(&p);
        gp_peer_close(&session);
    }
    __atomic_store_n(&m.running, 0, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    fprintf(stderr, "live mutator: %d reads, %llu flips, %d refused, %d damaged\n", reads, (unsigned long long)m.flips,
            refused, damaged);
    cr_assert_gt(m.flips, 1000);
    if (reads >= 100000)
        cr_assert_gt(refused + damaged, 0, "the mutator must have been seen at least once");
    gp_test_session_free(&s);
}

/* ---- the room for call sites ------------------------------------------------------------------------------------- */

enum { ROOM = 28 << 20 };

static int64_t file_pages(const struct gp_session *session)
{
    struct stat status;
    cr_assert_eq(fstat(session->fd, &status), 0);
    return status.st_blocks / 8;
}

Test(sites_room, costs_nothing_until_it_is_used)
{
    const struct gp_session_size size = {.sites_bytes = ROOM};
    struct gp_session session;
    cr_assert_eq(gp_session_open(&session, &size), 0);
    cr_assert(session.sites && session.sites_bytes == ROOM);
    cr_assert(session.header->sites_offset == 0 && session.header->sites_bytes == 0, "stacks are off");
    cr_assert_lt(file_pages(&session), 16);
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    cr_assert(write(ends[1], session.sites, 1) == -1 && errno == EFAULT, "not accessible");
    cr_assert_eq(gp_session_sites(&session), session.sites);
    ((volatile char *)session.sites)[ROOM - 1] = 1;
    cr_assert_lt(file_pages(&session), 16);
    gp_session_show_sites(&session);
    cr_assert_eq((char *)session.header + session.header->sites_offset, (char *)session.sites);
    cr_assert_eq(session.header->sites_offset + session.header->sites_bytes, session.header->total_bytes);
}

Test(sites_room, a_limit_leaves_a_session_without_it)
{
    struct gp_session_size size = {.sites_bytes = ROOM};
    struct gp_session session = {0};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){8 << 20, 8 << 20}), 0);
    cr_assert_eq(gp_session_open(&session, &size), 0);
    cr_assert(!session.sites && !gp_session_sites(&session));
    cr_assert_lt(session.header->total_bytes, 8u << 20);
    size.sites = true;
    cr_assert_eq(gp_session_open(&session, &size), -EFBIG, "they were asked for");
}

/* A file may be as large as the limit, and not one byte larger. */
Test(sites_room, a_limit_to_the_byte)
{
    const struct gp_session_size size = {.sites_bytes = ROOM, .sites = true};
    struct gp_session session = {0};
    cr_assert_eq(gp_session_open(&session, &size), 0);
    struct rlimit limit = {session.header->total_bytes, RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(gp_session_open(&session, &size), 0);
    limit.rlim_cur--;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(gp_session_open(&session, &size), -EFBIG);
}

/* Limits of file sizes around those of a session with and without the room.  No signal kills the program. */
Test(sites_room, a_limit_counts_to_the_byte)
{
    struct gp_session_size size = {.sites_bytes = ROOM};
    struct gp_session session = {0};
    cr_assert_eq(gp_session_open(&session, &size), 0);
    uint64_t with = session.header->total_bytes, without = with - ROOM;
    const struct {
        uint64_t limit;
        int result;
        bool room;
    } cases[] = {{RLIM_INFINITY, 0, true},     {with + 1, 0, true},     {with, 0, true},
                 {with - 1, 0, false},         {without + 1, 0, false}, {without, 0, false},
                 {without - 1, -EFBIG, false}, {1, -EFBIG, false},      {0, -EFBIG, false}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        session = (struct gp_session){0};
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){cases[i].limit, RLIM_INFINITY}), 0);
        int result = gp_session_open(&session, &size);
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}), 0);
        cr_assert_eq(result, cases[i].result, "limit %llu: %d", (unsigned long long)cases[i].limit, result);
        if (result != 0)
            continue;
        cr_assert_eq(session.sites != NULL, cases[i].room, "limit %llu", (unsigned long long)cases[i].limit);
        cr_assert_eq(session.bytes, cases[i].room ? with : without);
        cr_assert_eq(session.header->total_bytes, session.bytes);
        cr_assert(gp_session_owns(&session));
        gp_session_drop(&session);
        cr_assert(session.fd == -1 && !gp_session_owns(&session));
        gp_session_drop(&session);
    }
}
