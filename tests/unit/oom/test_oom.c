/* SPDX-License-Identifier: MIT
 *
 * test_oom.c: the out-of-memory report: facts into the session, the session read back whatever it contains, and a page.
 * test_oom_page.c and test_oom_advice.c have the page and its advice, number by number.
 */
#include "lib/accounts.h"
#include <account/feed/context.h>
#include <account/feed/failed.h>
#include <account/feed/feed.h>
#include <account/feed/poll.h>
#include <account/feed/start.h>
#include <account/feed/vmm.h>
#include <base/thread.h>
#include <cache/policy.h>
#include <cmd/cmd.h>
#include <gpuprof/wire.h>
#include <lib/session.h>
#include <oom/oom.h>
#include <read/collect/collect.h>
#include <read/collect/peer.h>
#include <show/text/write.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ll << 20)
#define GIB (1ll << 30)

/* ---- the page ------------------------------------------------------------------------------------------------- */

/* The case of the k8s article: 10.63 GiB reserved, 7.92 allocated, and a request for 1 GiB
 * fails. */
static struct gp_wire_oom k8s(void)
{
    struct gp_wire_oom oom = {
        .seq = 2,
        .count = 1,
        .time_ns = 5000000000,
        .api = "cuMemAlloc_v2",
        .error = 2,
        .flags = GP_OOM_CACHE | GP_OOM_DRIVER,
        .tid = 4712,
        .asked_bytes = (uint64_t)GIB,
        .free_bytes = 384 * MIB,
        .total_bytes = 12 * GIB,
        .reserved_bytes = (int64_t)(10.63 * GIB),
        .allocated_bytes = (int64_t)(7.92 * GIB),
        .idle_bytes = (int64_t)(2.71 * GIB),
        .largest_idle_bytes = 100 * MIB,
        .idle_pieces = 214,
        .pinning_blocks = 27,
        .policy = "pytorch",
        .holder_count = 2,
        .holders = {{(uint64_t)(256 * MIB), 24, 0, GP_KIND_LINEAR, {0}},
                    {(uint64_t)(96 * MIB), 18, 0, GP_KIND_LINEAR, {0}}},
        .rest_bytes = (int64_t)(0.23 * GIB),
        .rest_count = 911,
    };
    oom.kinds[GP_KIND_LINEAR] = oom.allocated_bytes;
    return oom;
}

static struct gp_oom_facts facts_of(const struct gp_wire_oom *oom)
{
    return (struct gp_oom_facts){.oom = oom,
                                 .pid = 4711,
                                 .comm = "serve",
                                 .device_name = "Simulated GPU 0",
                                 .start_ns = 1000000000,
                                 .total_bytes = -1,
                                 .untracked_bytes = 300 * MIB};
}

static void check_page(const char *page, size_t length)
{
    unsigned lines = 0;
    cr_assert_eq(strlen(page), length);
    for (const char *at = page; *at; at = strchr(at, '\n') + 1, lines++) {
        cr_assert(strchr(at, '\n'), "no newline: %s", at);
        cr_assert_leq(strchr(at, '\n') - at, GP_OOM_PAGE_COLUMNS, "too wide: %.*s", (int)(strchr(at, '\n') - at), at);
    }
    cr_assert_leq(lines, GP_OOM_PAGE_LINES);
    cr_assert_geq(lines, 2);
}

static void expect_words(const struct gp_wire_oom *oom, const char *const *words)
{
    char page[GP_OOM_PAGE_BYTES], flat[GP_OOM_PAGE_BYTES];
    struct gp_oom_facts facts = facts_of(oom);
    check_page(page, gp_oom_page(page, sizeof(page), &facts));
    size_t used = 0; /* wrapped lines joined again */
    for (const char *at = page; *at; at++)
        if (!((*at == ' ' || *at == '\n') && used && flat[used - 1] == ' '))
            flat[used++] = *at == '\n' ? ' ' : *at;
    flat[used] = '\0';
    for (; *words; words++)
        cr_expect(strstr(flat, *words), "no '%s' in:\n%s", *words, page);
}

