/* SPDX-License-Identifier: MIT
 *
 * test_collect_read.c: a session with every part that a library can have (tools/read/collect/peer.c, peerread.c): where its parts may
 * lie, to the byte, each number at its limits, and that nothing of a damaged session is kept.
 */
#include <base/clock.h>
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <read/collect/peer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "peer_fixture.h"

TestSuite(collect_read, .init = begin, .timeout = 60);

/* ---- where parts lie --------------------------------------------------------------------------------------------- */

struct part {
    const char *name;
    uint64_t *offset;
    uint64_t bytes, align;
    uint32_t *item_bytes;
    bool optional;
};

static unsigned parts_of(struct part parts[10])
{
    struct gp_wire_header *h = s.header;
    const struct part list[] = {
        {"devices", &h->devices_offset, sizeof(struct gp_wire_device) * GP_WIRE_DEVICES, 8, &h->device_bytes, false},
        {"scopes", &h->scopes_offset, sizeof(struct gp_wire_scope) * GP_WIRE_SCOPES, 8, &h->scope_bytes, false},
        {"failures", &h->failures_offset, sizeof(struct gp_wire_failure) * GP_WIRE_FAILURES, 8, &h->failure_bytes,
         false},
        {"mailbox", &h->mailbox_offset, sizeof(struct gp_wire_mailbox), 8, &h->mailbox_bytes, false},
        {"ring", &h->ring_offset, sizeof(struct gp_wire_chunk) * 64, 64, &h->chunk_bytes, false},
        {"out-of-memory report", &h->oom_offset, sizeof(struct gp_wire_oom), 8, &h->oom_bytes, true},
        {"owners", &h->owners_offset, sizeof(struct gp_wire_owners), 8, &h->owners_bytes, true},
        {"table of CUPTI's copies", &h->cupti_offset, sizeof(struct gp_wire_cupti), 8, &h->cupti_bytes, true},
        {"memory from before", &h->before_offset, sizeof(struct gp_wire_before), 8, &h->before_bytes, true},
        {"blocks from before", &h->blocks_offset, sizeof(struct gp_wire_blocks), 8, &h->blocks_bytes, true},
    };
    memcpy(parts, list, sizeof(list));
    return GP_COUNT(list);
}

static void expect_load(int rc, const char *wanted, const char *name)
{
    int found = load();
    cr_expect_eq(found, rc, "%s: %d, %s", name, found, problem);
    cr_expect_str_eq(problem, wanted, "%s: %s", name, problem);
    gp_peer_close(&peer);
}

/* Alone behind everything else, each part may end with the file and may not go beyond; and begin where the header ends. */
Test(collect_read, parts_lie_inside_the_session)
{
    struct part parts[10];
    const uint64_t total = s.header->total_bytes, room = 1 << 22;
    cr_assert_eq(ftruncate(s.fd, (off_t)(total + room)), 0);
    s.header->total_bytes = total + room;
    for (unsigned i = 0; i < parts_of(parts); i++) {
        const struct part *p = &parts[i];
        uint64_t was = *p->offset, last = (total + room - p->bytes) / p->align * p->align;
        char inside[100];
        snprintf(inside, sizeof(inside), "header: %s: not inside the session", p->name);
        *p->offset = last;
        expect_load(0, "", p->name);
        *p->offset = last + p->align;
        expect_load(-EPROTO, inside, p->name);
        *p->offset = last - p->align / 2;
        expect_load(-EPROTO, inside, p->name);
        *p->offset = last - 1;
        expect_load(-EPROTO, inside, p->name);
        *p->offset = UINT64_MAX - 63;
        expect_load(-EPROTO, inside, p->name);
        *p->offset = sizeof(struct gp_wire_header) / p->align * p->align -
                     p->align * (sizeof(struct gp_wire_header) % p->align == 0);
        expect_load(-EPROTO, inside, p->name);
        *p->offset = was;
    }
}

