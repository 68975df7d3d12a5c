/* SPDX-License-Identifier: MIT
 *
 * test_collect_take.c: what the reader of sessions takes of each part, number by number at its limits
 * (tools/read/collect/peerread.c).
 */
#include "peer_fixture.h"
#include "read/collect/peer.h"

#define MOST (1ll << 60)

/* Reads the session.  "": all of it was taken; or what is wrong with it. */
static const char *wrong(void)
{
    gp_peer_drop(&process);
    take();
    cr_assert_eq(process.state, process.problem[0] ? GP_PROCESS_DAMAGED : GP_PROCESS_STALE);
    return process.problem;
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

static void begin_take(void)
{
    begin();
    memset(before, 0, sizeof(*before));
    memset(blocks, 0, sizeof(*blocks));
    owners->count = 3;
    for (unsigned i = 0; i < GP_WIRE_OWNERS; i++) {
        snprintf(owners->rows[i].owner, sizeof(owners->rows[i].owner), "owner\x01%u", i);
        memset(owners->rows[i].library, 'l', sizeof(owners->rows[i].library));
    }
}

TestSuite(collect_take, .init = begin_take, .timeout = 60);

Test(collect_take, the_rows_of_owners)
{
    for (unsigned count = 0; count < GP_WIRE_OWNERS + 3; count++) {
        owners->count = count;
        bool good = count <= GP_WIRE_OWNERS;
        cr_expect_str_eq(wrong(), good ? "" : "owners: too many rows");
        cr_expect_eq(process.owner_count, good ? (int)count : 0);
        for (unsigned i = 0; good && i < GP_WIRE_OWNERS; i++) {
            char name[24];
            snprintf(name, sizeof(name), "owner?%u", i);
            cr_expect_str_eq(process.owners[i].owner, i < count ? name : "");
            cr_expect_eq(strnlen(process.owners[i].library, 40), i < count ? 39 : 0);
        }
    }
}

/* Each number of each row in use, of each device. */
Test(collect_take, the_numbers_of_owners)
{
    static const int64_t values[] = {-1, 0, MOST, MOST + 1, INT64_MIN, INT64_MAX};
    static const int indexes[] = {0, 3, GP_WIRE_HOST, 5}; /* the process does not have the last one */
    for (int device = 0; device < 4; device++)
        for (unsigned row = 0; row < 4; row++)
            for (unsigned field = 0; field < 5; field++)
                for (size_t v = 0; v < GP_COUNT(values); v++) {
                    struct gp_wire_owner_value *value = &owners->values[indexes[device]][row];
                    int64_t *fields[] = {&value->reserved_bytes, &value->reserved_peak_bytes, &value->allocated_bytes,
                                         &value->allocated_peak_bytes, &value->live};
                    *fields[field] = values[v];
                    bool good = (values[v] >= 0 && values[v] <= MOST) || row == 3 || device == 3;
                    cr_assert_str_eq(wrong(), good ? "" : "owners: a number is negative or too large",
                                     "device %d, row %u, field %u, %lld", device, row, field, (long long)values[v]);
                    if (good && device < 3)
                        cr_assert_eq(memcmp(process.devices[device].owners, owners->values[indexes[device]],
                                            sizeof(process.devices[0].owners)),
                                     0);
                    *fields[field] = 0;
                }
}

Test(collect_take, the_numbers_of_frameworks)
{
    static const int64_t values[] = {-MOST, -MOST - 1, MOST, MOST + 1};
    static const uint64_t counts[] = {INT64_MAX, 1ull << 63};
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++) {
        strcpy(owners->heaps[i].name, "py\x02torch");
        strcpy(owners->frameworks[i].name, "py\x02torch");
    }
    for (int heap = 0; heap < 2; heap++)
        for (unsigned field = 0; field < 11; field++)
            for (size_t v = 0; v < (field < 6 ? GP_COUNT(values) : GP_COUNT(counts)); v++) {
                struct gp_wire_framework *f = heap ? &owners->heaps[3] : &owners->frameworks[3], was = *f;
                int64_t *numbers[] = {&f->blocks,
                                      &f->segments,
                                      &f->allocated_bytes,
                                      &f->reserved_bytes,
                                      &f->their_allocated_bytes,
                                      &f->their_reserved_bytes};
                uint64_t *events[] = {&f->events, &f->allocated_differs, &f->reserved_differs, &f->retries, &f->ooms};
                if (field < 6)
                    *numbers[field] = values[v];
                else
                    *events[field - 6] = counts[v];
                cr_assert_str_eq(wrong(), v % 2 ? "owners: a framework's number is too large" : "", "%d, field %u",
                                 heap, field);
                if (v % 2 == 0) {
                    struct gp_wire_framework same = *f;
                    memset(same.name, 0, sizeof(same.name));
                    strcpy(same.name, "py?torch");
                    cr_assert_eq(
                        memcmp(heap ? &process.devices[1].heaps : &process.devices[1].framework, &same, sizeof(same)),
                        0, "%d, field %u", heap, field);
                    cr_assert(!process.devices[2].framework.name[0] && !process.devices[2].heaps.name[0]);
                }
                *f = was;
            }
}