Test(oom, the_page_answers_the_article)
{
    struct gp_wire_oom oom = k8s();
    expect_words(&oom,
                 (const char *const[]){"Out of memory on device 0 (Simulated GPU 0): cuMemAlloc_v2 asked for 1 GiB",
                                       "PID 4711 serve, thread 4712, 4.000 s after the start",
                                       "12 GiB in total, 384 MiB free then", "10.63 GiB reserved", "7.92 GiB allocated",
                                       "2.71 GiB cached in 214 pieces, largest 100 MiB, pinned by 27 live blocks",
                                       "no piece is large enough", "held by other processes", "linear 24 256 MiB 6 GiB",
                                       "the rest 911", "expandable_segments:True (or", "max_split_size_mb:512", NULL});
}

Test(oom, the_page_says_what_it_does_not_know)
{
    struct gp_wire_oom oom = k8s();
    oom.flags = GP_OOM_PENDING;
    oom.free_bytes = oom.total_bytes = -1;
    oom.count = 3;
    expect_words(&oom,
                 (const char *const[]){"an unknown size in total", "the program ended before the driver could be asked",
                                       "the last of 3 such failures", NULL});
    oom.device = -1;
    oom.asked_bytes = 0;
    oom.reserved_bytes = oom.allocated_bytes = -1;
    oom.holder_count = 0;
    expect_words(&oom, (const char *const[]){"Out of memory on an unknown device: cuMemAlloc_v2 failed", NULL});
    oom.device = (int32_t)GP_WIRE_HOST;
    expect_words(&oom, (const char *const[]){"Out of memory on the host", NULL});
}

/* The widest and longest values that a session may contain. */
Test(oom, the_page_stays_a_page)
{
    struct gp_wire_oom oom = k8s();
    char page[GP_OOM_PAGE_BYTES];
    memset(oom.api, 'a', sizeof(oom.api) - 1);
    memset(oom.conf, 'c', sizeof(oom.conf) - 1);
    oom.flags = GP_OOM_CACHE | GP_OOM_DRIVER | GP_OOM_PARTIAL;
    oom.count = UINT64_MAX;
    oom.stream = UINT64_MAX;
    oom.waiting_bytes = 1;
    oom.pool_reserved_bytes = oom.graph_reserved_bytes = 1ll << 60;
    oom.holders_ns = 1;
    oom.holder_count = GP_OOM_HOLDERS;
    for (unsigned i = 0; i < GP_KINDS; i++)
        oom.kinds[i] = (1ll << 60) - 12345;
    for (unsigned i = 0; i < GP_OOM_HOLDERS; i++)
        oom.holders[i] = (struct gp_wire_oom_holder){UINT64_MAX, UINT64_MAX, 0, GP_KIND_REGISTERED, {0}};
    oom.kinds[GP_KIND_POOL] = 0;
    struct gp_oom_facts facts = facts_of(&oom);
    facts.device_name = "a name of a device that is as long as the field allows it to be ..";
    size_t length = gp_oom_page(page, sizeof(page), &facts);
    check_page(page, length);
    cr_assert(strstr(page, "- "), "no advice left on the page:\n%s", page);
    for (size_t room = 0; room < length; room += 7) {
        char small[GP_OOM_PAGE_BYTES];
        memset(small, 'x', sizeof(small));
        size_t used = gp_oom_page(small, room, &facts);
        cr_assert(used < room || room == 0);
        cr_assert(room == 0 || small[used] == '\0');
        cr_assert_eq(small[room], 'x');
    }
}

/* ---- capture -------------------------------------------------------------------------------------------------- */

static struct gp_wire_oom wire;

static void start_accounts(void)
{
    accounts_start(8, (struct gp_feed_setup){.oom = &wire, .map_limit = 1 << 20});
    cr_assert(gp_thread_enter());
}

static void cached_blocks(int device, void *arg, gp_feed_block_fn *visit)
{
    for (int i = 0; i < 3 && device == 0; i++)
        visit(arg, 7, 5000);
}