/* Each two of them, one behind the other without a gap, and with the last bytes of one in the other. */
Test(collect_read, parts_do_not_overlap)
{
    struct part parts[10];
    const uint64_t total = s.header->total_bytes, room = 1 << 23;
    cr_assert_eq(ftruncate(s.fd, (off_t)(total + room)), 0);
    s.header->total_bytes = total + room;
    unsigned count = parts_of(parts);
    for (unsigned a = 0; a < count; a++)
        for (unsigned b = 0; b < count; b++) {
            const struct part *one = &parts[a], *two = &parts[b];
            uint64_t was[2] = {*one->offset, *two->offset};
            char wrong[120];
            if (a == b)
                continue;
            *two->offset = UP(total) + 64 + UP(one->bytes);
            *one->offset = (*two->offset - one->bytes) / one->align * one->align; /* directly before the other */
            expect_load(0, "", one->name);
            *one->offset += one->align;
            snprintf(wrong, sizeof(wrong), "header: %s and %s overlap", a < b ? one->name : two->name,
                     a < b ? two->name : one->name);
            expect_load(-EPROTO, wrong, one->name);
            *one->offset = was[0], *two->offset = was[1];
        }
}

Test(collect_read, parts_that_older_libraries_lack)
{
    struct part parts[10];
    for (unsigned i = 0; i < parts_of(parts); i++) {
        const struct part *p = &parts[i];
        uint64_t was = *p->offset;
        uint32_t bytes = *p->item_bytes;
        *p->item_bytes = 0;
        for (int offset = 1; offset >= 0; offset--) { /* the size alone says that it is not there */
            *p->offset = offset ? was : 0;
            expect_load(p->optional ? 0 : -EPROTO,
                        p->optional ? "" : "header: sizes of parts are not those of this ABI", p->name);
            cr_expect(!p->optional || !(i == 5   ? peer.oom_offset
                                        : i == 6 ? peer.owners_offset
                                        : i == 7 ? peer.cupti_offset
                                        : i == 8 ? peer.before_offset
                                                 : peer.blocks_offset),
                      "%s", p->name);
        }
        *p->item_bytes = bytes + 8;
        expect_load(-EPROTO, "header: sizes of parts are not those of this ABI", p->name);
        *p->offset = was, *p->item_bytes = bytes;
    }
}

Test(collect_read, headers_of_others)
{
    struct gp_wire_header *h = s.header;
    const struct gp_wire_header good = *h;
    h->magic = 0;
    expect_load(-ENOENT, "", "no magic");
    h->magic = GP_WIRE_MAGIC + 1;
    expect_load(-EPROTO, "header: wrong magic number", "magic");
    *h = good;
    char text[100];
    snprintf(text, sizeof(text), "written by another version of gpuprof (ABI %u, this command reads %u)",
             GP_WIRE_ABI + 1, GP_WIRE_ABI);
    h->abi++;
    expect_load(-EPROTO, text, "abi");
    for (int i = 0; i < 4; i++) {
        *h = good;
        uint32_t *counts[] = {&h->device_count, &h->scope_count, &h->failure_count, &h->slot_count};
        ++*counts[i];
        expect_load(-EPROTO, "header: counts of parts are not those of this ABI", "count");
    }
    static const uint32_t chunks[] = {0, 3, 5, 6, 63, 65};
    for (size_t i = 0; i < GP_COUNT(chunks); i++) {
        *h = good;
        h->chunk_count = chunks[i];
        expect_load(-EPROTO, "header: the number of ring chunks is not a power of two", "chunks");
    }
    for (int more = -1; more < 2; more += 2) {
        *h = good;
        h->total_bytes += (uint64_t)more;
        expect_load(-EPROTO, "header: total size is not the size of the file", "size");
    }
    *h = good;
    for (uint64_t more = 0; more < 2; more++) { /* a gigabyte at most */
        h->total_bytes = (1ull << 30) + more;
        cr_assert_eq(ftruncate(s.fd, (off_t)h->total_bytes), 0);
        expect_load(more ? -EPROTO : 0, more ? "header: total size is not the size of the file" : "", "a gigabyte");
    }
    cr_assert_eq(ftruncate(s.fd, sizeof(*h)), 0);
    expect_load(-EPROTO, "header: total size is not the size of the file", "only a header");
    cr_assert_eq(ftruncate(s.fd, sizeof(*h) - 1), 0);
    expect_load(-EPROTO, "the file is shorter than a header", "less");
}