static void good_doors(void)
{
    memset(doors, 0, sizeof(*doors));
    doors->door_count = doors->row_count = 1;
    doors->doors[0] = (struct gp_wire_door){.name = "r\x02m", .state = GP_WIRE_DOOR_OFF, .text = "be\x1b[1mcause"};
    doors->rows[0] = (struct gp_wire_door_row){.device = 63, .pieces = 2, .allocated_bytes = MOST, .events = 5};
}

Test(collect_take, pools_of_libraries)
{
#define BAD(_change)                                                                                                   \
    do {                                                                                                               \
        good_doors();                                                                                                  \
        _change;                                                                                                       \
        cr_expect_str_eq(wrong(), "owners: the pools of a library are damaged", #_change);                             \
    } while (0)
    BAD(doors->door_count = GP_WIRE_DOORS + 1);
    BAD(doors->row_count = GP_WIRE_DOOR_ROWS + 1);
    BAD(doors->doors[0].state = GP_WIRE_DOOR_STATES);
    BAD(doors->rows[0].door = 1);
    BAD(doors->rows[0].device = GP_WIRE_GPUS);
    BAD(doors->rows[0].device = -1);
    BAD(doors->rows[0].reserved_bytes = -MOST - 1);
    BAD(doors->rows[0].events = 1ull << 63);
    good_doors();
    cr_expect_str_eq(wrong(), "");
    cr_expect_str_eq(process.doors.doors[0].name, "r?m");
    cr_expect_str_eq(process.doors.doors[0].text, "be?[1mcause");
    cr_expect_eq(process.doors.rows[0].allocated_bytes, MOST);
}

/* What no row has is shared, if it is anything. */
Test(collect_take, owners_for_display)
{
    struct gp_owner_view views[GP_OWNER_VIEWS];
    cr_assert_str_eq(wrong(), "");
    struct gp_device_view *d = &process.devices[0];
    memset(d->wire.stats, 0, sizeof(d->wire.stats));
    d->owners[0] = (struct gp_wire_owner_value){10, 20, 5, 15, 1};
    d->owners[1] = (struct gp_wire_owner_value){0, 0, 0, 0, 3}; /* it never had bytes */
    d->owners[2] = (struct gp_wire_owner_value){0, 0, 0, 7, 0};
    d->wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current = 10;
    d->wire.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current = 5;
    d->wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current = 4;
    cr_assert_eq(gp_peer_owners_of(&process, d, views), 2);
    cr_expect_str_eq(views[0].owner, "owner?0");
    cr_expect_str_eq(views[1].owner, "owner?2");
    cr_expect(views[0].value.reserved_bytes == 10 && views[1].value.allocated_peak_bytes == 7 &&
              strlen(views[0].library) == 39);
    for (int way = 0; way < 3; way++) {
        int64_t *total[] = {&d->wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current,
                            &d->wire.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current,
                            &d->wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current};
        for (int64_t more = -1; more < 2; more += 2) {
            *total[way] += more;
            cr_assert_eq(gp_peer_owners_of(&process, d, views), 3);
            const struct gp_wire_owner_value *rest = &views[2].value;
            cr_expect_str_eq(views[2].owner, "shared");
            cr_expect_str_eq(views[2].library, "");
            cr_expect(rest->reserved_bytes == (way == 0) * more && rest->allocated_bytes == (way == 1) * more &&
                      rest->live == (way == 2) * more);
            cr_expect(rest->reserved_peak_bytes == -1 && rest->allocated_peak_bytes == -1);
            *total[way] -= more;
        }
    }
    d->owners[0].reserved_peak_bytes = 0; /* one of the two is enough */
    cr_expect_eq(gp_peer_owners_of(&process, d, views), 2);
    d->totals_only = true;
    cr_expect_eq(gp_peer_owners_of(&process, d, views), 0);
    d->totals_only = false;
    process.owner_count = 0;
    cr_expect_eq(gp_peer_owners_of(&process, d, views), 0);
}

/* ---- memory from before ------------------------------------------------------------------------------------------ */

Test(collect_take, memory_from_before)
{
    static const int64_t values[] = {-1, 0, INT64_MAX / 64, INT64_MAX / 64 + 1};
    for (uint32_t attached = 0; attached < 3; attached++)
        for (uint32_t source = 0; source < 6; source++)
            for (int way = 0; way < 4; way++) {
                int64_t value = values[way], is = way == 1 || way == 2 ? value : -1;
                for (unsigned i = 0; i < GP_WIRE_GPUS; i++)
                    before->devices[i] = (struct gp_wire_before_device){
                        value, value, value, way % 2 ? INT64_MAX : 1ull << 63, value, value, source, 0};
                before->attached = attached;
                cr_assert_str_eq(wrong(), "");
                cr_assert_eq(process.attached, attached == 1);
                for (int d = 0; d < 3; d++) {
                    const struct gp_wire_before_device *b = &process.devices[d].before;
                    bool known = attached == 1 && d < 2, sourced = source >= 1 && source <= 3;
                    cr_assert_eq(b->source, known && sourced ? source : 0);
                    int64_t some = !known ? 0 : sourced ? is : -1;
                    cr_assert(b->bytes == some && b->at_attach_bytes == some && b->count == some);
                    cr_assert_eq(b->freed, known && way % 2 ? (uint64_t)INT64_MAX : 0);
                    cr_assert(b->framework_allocated_bytes == (known ? is : 0) &&
                              b->framework_reserved_bytes == (known ? is : 0));
                }
            }
    static const char *const names[] = {NULL, "driver", "driver, in part", "framework", NULL};
    for (uint32_t source = 0; source < 5; source++) {
        const char *name = gp_before_source(&(struct gp_wire_before_device){.source = source});
        cr_expect(name ? names[source] && strcmp(name, names[source]) == 0 : !names[source]);
    }
}

Test(collect_take, blocks_from_before)
{
    for (uint32_t state = 0; state < GP_BLOCKS_STATES + 2; state++) {
        memset(blocks, 0, sizeof(*blocks));
        blocks->state = state;
        blocks->took_ns = state % 2 ? INT64_MAX : 1ull << 63;
        blocks->devices[0] = (struct gp_wire_blocks_device){-5, INT64_MAX / 64 + 1, 1ull << 63};
        blocks->devices[3] = (struct gp_wire_blocks_device){0, INT64_MAX / 64, INT64_MAX};
        memset(blocks->text, 'a', sizeof(blocks->text));
        memcpy(blocks->text, " ~\x1f\x7f\xe2\n", 6);
        cr_assert_str_eq(wrong(), "");
        const struct gp_device_view *d = process.devices;
        cr_expect_eq(process.blocks_state, state < GP_BLOCKS_STATES ? state : GP_BLOCKS_NONE);
        cr_expect_eq(process.blocks_took_ns, state % 2 ? (uint64_t)INT64_MAX : 0);
        cr_expect(memcmp(process.blocks_text, " ~????aa", 8) == 0 && strnlen(process.blocks_text, 160) == 159);
        bool done = state == GP_BLOCKS_DONE;
        cr_expect(d[0].blocks.count == -1 && d[0].blocks.bytes == -1 && d[0].blocks.differs == 0);
        cr_expect(d[1].blocks.count == (done ? 0 : -1) && d[1].blocks.bytes == (done ? INT64_MAX / 64 : -1) &&
                  d[1].blocks.differs == (done ? (uint64_t)INT64_MAX : 0));
        cr_expect(d[2].blocks.count == -1 && d[2].blocks.bytes == -1);
    }
    strcpy(blocks->text, "short");
    cr_assert_str_eq(wrong(), "");
    cr_expect_str_eq(process.blocks_text, "short");
}

/* ---- a failed request -------------------------------------------------------------------------------------------- */

static void good_oom(void)
{
    *s.oom = (struct gp_wire_oom){.seq = 2, .count = 1, .error = 2};
    memset(oom_framework, 0, sizeof(*oom_framework));
    for (unsigned i = 0; i < GP_OOM_HOLDERS; i++)
        s.oom->holders[i].kind = GP_KIND_LINEAR;
}

static void expect_oom(const char *text, const char *what, int number)
{
    cr_assert_str_eq(wrong(), text, "%s %d: %s", what, number, process.problem);
    cr_assert_eq(process.oom.count, *text || !s.oom->seq ? 0 : s.oom->count, "%s %d", what, number);
}

#define OOM "out-of-memory report: "

Test(collect_take, the_head_of_a_failed_request)
{
    good_oom();
    expect_oom("", "good", 0);
    s.oom->seq = 0, s.oom->error = 0;
    expect_oom("", "none", 0);
    good_oom(), s.oom->count = 0;
    expect_oom(OOM "its head is invalid", "count", 0);
    good_oom(), s.oom->error = 0;
    expect_oom(OOM "its head is invalid", "error", 0);
    for (int bit = 0; bit < 32; bit++) {
        good_oom(), s.oom->flags = 1u << bit;
        expect_oom(bit < 4 ? "" : OOM "its head is invalid", "flag", bit);
    }
    for (int device = -2; device < 67; device++) {
        good_oom(), s.oom->device = device;
        expect_oom(device >= -1 && device <= 64 ? "" : OOM "device out of range", "device", device);
    }
    for (unsigned count = 0; count < GP_OOM_HOLDERS + 2; count++) {
        good_oom(), s.oom->holder_count = count;
        expect_oom(count <= GP_OOM_HOLDERS ? "" : OOM "too many holders", "holders", (int)count);
        for (unsigned kind = 0; kind < GP_KINDS + 2 && count < GP_OOM_HOLDERS; kind++) {
            good_oom(), s.oom->holder_count = count, s.oom->holders[1].kind = (uint8_t)kind;
            bool bad = count > 1 && (kind == 0 || kind >= GP_KINDS);
            expect_oom(bad ? OOM "a holder has an unknown kind" : "", "kind", (int)kind);
        }
    }
    for (int bit = 0; bit < 32; bit++) {
        good_oom(), oom_framework->flags = 1u << bit;
        expect_oom(bit < 6 ? "" : OOM "its part about a framework is invalid", "flag", bit);
    }
    for (unsigned field = 0; field < 4; field++)
        for (int v = -2; v < 2; v++) {
            good_oom();
            int64_t *numbers[] = {&oom_framework->segment_bytes, &oom_framework->blocks, &oom_framework->private_bytes,
                                  &oom_framework->split_bytes};
            *numbers[field] = v > 0 ? MOST + 1 : v;
            bool bad = v == -2 || v > 0;
            expect_oom(bad ? OOM "its part about a framework is invalid" : "", "number", (int)field);
        }
    good_oom();
    strcpy(s.oom->api, "cuMem\n");
    memset(s.oom->policy, 'p', sizeof(s.oom->policy));
    memset(s.oom->conf, 'c', sizeof(s.oom->conf));
    expect_oom("", "texts", 0);
    cr_expect_str_eq(process.oom.api, "cuMem?");
    cr_expect(strnlen(process.oom.policy, 16) == 15 && strnlen(process.oom.conf, 128) == 127);
}

Test(collect_take, the_numbers_of_a_failed_request)
{
    static const int64_t values[] = {-1, -2, MOST, MOST + 1};
    for (unsigned field = 0; field < 16 + GP_KINDS; field++)
        for (int v = 0; v < 4; v++) {
            good_oom();
            int64_t *numbers[] = {&s.oom->free_bytes,         &s.oom->total_bytes,         &s.oom->reserved_bytes,
                                  &s.oom->allocated_bytes,    &s.oom->pool_reserved_bytes, &s.oom->graph_reserved_bytes,
                                  &s.oom->graph_used_bytes,   &s.oom->limit_bytes,         &s.oom->idle_bytes,
                                  &s.oom->largest_idle_bytes, &s.oom->releasable_bytes,    &s.oom->waiting_bytes,
                                  &s.oom->idle_pieces,        &s.oom->pinning_blocks,      &s.oom->rest_bytes,
                                  &s.oom->rest_count};
            *(field < 16 ? numbers[field] : &s.oom->kinds[field - 16]) = values[v];
            expect_oom(v % 2 ? OOM "a number is negative or too large" : "", "number", (int)field);
        }
}

/* ---- copies of CUPTI --------------------------------------------------------------------------------------------- */

Test(collect_take, copies_of_cupti)
{
    struct gp_wire_cupti *cupti = s.cupti;
    static const uint32_t counts[] = {0, 1, 15, 16, 17, 31, 32, 33, 4095, 4096, 4097, UINT32_MAX};
    for (size_t i = 0; i < GP_COUNT(counts); i++)
        for (size_t k = 0; k < GP_COUNT(counts); k++) {
            cupti->copies = counts[i], cupti->strange = counts[k], cupti->shared = (uint32_t)i % 3;
            for (unsigned n = 0; n < GP_WIRE_COPIES; n++) {
                cupti->copy[n] = (struct gp_wire_copy){.status = (int32_t)n - 4, .version = n};
                snprintf(cupti->copy[n].path, 256, "path%u", n);
                snprintf(cupti->copy[n].answer, 48, "answer%u", n);
            }
            for (unsigned n = 0; n < GP_WIRE_STRANGE; n++)
                snprintf(cupti->strange_names[n], 48, "name%u", n);
            cr_assert_str_eq(wrong(), "");
            const struct gp_cupti_view *v = &process.cupti;
            uint32_t tried = counts[i] <= 4096 ? counts[i] : 0, strange = counts[k] <= 4096 ? counts[k] : 0;
            cr_assert(v->tried == tried && v->strange == strange && v->shared == (i % 3 == 1));
            cr_assert(v->copy_count == (tried < 16 ? tried : 16) && v->name_count == (strange < 32 ? strange : 32));
            for (unsigned n = 0; n < GP_WIRE_COPIES; n++) {
                bool used = n < v->copy_count;
                cr_assert_str_eq(v->copies[n].path, used ? cupti->copy[n].path : "");
                cr_assert_str_eq(v->copies[n].answer, used ? cupti->copy[n].answer : "");
                cr_assert(v->copies[n].status == (used ? (int32_t)n - 4 : 0) && v->copies[n].version == (used ? n : 0));
            }
            for (unsigned n = 0; n < GP_WIRE_STRANGE; n++)
                cr_assert_str_eq(v->names[n], n < v->name_count ? cupti->strange_names[n] : "");
        }
}