Test(oom, a_failure_is_written_down_at_once)
{
    start_accounts();
    for (uint64_t i = 0; i < 20; i++)
        accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 0, 0x1000000 + i * 0x100000, 1000 + 100 * (i / 2));
    accounts_block(GP_SPACE_DEVICE, GP_KIND_POOL, 0, 0x9000000, 1 << 20);
    accounts_block(GP_SPACE_DEVICE, GP_KIND_MANAGED, 0, 0xa000000, 1 << 30); /* not held from the device */
    accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 1, 0xb000000, 1 << 30);
    gp_feed_vmm_create(77, 2 << 20, 0);
    gp_feed_oom_walker(cached_blocks);
    gp_feed_failed("cuMemAlloc_v2", 1, 5, 0, GP_KIND_LINEAR);
    cr_assert_eq(wire.count, 0, "not every failure is for lack of memory");
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 1 << 30, 0, GP_KIND_LINEAR);
    cr_assert_eq(wire.seq, 2);
    cr_assert_eq(wire.count, 1);
    cr_assert_eq(wire.asked_bytes, 1 << 30);
    cr_assert_str_eq(wire.api, "cuMemAlloc_v2");
    cr_assert_eq(wire.tid, (uint32_t)gettid());
    cr_assert_eq(wire.free_bytes, -1);
    cr_assert_eq(wire.kinds[GP_KIND_LINEAR], 20 * 1000 + 2 * 100 * 45);
    cr_assert_eq(wire.reserved_bytes, 20 * 1000 + 2 * 100 * 45 + (2 << 20) + (1 << 20));
    cr_assert_eq(wire.pool_reserved_bytes, 1 << 20, "what was handed out of it, before any poll");
    cr_assert_eq(wire.kinds[GP_KIND_VMM], 2 << 20);
    /* 2 MiB, 1 MiB, the cache's 3 x 5000, then the pairs from 1900 down: 13 groups, so one
     * belongs to the rest. */
    cr_assert_eq(wire.holder_count, 12);
    cr_assert_eq(wire.holders[0].kind, GP_KIND_VMM);
    cr_assert_eq(wire.holders[1].kind, GP_KIND_POOL);
    cr_assert_eq(wire.holders[2].block_bytes, 5000);
    cr_assert_eq(wire.holders[2].count, 3);
    cr_assert_eq(wire.holders[2].site, 7);
    for (unsigned i = 3; i < 12; i++) {
        cr_assert_eq(wire.holders[i].block_bytes, 1900 - (i - 3) * 100);
        cr_assert_eq(wire.holders[i].count, 2);
    }
    cr_assert_eq(wire.rest_bytes, 2000);
    cr_assert_eq(wire.rest_count, 2);
    gp_feed_oom_walker(NULL);
}

/* More sizes than the table can hold: the largest are still found, and no bytes are lost. */
Test(oom, many_sizes_keep_the_largest_and_the_sum)
{
    uint64_t sum = 0, told = 0;
    start_accounts();
    for (uint64_t i = 0; i < 40000; i++) {
        uint64_t bytes = 512 + i * 8 % 160001;
        sum += bytes;
        accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 0, 0x100000000 + i * 0x100000, bytes);
    }
    for (uint64_t i = 0; i < 12; i++) {
        sum += (100 + i) << 20;
        accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 0, 0x10000000 + i * 0x100000, (100 + i) << 20);
    }
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 1 << 30, 0, GP_KIND_LINEAR);
    cr_assert(wire.flags & GP_OOM_PARTIAL);
    for (unsigned i = 0; i < wire.holder_count; i++) {
        cr_assert_eq(wire.holders[i].block_bytes, (111ull - i) << 20);
        told += wire.holders[i].block_bytes * wire.holders[i].count;
    }
    cr_assert_eq(told + (uint64_t)wire.rest_bytes, sum);
    cr_assert_eq(wire.rest_count, 40000);

    /* At once again: the list of before stays, if it is of the same device. */
    struct gp_wire_oom first = wire;
    gp_feed_failed("cuMemCreate", GP_ERROR_OUT_OF_MEMORY, 5, 0, GP_KIND_LINEAR);
    cr_assert_eq(wire.count, 2);
    cr_assert_eq(wire.holders_ns, first.holders_ns);
    cr_assert_eq(wire.holder_count, first.holder_count);
    cr_assert_eq(memcmp(wire.holders, first.holders, sizeof(first.holders)), 0);
    cr_assert(wire.rest_bytes == first.rest_bytes && wire.rest_count == first.rest_count);
    cr_assert(wire.flags & GP_OOM_PARTIAL);
    accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 1, 0x20000000, 4096);
    gp_feed_failed("cuMemCreate", GP_ERROR_OUT_OF_MEMORY, 5, 1, GP_KIND_LINEAR);
    cr_assert_eq(wire.holder_count, 1, "another device has a list of its own");
    cr_assert_eq(wire.rest_count, 0);
    cr_assert_not(wire.flags & GP_OOM_PARTIAL);
    gp_feed_failed("cuMemCreate", GP_ERROR_OUT_OF_MEMORY, 5, GP_DEVICE_UNKNOWN, GP_KIND_LINEAR);
    cr_assert_eq(wire.device, -1);
    cr_assert_eq(wire.holder_count, 0, "of an unknown device nothing is known");
}