/* Number 0 is a descriptor as any other. */
Test(collect_read, a_session_with_descriptor_0)
{
    int kept = dup(0);
    close(0);
    cr_assert_eq(load(), 0, "%s", problem);
    cr_expect_eq(peer.fd, 0);
    gp_peer_close(&peer);
    cr_expect(peer.fd == -1 && fcntl(0, F_GETFD) == -1);
    s.header->magic = 0;
    cr_expect_eq(load(), -ENOENT);
    cr_expect_eq(fcntl(0, F_GETFD), -1);
    cr_expect_eq(gp_peer_adopt(&peer, dup(s.fd), problem), -ENOENT, "not sealed yet");
    cr_expect_eq(fcntl(0, F_GETFD), -1);
    if (kept >= 0) {
        dup2(kept, 0);
        close(kept);
    }
}

/* ---- the numbers ------------------------------------------------------------------------------------------------- */

Test(collect_read, everything_is_read)
{
    struct gp_wire_header *h = s.header;
    h->cupti_version = 24, h->events = 1000, h->record_state = GP_RECORD_FAILED, h->record_errno = 4095;
    h->recorded = 1ull << 63 | 7, h->record_lost = 1ull << 63 | 8;
    h->flags = GP_SESSION_DISABLED;
    strcpy(h->options, "o\n"), strcpy(h->stacks_detail, "s"), strcpy(h->trouble, "t");
    for (unsigned i = 0; i < GP_LOSTS; i++)
        h->lost[i] = i + 1;
    uint64_t early = gp_clock_ns();
    take();
    uint64_t late = gp_clock_ns();
    const struct gp_process *p = &process;
    cr_assert_eq(p->state, GP_PROCESS_STALE, "%s", p->problem);
    cr_expect(p->source == GP_SOURCE_CUPTI && p->driver_version == 13000 && p->cupti_version == 24 &&
              p->events == 1000);
    cr_expect(!p->closed && p->disabled && !p->yielded && !p->gone && p->enabled_callbacks == 73);
    cr_expect(p->session_ns == h->start_ns && p->publish_ns == h->publish_ns);
    cr_expect(p->age_ns >= early - h->publish_ns && p->age_ns <= late - h->publish_ns);
    cr_expect(p->recording.state == GP_RECORD_FAILED && p->recording.error == 4095 && p->recording.events == 7 &&
              p->recording.lost == 8);
    cr_expect_str_eq(p->options, "o?");
    cr_expect_str_eq(p->stacks, "s");
    cr_expect_str_eq(p->trouble, "t");
    cr_expect_str_eq(p->source_detail, "subscribed");
    cr_expect_str_eq(p->allocator, "off");
    cr_expect_arr_eq(p->lost, h->lost, sizeof(p->lost));
    cr_assert(p->device_count == 3 && p->simulated);
    static const int indexes[] = {0, 3, GP_WIRE_HOST};
    for (int i = 0; i < 3; i++) {
        const struct gp_device_view *d = &p->devices[i];
        cr_expect(d->index == indexes[i] && d->ordinal == (i < 2 ? indexes[i] : -1) && d->identified == (i < 2));
        cr_expect(d->total_bytes == (i < 2 ? 16ll << 30 : -1) && d->untracked_bytes == -1 && !d->estimated &&
                  !d->polled);
        cr_expect_eq(d->before.bytes, i == 1 ? 77 : i == 2 ? 0 : -1);
    }
    cr_expect_str_eq(p->devices[1].name, "Another");
    cr_expect_str_eq(p->devices[2].uuid, "");
    cr_expect(p->scope_count == 1 && p->scopes[0].slot == 3 && p->scopes[0].begin_ns == s.scopes[3].begin_ns);
    cr_assert_eq(p->failure_count, 2);
    cr_expect(p->failures[0].error == 2 && p->failures[0].count == 9 && p->failures[1].error == 3 &&
              p->failures[1].count == 1);
    cr_expect_str_eq(p->failures[1].api, "cuMemFree_v2");
    cr_expect(p->owner_count == 2 && p->attached && p->oom.count == 1 && p->cupti.tried == 1 &&
              p->blocks_state == GP_BLOCKS_ABSENT);
    gp_peer_drop(&process);
    cr_expect(!process.devices && process.device_count == 0);
}