Test(oom, the_cache_and_the_driver_add_what_they_know)
{
    struct gp_feed_oom facts = {.free_bytes = 7, .total_bytes = 9, .idle_bytes = UINT64_MAX, .policy = "caching"};
    struct gp_wire_oom report;
    struct gp_wire_oom_framework framework;
    uint64_t context;
    start_accounts();
    gp_feed_oom_cache(0, &facts);
    cr_assert_eq(wire.seq, 0, "no failure was recorded");
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 1 << 30, 0, GP_KIND_LINEAR);
    gp_feed_oom_cache(1, &facts);
    cr_assert_eq(wire.flags, 0, "another device's");
    cr_assert(wire.free_bytes == -1 && wire.total_bytes == -1 && wire.limit_bytes == -1 && wire.idle_bytes == -1);
    cr_assert(wire.largest_idle_bytes == -1 && wire.releasable_bytes == -1 && wire.waiting_bytes == -1);
    cr_assert(wire.idle_pieces == -1 && wire.pinning_blocks == -1);
    gp_feed_oom_cache(0, &facts);
    cr_assert_eq(wire.flags, GP_OOM_CACHE | GP_OOM_DRIVER);
    cr_assert_eq(wire.free_bytes, 7);
    cr_assert_eq(wire.idle_bytes, 1ll << 60, "readers refuse more than a machine can have");
    cr_assert_str_eq(wire.policy, "caching");
    cr_assert(gp_feed_poll_oom_report(&report, &framework) && report.count == 1);
    cr_assert_not(gp_feed_poll_oom_report(&report, &framework));

    gp_feed_context_created(3, 0);
    gp_feed_failed("cuMemCreate", GP_ERROR_OUT_OF_MEMORY, 1 << 30, 0, GP_KIND_LINEAR);
    cr_assert_not(gp_feed_poll_oom_enter(&context));
    gp_feed_oom_context(3, 0x1234);
    cr_assert(wire.flags & GP_OOM_PENDING);
    cr_assert(gp_feed_poll_oom_enter(&context));
    cr_assert_eq(context, 0x1234);
    gp_feed_poll_oom_leave(11, 13);
    cr_assert_eq(wire.flags, GP_OOM_DRIVER);
    cr_assert_eq(wire.free_bytes, 11);
    cr_assert_eq(wire.count, 2);
    cr_assert_eq(wire.seq % 2, 0);

    gp_feed_failed("cuMemCreate", GP_ERROR_OUT_OF_MEMORY, 1 << 30, 0, GP_KIND_LINEAR);
    gp_feed_oom_context(3, 0x1234);
    gp_feed_context_destroyed(3, 0, true);
    cr_assert_not(gp_feed_poll_oom_enter(&context), "a context that is gone may not be asked about");
    cr_assert_eq(wire.flags, 0);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

static void read_session(const struct gp_test_session *s, struct gp_process *process)
{
    struct gp_peer peer;
    char problem[GP_PROBLEM_BYTES] = "";
    memset(process, 0, sizeof(*process));
    cr_assert_eq(gp_peer_adopt(&peer, dup(s->fd), problem), 0, "%s", problem);
    cr_assert_eq(gp_peer_read(&peer, process), 0);
    gp_peer_close(&peer);
}

static void spoil_device(struct gp_wire_oom *oom)
{
    oom->device = 65;
}
static void spoil_count(struct gp_wire_oom *oom)
{
    oom->count = 0;
}
static void spoil_flags(struct gp_wire_oom *oom)
{
    oom->flags = 1u << 31;
}
static void spoil_error(struct gp_wire_oom *oom)
{
    oom->error = 0;
}
static void spoil_holders(struct gp_wire_oom *oom)
{
    oom->holder_count = 13;
}
static void spoil_kind(struct gp_wire_oom *oom)
{
    oom->holders[1].kind = GP_KINDS;
}
static void spoil_bytes(struct gp_wire_oom *oom)
{
    oom->idle_bytes = -2;
}
static void spoil_large(struct gp_wire_oom *oom)
{
    oom->kinds[3] = INT64_MAX;
}

Test(oom, a_session_is_read_and_damage_is_seen)
{
    static void (*const spoils[])(struct gp_wire_oom *) = {spoil_device,  spoil_count, spoil_flags, spoil_error,
                                                           spoil_holders, spoil_kind,  spoil_bytes, spoil_large};
    struct gp_test_session s;
    struct gp_process p;
    cr_assert_eq(gp_test_session_make(&s, 8, true), 0);
    gp_test_session_device(&s, 0, "Simulated GPU 0", 1 << 20);
    gp_test_session_publish(&s);
    read_session(&s, &p);
    cr_assert_eq(p.oom.count, 0);
    gp_peer_drop(&p);
    *s.oom = k8s();
    memcpy(s.oom->conf, "evil\033[2J", 9);
    memset(s.oom->api, 'x', sizeof(s.oom->api));
    read_session(&s, &p);
    cr_assert_eq(p.state, GP_PROCESS_STALE);
    cr_assert_eq(p.oom.idle_pieces, 214);
    cr_assert_str_eq(p.oom.conf, "evil?[2J");
    cr_assert_eq(strlen(p.oom.api), sizeof(p.oom.api) - 1);
    json_t *json = gp_oom_json(&p);
    cr_assert_eq(json_integer_value(json_object_get(json, "requested_bytes")), GIB);
    cr_assert(strstr(json_string_value(json_object_get(json, "page")), "214 pieces"));
    json_decref(json);
    for (unsigned flags = 0; flags < 4; flags++) {
        bool beside = flags & 1, refused = flags & 2;
        p.oom_framework.flags = GP_OOM_FRAMEWORK | (beside ? GP_OOM_BESIDE : 0) | (refused ? GP_OOM_REFUSED : 0);
        json = gp_oom_json(&p);
        const json_t *framework = json_object_get(json, "framework");
        cr_expect_eq(json_is_true(json_object_get(framework, "asked")), !beside);
        cr_expect_eq(json_is_true(json_object_get(framework, "own_limit")), refused);
        json_decref(json);
    }
    gp_peer_drop(&p);
    for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++) {
        *s.oom = k8s();
        spoils[i](s.oom);
        read_session(&s, &p);
        cr_assert_eq(p.state, GP_PROCESS_DAMAGED, "%zu", i);
        cr_assert(strstr(p.problem, "out-of-memory report"), "%s", p.problem);
        cr_assert_eq(p.oom.count, 0);
    }
    *s.oom = k8s();
    s.oom->seq = 3; /* an update that never ends */
    read_session(&s, &p);
    cr_assert_eq(p.state, GP_PROCESS_STALE);
    cr_assert_eq(p.oom.count, 0);
    gp_peer_drop(&p);
    s.header->oom_offset = s.header->oom_bytes = 0; /* the session of an older library */
    read_session(&s, &p);
    cr_assert_eq(p.state, GP_PROCESS_STALE);
    gp_peer_drop(&p);
    gp_test_session_free(&s);
}

Test(oom, a_report_outside_the_session_is_damage)
{
    struct gp_test_session s;
    struct gp_peer peer;
    char problem[GP_PROBLEM_BYTES] = "";
    cr_assert_eq(gp_test_session_make(&s, 8, true), 0);
    struct gp_wire_header good = *s.header;
    const uint64_t offsets[] = {
        0, 8, good.devices_offset, good.mailbox_offset, good.total_bytes, UINT64_MAX, good.oom_offset + 1};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        s.header->oom_offset = offsets[i];
        cr_assert_eq(gp_peer_adopt(&peer, dup(s.fd), problem), -EPROTO, "%zu", i);
    }
    *s.header = good;
    s.header->oom_bytes = 8;
    cr_assert_eq(gp_peer_adopt(&peer, dup(s.fd), problem), -EPROTO);
    gp_test_session_free(&s);
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

Test(oom, the_command_and_the_library_know_the_same_allocators)
{
    unsigned i = 0;
    for (; gp_policy_at(i); i++)
        cr_assert_str_eq(gp_allocator_name(i), gp_policy_at(i)->name);
    cr_assert_str_eq(gp_allocator_name(i), "off");
    cr_assert_null(gp_allocator_name(i + 1));
}