Test(collect_read, flags_of_the_session_and_of_devices)
{
    for (unsigned bit = 0; bit < 4; bit++) {
        s.header->flags = 1u << bit;
        s.devices[3].flags = GP_DEVICE_PRESENT | (bit < 3 ? 2u << bit : 0);
        take();
        cr_expect(process.closed == (bit == 0) && process.disabled == (bit == 1) && process.yielded == (bit == 2) &&
                  process.gone == (bit == 3));
        const struct gp_device_view *d = &process.devices[1];
        cr_expect(d->identified == (bit == 0) && d->estimated == (bit == 1) && d->polled == (bit == 2));
        cr_expect_eq(d->total_bytes, bit == 0 ? 16ll << 30 : -1);
        cr_expect_eq(d->name[0] != '\0', bit == 0);
        gp_peer_drop(&process);
    }
    static const char *const names[] = {"Simulated GPU", "Simulated GPU 7", "Simulated GPV",
                                        "Simulated GP",  "A Simulated GPU", "simulated GPU"};
    for (size_t i = 0; i < GP_COUNT(names); i++) {
        strcpy(s.devices[0].name, names[i]);
        take();
        cr_expect_eq(process.simulated, i < 2, "%s", names[i]);
        gp_peer_drop(&process);
    }
    s.devices[0].flags = 0;
    take();
    cr_expect(process.device_count == 2 && !process.simulated);
    gp_peer_drop(&process);
}

Test(collect_read, a_recording_that_cannot_be)
{
    static const struct {
        uint32_t state;
        int32_t error;
        uint32_t is_state;
        int is_error;
    } rows[] = {{GP_RECORD_FAILED + 1, -1, GP_RECORD_OFF, 0},
                {GP_RECORD_OFF, 0, GP_RECORD_OFF, 0},
                {1, 1, 1, 1},
                {1, 4096, 1, 0}};
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        s.header->record_state = rows[i].state, s.header->record_errno = rows[i].error;
        take();
        cr_expect(process.recording.state == rows[i].is_state && process.recording.error == rows[i].is_error, "%zu", i);
        gp_peer_drop(&process);
    }
}

static void expect_damage(const char *wanted)
{
    take();
    const struct gp_process *p = &process;
    cr_expect_eq(p->state, GP_PROCESS_DAMAGED, "%s", wanted);
    cr_expect_str_eq(p->problem, wanted);
    static const struct gp_wire_oom no_oom;
    static const struct gp_wire_oom_framework no_framework;
    static const struct gp_cupti_view no_cupti;
    cr_expect(p->device_count == 0 && !p->devices && p->scope_count == 0 && p->failure_count == 0 &&
                  p->owner_count == 0,
              "%s", wanted);
    cr_expect(!p->simulated && memcmp(&p->oom, &no_oom, sizeof(no_oom)) == 0 &&
                  memcmp(&p->oom_framework, &no_framework, sizeof(no_framework)) == 0 &&
                  memcmp(&p->cupti, &no_cupti, sizeof(no_cupti)) == 0,
              "%s", wanted);
}

/* The part that is read last is damaged: what was taken before is gone too. */
Test(collect_read, nothing_of_a_damaged_session_is_kept)
{
    s.oom->error = 0;
    expect_damage("out-of-memory report: its head is invalid");
    s.oom->error = 2;
    s.scopes[4].in_use = 2;
    expect_damage("scope 4: neither open nor free");
    s.scopes[4].in_use = 0;
    owners->count = 99;
    expect_damage("owners: too many rows");
    owners->count = 0;
    s.header->source = GP_SOURCE_HOOKS + 1;
    expect_damage("header: unknown source of events 3");
    s.header->source = GP_SOURCE_HOOKS;
    take();
    cr_expect_eq(process.state, GP_PROCESS_STALE);
    gp_peer_drop(&process);
    s.oom->seq = 3; /* being written, and never finished: as if there were none */
    take();
    cr_expect(process.state == GP_PROCESS_STALE && process.oom.count == 0);
    gp_peer_drop(&process);
    s.header->publish_seq++;
    take();
    cr_expect(process.state == GP_PROCESS_UNKNOWN && process.device_count == 0 && process.oom.count == 0);
    cr_expect_str_eq(process.problem,
                     "an update of the numbers was never finished (the process is stopped, or died during it)");
    gp_peer_drop(&process);
}

Test(collect_read, ordinals_of_devices)
{
    static const struct {
        int index, ordinal;
        bool good;
    } rows[] = {{3, 0, true},
                {3, 63, true},
                {3, 64, false},
                {3, -1, false},
                {GP_WIRE_HOST, -1, true},
                {GP_WIRE_HOST, 0, false},
                {GP_WIRE_HOST, -2, false}};
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        int32_t *ordinal = &s.devices[rows[i].index].ordinal, was = *ordinal;
        char wrong[60];
        *ordinal = rows[i].ordinal;
        snprintf(wrong, sizeof(wrong), "device %d: ordinal out of range", rows[i].index);
        if (!rows[i].good)
            expect_damage(wrong);
        else
            take();
        cr_expect_eq(process.state == GP_PROCESS_STALE, rows[i].good, "%zu", i);
        gp_peer_drop(&process);
        *ordinal = was;
    }
}

/* What is wrong with a row in which this number is -1; NULL: -1 stands for unknown. */
static const char *wrong_at(size_t at)
{
#define IN(_field)                                                                                                     \
    (at >= offsetof(struct gp_wire_device, _field) &&                                                                  \
     at < offsetof(struct gp_wire_device, _field) + sizeof(s.devices[0]._field))
    if (IN(stats))
        return "a statistic is negative";
#define GP_VALUE(_id, _name)                                                                                           \
    if (IN(_name))                                                                                                     \
        return "a statistic is negative";
#include <gpuprof/numbers.def>
    if (IN(kinds) || IN(max_split_size) || IN(total_bytes))
        return NULL;
    if (IN(scopes))
        return "a scope's peak is negative";
    return "a count is negative";
}

static const char *far_wrong_at(size_t at)
{
    return IN(kinds) ? "a kind's count is negative" : wrong_at(at) ? wrong_at(at) : "a count is negative";
}

Test(collect_read, each_number_of_a_device_at_its_limit)
{
    const size_t first = offsetof(struct gp_wire_device, total_bytes), last = sizeof(struct gp_wire_device);
    cr_assert_eq(load(), 0);
    for (size_t at = first; at < last; at += sizeof(int64_t))
        for (int64_t value = -2; value <= 0; value++) {
            int64_t *number = (int64_t *)((char *)&s.devices[3] + at), was = *number;
            const char *wrong = value == 0 ? NULL : value == -1 ? wrong_at(at) : far_wrong_at(at);
            char text[80] = "";
            *number = value;
            memset(&process, 0, sizeof(process));
            cr_assert_eq(gp_peer_read(&peer, &process), 0);
            if (wrong)
                snprintf(text, sizeof(text), "device 3: %s", wrong);
            cr_expect_str_eq(process.problem, text, "offset %zu, %lld: %s", at, (long long)value, process.problem);
            cr_expect_eq(process.state, wrong ? GP_PROCESS_DAMAGED : GP_PROCESS_STALE);
            gp_peer_drop(&process);
            *number = was;
        }
    gp_peer_close(&peer);
}

/* Numbers that were never published, or in the future, have no age. */
Test(collect_read, ages)
{
    s.header->publish_ns = 0;
    take();
    cr_expect(process.age_ns == 0 && process.state == GP_PROCESS_UNKNOWN && process.device_count == 0);
    gp_peer_drop(&process);
    s.header->publish_ns = gp_clock_ns() + (1ull << 40);
    take();
    cr_expect(process.age_ns == 0 && process.state == GP_PROCESS_STALE);
    gp_peer_drop(&process);
}
