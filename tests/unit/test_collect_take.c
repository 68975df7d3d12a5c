/* SPDX-License-Identifier: MIT
 *
 * test_collect_take.c: what the reader of sessions takes of each part, number by number at its limits (tools/read/collect:
 * ownerread.c, oomread.c, cuptiread.c), and what it adds from NVML (machine.c), whose answers this file makes up.
 */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <lib/lackmemory.h>
#include <lib/standin.h>
#include <pwd.h>
#include <read/collect/collect.h>
#include <read/collect/peer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST (1ll << 60)

/* ---- owners ------------------------------------------------------------------------------------------------------ */

static struct gp_wire_owners owners;
static struct gp_process process;
static struct gp_device_view devices[3]; /* 2, 63 and the host */

static void begin(void)
{
    static const int indexes[] = {2, 63, GP_WIRE_HOST};
    memset(&owners, 0, sizeof(owners));
    memset(&process, 0, sizeof(process));
    memset(devices, 0, sizeof(devices));
    process.devices = devices;
    process.device_count = 3;
    for (int i = 0; i < 3; i++)
        devices[i].index = indexes[i];
    owners.count = 3;
    for (unsigned i = 0; i < GP_WIRE_OWNERS; i++) {
        snprintf(owners.rows[i].owner, sizeof(owners.rows[i].owner), "owner\x01%u", i);
        memset(owners.rows[i].library, 'l', sizeof(owners.rows[i].library));
    }
}

static int take(void)
{
    memset(process.problem, 0, sizeof(process.problem));
    return gp_peer_take_owners(&owners, &process);
}

TestSuite(collect_take, .init = begin);

Test(collect_take, the_rows_of_owners)
{
    for (unsigned count = 0; count < GP_WIRE_OWNERS + 3; count++) {
        begin();
        owners.count = count;
        bool good = count <= GP_WIRE_OWNERS;
        cr_expect_eq(take(), good ? 0 : -EPROTO, "%u", count);
        cr_expect_str_eq(process.problem, good ? "" : "owners: too many rows");
        cr_expect_eq(process.owner_count, good ? (int)count : 0);
        for (unsigned i = 0; i < GP_WIRE_OWNERS; i++) {
            char name[24];
            snprintf(name, sizeof(name), "owner?%u", i);
            cr_expect_str_eq(process.owners[i].owner, good && i < count ? name : "");
            cr_expect_eq(strnlen(process.owners[i].library, 40), good && i < count ? 39 : 0);
        }
    }
}

/* Each number of each row in use, of each device. */
Test(collect_take, the_numbers_of_owners)
{
    static const int64_t values[] = {-1, 0, MOST, MOST + 1, INT64_MIN, INT64_MAX};
    for (int device = 0; device < 4; device++) {
        const int index = device < 3 ? devices[device].index : 5; /* the process does not have the last one */
        for (unsigned row = 0; row < 4; row++)
            for (unsigned field = 0; field < 5; field++)
                for (size_t v = 0; v < GP_COUNT(values); v++) {
                    begin();
                    struct gp_wire_owner_value *value = &owners.values[index][row];
                    int64_t *fields[] = {&value->reserved_bytes, &value->reserved_peak_bytes, &value->allocated_bytes,
                                         &value->allocated_peak_bytes, &value->live};
                    *fields[field] = values[v];
                    bool good = (values[v] >= 0 && values[v] <= MOST) || row == 3 || device == 3;
                    cr_assert_eq(take(), good ? 0 : -EPROTO, "device %d, row %u, field %u, %lld", device, row, field,
                                 (long long)values[v]);
                    cr_assert_str_eq(process.problem, good ? "" : "owners: a number is negative or too large");
                    if (good && device < 3)
                        cr_assert_eq(memcmp(devices[device].owners, owners.values[index], sizeof(devices[0].owners)),
                                     0);
                }
    }
}

static void expect_framework(struct gp_wire_framework *wire, const struct gp_wire_framework *view, bool good,
                             const char *what, int number)
{
    cr_assert_eq(take(), good ? 0 : -EPROTO, "%s %d", what, number);
    cr_assert_str_eq(process.problem, good ? "" : "owners: a framework's number is too large");
    if (!good)
        return;
    struct gp_wire_framework same = *wire;
    memset(same.name, 0, sizeof(same.name));
    strcpy(same.name, "py?torch");
    cr_assert_eq(memcmp(view, &same, sizeof(same)), 0, "%s %d", what, number);
}

Test(collect_take, the_numbers_of_frameworks)
{
    static const int64_t values[] = {-MOST, -MOST - 1, MOST, MOST + 1};
    static const uint64_t counts[] = {INT64_MAX, 1ull << 63};
    for (int heap = 0; heap < 2; heap++)
        for (unsigned field = 0; field < 11; field++)
            for (size_t v = 0; v < (field < 6 ? GP_COUNT(values) : GP_COUNT(counts)); v++) {
                begin();
                struct gp_wire_framework *f = heap ? &owners.heaps[63] : &owners.frameworks[63];
                for (unsigned i = 0; i < GP_WIRE_GPUS; i++) {
                    strcpy(owners.heaps[i].name, "py\x02torch");
                    strcpy(owners.frameworks[i].name, "py\x02torch");
                }
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
                expect_framework(f, heap ? &devices[1].heaps : &devices[1].framework, v % 2 == 0,
                                 heap ? "heap" : "framework", (int)field);
            }
    cr_expect(!devices[2].framework.name[0] && !devices[2].heaps.name[0], "the host has none");
}

Test(collect_take, pools_of_libraries)
{
    static struct gp_wire_doors wire, empty;
    begin();
    cr_assert_eq(gp_peer_owner_doors(&empty, &process), 0);
    for (unsigned damage = 0; damage < 9; damage++) {
        begin();
        wire = (struct gp_wire_doors){.door_count = 1, .row_count = 1};
        wire.doors[0] = (struct gp_wire_door){.name = "r\x02m", .state = GP_WIRE_DOOR_OFF, .text = "be\x1b[1mcause"};
        wire.rows[0] = (struct gp_wire_door_row){.device = 63, .pieces = 2, .allocated_bytes = MOST, .events = 5};
        switch (damage) {
        case 1:
            wire.door_count = GP_WIRE_DOORS + 1;
            break;
        case 2:
            wire.row_count = GP_WIRE_DOOR_ROWS + 1;
            break;
        case 3:
            wire.doors[0].state = GP_WIRE_DOOR_STATES;
            break;
        case 4:
            wire.rows[0].door = 1;
            break;
        case 5:
            wire.rows[0].device = GP_WIRE_GPUS;
            break;
        case 6:
            wire.rows[0].device = -1;
            break;
        case 7:
            wire.rows[0].reserved_bytes = -MOST - 1;
            break;
        case 8:
            wire.rows[0].events = 1ull << 63;
            break;
        default:
            break;
        }
        cr_expect_eq(gp_peer_owner_doors(&wire, &process), damage ? -EPROTO : 0, "%u", damage);
        cr_expect_str_eq(process.problem, damage ? "owners: the pools of a library are damaged" : "", "%u", damage);
        if (damage)
            continue;
        cr_expect_str_eq(process.doors.doors[0].name, "r?m");
        cr_expect_str_eq(process.doors.doors[0].text, "be?[1mcause");
        cr_expect_eq(process.doors.rows[0].allocated_bytes, MOST);
    }
}

/* What no row has is shared, if it is anything. */
Test(collect_take, owners_for_display)
{
    struct gp_owner_view views[GP_OWNER_VIEWS];
    struct gp_device_view *d = &devices[0];
    cr_assert_eq(take(), 0);
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
    static struct gp_wire_before before;
    static const struct gp_wire_blocks none;
    const int64_t most = INT64_MAX / 64;
    for (uint32_t attached = 0; attached < 3; attached++)
        for (uint32_t source = 0; source < 6; source++)
            for (int way = 0; way < 4; way++) {
                static const int64_t values[] = {-1, 0, INT64_MAX / 64, INT64_MAX / 64 + 1};
                begin();
                int64_t value = values[way], is = value < 0 || value > most ? -1 : value;
                for (unsigned i = 0; i < GP_WIRE_GPUS; i++)
                    before.devices[i] = (struct gp_wire_before_device){
                        value, value, value, way % 2 ? INT64_MAX : 1ull << 63, value, value, source, 0};
                before.attached = attached;
                gp_before_take(&before, &none, &process);
                cr_assert_eq(process.attached, attached == 1);
                for (int d = 0; d < 3; d++) {
                    const struct gp_wire_before_device *b = &devices[d].before;
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
    static const struct gp_wire_before before;
    static struct gp_wire_blocks blocks;
    for (uint32_t state = 0; state < GP_BLOCKS_STATES + 2; state++) {
        begin();
        memset(&blocks, 0, sizeof(blocks));
        blocks.state = state;
        blocks.took_ns = state % 2 ? INT64_MAX : 1ull << 63;
        blocks.devices[2] = (struct gp_wire_blocks_device){-5, INT64_MAX / 64 + 1, 1ull << 63};
        blocks.devices[63] = (struct gp_wire_blocks_device){0, INT64_MAX / 64, INT64_MAX};
        memset(blocks.text, 'a', sizeof(blocks.text));
        memcpy(blocks.text, " ~\x1f\x7f\xe2\n", 6);
        gp_before_take(&before, &blocks, &process);
        cr_expect_eq(process.blocks_state, state < GP_BLOCKS_STATES ? state : GP_BLOCKS_NONE);
        cr_expect_eq(process.blocks_took_ns, state % 2 ? (uint64_t)INT64_MAX : 0);
        cr_expect(memcmp(process.blocks_text, " ~????aa", 8) == 0 && strnlen(process.blocks_text, 160) == 159);
        bool done = state == GP_BLOCKS_DONE;
        cr_expect(devices[0].blocks.count == -1 && devices[0].blocks.bytes == -1 && devices[0].blocks.differs == 0);
        cr_expect(devices[1].blocks.count == (done ? 0 : -1) &&
                  devices[1].blocks.bytes == (done ? INT64_MAX / 64 : -1) &&
                  devices[1].blocks.differs == (done ? (uint64_t)INT64_MAX : 0));
        cr_expect(devices[2].blocks.count == -1 && devices[2].blocks.bytes == -1);
    }
    begin();
    strcpy(blocks.text, "short");
    gp_before_take(&before, &blocks, &process);
    cr_expect_str_eq(process.blocks_text, "short");
}

/* ---- a failed request -------------------------------------------------------------------------------------------- */

static struct gp_wire_oom oom;

static struct gp_wire_oom_framework oom_framework;

static void good_oom(void)
{
    memset(&oom, 0, sizeof(oom));
    memset(&oom_framework, 0, sizeof(oom_framework));
    oom.seq = 2, oom.count = 1, oom.error = 2, oom.device = 0;
    for (unsigned i = 0; i < GP_OOM_HOLDERS; i++)
        oom.holders[i].kind = GP_KIND_LINEAR;
}

static void expect_oom(const char *wrong, const char *what, int number)
{
    memset(process.problem, 0, sizeof(process.problem));
    process.oom.count = 99;
    cr_assert_eq(gp_peer_take_oom(&oom, &oom_framework, &process), *wrong ? -EPROTO : 0, "%s %d", what, number);
    cr_assert_str_eq(process.problem, wrong, "%s %d: %s", what, number, process.problem);
    cr_assert_eq(process.oom.count, *wrong || !oom.seq ? 0 : oom.count, "%s %d", what, number);
}

#define OOM "out-of-memory report: "

Test(collect_take, the_head_of_a_failed_request)
{
    good_oom();
    expect_oom("", "good", 0);
    oom.seq = 0, oom.error = 0;
    expect_oom("", "none", 0);
    good_oom(), oom.count = 0;
    expect_oom(OOM "its head is invalid", "count", 0);
    good_oom(), oom.error = 0;
    expect_oom(OOM "its head is invalid", "error", 0);
    for (int bit = 0; bit < 32; bit++) {
        good_oom(), oom.flags = 1u << bit;
        expect_oom(bit < 4 ? "" : OOM "its head is invalid", "flag", bit);
    }
    for (int device = -2; device < 67; device++) {
        good_oom(), oom.device = device;
        expect_oom(device >= -1 && device <= 64 ? "" : OOM "device out of range", "device", device);
    }
    for (unsigned count = 0; count < GP_OOM_HOLDERS + 2; count++) {
        good_oom(), oom.holder_count = count;
        expect_oom(count <= GP_OOM_HOLDERS ? "" : OOM "too many holders", "holders", (int)count);
        for (unsigned kind = 0; kind < GP_KINDS + 2 && count < GP_OOM_HOLDERS; kind++) {
            good_oom(), oom.holder_count = count, oom.holders[1].kind = (uint8_t)kind;
            bool bad = count > 1 && (kind == 0 || kind >= GP_KINDS);
            expect_oom(bad ? OOM "a holder has an unknown kind" : "", "kind", (int)kind);
        }
    }
    for (int bit = 0; bit < 32; bit++) {
        good_oom(), oom_framework.flags = 1u << bit;
        expect_oom(bit < 6 ? "" : OOM "its part about a framework is invalid", "flag", bit);
    }
    for (unsigned field = 0; field < 4; field++)
        for (int v = -2; v < 2; v++) {
            good_oom();
            int64_t *numbers[] = {&oom_framework.segment_bytes, &oom_framework.blocks, &oom_framework.private_bytes,
                                  &oom_framework.split_bytes};
            *numbers[field] = v > 0 ? MOST + 1 : v;
            bool bad = v == -2 || v > 0;
            expect_oom(bad ? OOM "its part about a framework is invalid" : "", "number", (int)field);
        }
    good_oom();
    strcpy(oom.api, "cuMem\n");
    memset(oom.policy, 'p', sizeof(oom.policy));
    memset(oom.conf, 'c', sizeof(oom.conf));
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
            int64_t *numbers[] = {
                &oom.free_bytes,          &oom.total_bytes,          &oom.reserved_bytes,   &oom.allocated_bytes,
                &oom.pool_reserved_bytes, &oom.graph_reserved_bytes, &oom.graph_used_bytes, &oom.limit_bytes,
                &oom.idle_bytes,          &oom.largest_idle_bytes,   &oom.releasable_bytes, &oom.waiting_bytes,
                &oom.idle_pieces,         &oom.pinning_blocks,       &oom.rest_bytes,       &oom.rest_count};
            *(field < 16 ? numbers[field] : &oom.kinds[field - 16]) = values[v];
            expect_oom(v % 2 ? OOM "a number is negative or too large" : "", "number", (int)field);
        }
}

/* ---- copies of CUPTI --------------------------------------------------------------------------------------------- */

Test(collect_take, copies_of_cupti)
{
    static struct gp_wire_cupti cupti;
    static const uint32_t counts[] = {0, 1, 15, 16, 17, 31, 32, 33, 4095, 4096, 4097, UINT32_MAX};
    for (size_t i = 0; i < GP_COUNT(counts); i++)
        for (size_t k = 0; k < GP_COUNT(counts); k++) {
            memset(&process.cupti, 0x55, sizeof(process.cupti));
            cupti.copies = counts[i], cupti.strange = counts[k], cupti.shared = (uint32_t)i % 3;
            for (unsigned n = 0; n < GP_WIRE_COPIES; n++) {
                cupti.copy[n] = (struct gp_wire_copy){.status = (int32_t)n - 4, .version = n};
                snprintf(cupti.copy[n].path, 256, "path%u", n);
                snprintf(cupti.copy[n].answer, 48, "answer%u", n);
            }
            for (unsigned n = 0; n < GP_WIRE_STRANGE; n++)
                snprintf(cupti.strange_names[n], 48, "name%u", n);
            gp_peer_take_cupti(&cupti, &process);
            const struct gp_cupti_view *v = &process.cupti;
            uint32_t tried = counts[i] <= 4096 ? counts[i] : 0, strange = counts[k] <= 4096 ? counts[k] : 0;
            cr_assert(v->tried == tried && v->strange == strange && v->shared == (i % 3 == 1));
            cr_assert(v->copy_count == (tried < 16 ? tried : 16) && v->name_count == (strange < 32 ? strange : 32));
            for (unsigned n = 0; n < GP_WIRE_COPIES; n++) {
                bool used = n < v->copy_count;
                cr_assert_str_eq(v->copies[n].path, used ? cupti.copy[n].path : "");
                cr_assert_str_eq(v->copies[n].answer, used ? cupti.copy[n].answer : "");
                cr_assert(v->copies[n].status == (used ? (int32_t)n - 4 : 0) && v->copies[n].version == (used ? n : 0));
            }
            for (unsigned n = 0; n < GP_WIRE_STRANGE; n++)
                cr_assert_str_eq(v->names[n], n < v->name_count ? cupti.strange_names[n] : "");
        }
}

/* ---- NVML -------------------------------------------------------------------------------------------------------- */

static struct gp_nvml_gpu nvml[3];
static int nvml_count, nvml_error;
static long nvml_held;

STANDIN(int, gp_nvml_read, struct gp_nvml_gpu **gpus, int *count, char problem[GP_NVML_PROBLEM_BYTES])
{
    snprintf(problem, GP_NVML_PROBLEM_BYTES, "%s", nvml_error ? "made up" : "");
    if (nvml_error)
        return nvml_error;
    *gpus = nvml;
    *count = nvml_count;
    nvml_held++;
    return 0;
}

STANDIN(void, gp_nvml_free, struct gp_nvml_gpu *gpus, int count)
{
    nvml_held -= gpus == nvml && count == nvml_count;
}

static ino_t namespace_inode = 0xEFFFFFFCu;

STANDIN(int, stat, const char *restrict path, struct stat *restrict status)
{
    if (strcmp(path, "/proc/self/ns/pid") != 0)
        return __real_stat(path, status);
    memset(status, 0, sizeof(*status));
    status->st_ino = namespace_inode;
    return namespace_inode ? 0 : -1;
}

/* The C library's keeps memory from call to call. */
int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t bytes, struct passwd **found)
{
    (void)uid, (void)entry, (void)buffer, (void)bytes;
    *found = NULL;
    return 0;
}

static struct gp_nvml_process seen[2][4];

/* Two GPUs; on each this process, its parent, process 1 as a profiled one, and pids that cannot be. */
static struct gp_system *machine(void)
{
    struct gp_system *system = calloc(1, sizeof(*system));
    struct gp_process *one = gp_system_add(system);
    const uint32_t pids[] = {1, (uint32_t)getpid(), 0, 1u << 31};
    one->pid = 1;
    one->state = GP_PROCESS_LIVE;
    one->devices = calloc(3, sizeof(*one->devices));
    one->device_count = 3;
    for (int i = 0; i < 3; i++) {
        one->devices[i].index = i < 2 ? i : (int)GP_WIRE_HOST;
        one->devices[i].identified = i < 2;
        one->devices[i].untracked_bytes = -1;
        one->devices[i].total_bytes = 1000;
        snprintf(one->devices[i].uuid, 48, "GPU-%d", i < 2 ? i : 0);
        one->devices[i].wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current = 100;
    }
    for (int gpu = 0; gpu < 2; gpu++) {
        nvml[gpu] = (struct gp_nvml_gpu){
            .total_bytes = 900 + gpu, .used_bytes = 500 + gpu, .process_count = 4, .processes = seen[gpu]};
        snprintf(nvml[gpu].uuid, 48, "GPU-%d", gpu);
        snprintf(nvml[gpu].name, 64, "Name %d", gpu);
        for (int i = 0; i < 4; i++)
            seen[gpu][i] = (struct gp_nvml_process){pids[i], 300 + 10 * gpu + i};
    }
    nvml_count = 2, nvml_error = 0, namespace_inode = 0xEFFFFFFCu;
    return system;
}

Test(collect_take, what_nvml_knows_of_processes)
{
    struct gp_system *s = machine();
    cr_assert_eq(gp_machine_add_nvml(s, false), 0);
    cr_expect(s->nvml && !s->nvml_problem[0] && nvml_held == 0);
    cr_assert_eq(s->gpu_count, 2);
    for (int i = 0; i < 2; i++) {
        const struct gp_gpu *g = &s->gpus[i];
        cr_expect(g->index == i && g->total_bytes == 900 + i && g->used_bytes == 500 + i && g->limit_bytes == 0);
        cr_expect_str_eq(g->uuid, i ? "GPU-1" : "GPU-0");
        cr_expect_str_eq(g->name, i ? "Name 1" : "Name 0");
        cr_expect_eq(s->processes[0].devices[i].untracked_bytes, 200 + 10 * i);
    }
    cr_expect_eq(s->processes[0].devices[2].untracked_bytes, -1, "the host is no GPU, whatever it is called");
    cr_assert_eq(s->process_count, 2);
    const struct gp_process *p = &s->processes[1];
    char number[16];
    snprintf(number, sizeof(number), "%u", (unsigned)getuid());
    cr_expect_str_eq(p->user, number);
    cr_expect(p->pid == getpid() && p->state == GP_PROCESS_FOREIGN && p->ppid == getppid() && p->device_count == 2);
    for (int i = 0; i < 2; i++) {
        const struct gp_device_view *d = &p->devices[i];
        cr_expect(d->index == i && d->ordinal == i && d->identified && d->total_bytes == 900 + i &&
                  d->untracked_bytes == 301 + 10 * i);
        cr_expect_str_eq(d->uuid, i ? "GPU-1" : "GPU-0");
        cr_expect_str_eq(d->name, i ? "Name 1" : "Name 0");
    }
    gp_system_free(s);
}

Test(collect_take, bytes_that_the_process_does_not_know)
{
    static const struct {
        int64_t seen, before;
        bool attached;
        int64_t untracked;
    } rows[] = {{-1, 0, false, -1},  {0, 0, false, 0},     {99, 0, false, 0},     {100, 0, false, 0},
                {101, 0, false, 1},  {300, 50, true, 150}, {300, 50, false, 200}, {300, -1, true, 200},
                {300, 0, true, 200}, {300, 1, true, 199},  {150, 50, true, 0},    {151, 50, true, 1}};
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        struct gp_system *s = machine();
        seen[0][0].bytes = rows[i].seen;
        s->processes[0].attached = rows[i].attached;
        s->processes[0].devices[0].before.bytes = rows[i].before;
        cr_assert_eq(gp_machine_add_nvml(s, true), 0);
        cr_expect_eq(s->processes[0].devices[0].untracked_bytes, rows[i].untracked, "%zu", i);
        cr_expect_eq(s->process_count, 1, "only profiled ones");
        gp_system_free(s);
    }
}

Test(collect_take, nvml_in_a_container_and_without_nvml)
{
    struct gp_system *s = machine();
    namespace_inode = 4026532000u;
    cr_assert_eq(gp_machine_add_nvml(s, false), 0);
    cr_expect(s->nvml && s->gpu_count == 2 && s->process_count == 1 &&
              s->processes[0].devices[0].untracked_bytes == -1);
    cr_expect_str_eq(s->nvml_problem, "in a container: NVML reports pids of the host, which cannot be matched here");
    gp_system_free(s);
    s = machine();
    nvml_error = -ENOENT;
    cr_expect_eq(gp_machine_add_nvml(s, false), 0);
    cr_expect(!s->nvml && s->gpu_count == 0);
    cr_expect_str_eq(s->nvml_problem, "made up");
    nvml_error = -ENOMEM;
    cr_expect_eq(gp_machine_add_nvml(s, false), -ENOMEM);
    gp_system_free(s);
    s = machine();
    seen[0][1].pid = 0x3fffffff; /* it has ended meanwhile */
    nvml[1].process_count = -1;
    cr_assert_eq(gp_machine_add_nvml(s, false), 0);
    cr_expect_eq(s->process_count, 1);
    gp_system_free(s);
}

/* GPUs that only processes know; and the sizes of those of which a cgroup may use a part. */
Test(collect_take, gpus_that_nvml_does_not_know)
{
    static const struct {
        int64_t total, used, device, is_total, is_limit;
    } rows[] = {{900, 5, 1000, 1000, 900}, {985, 5, 1000, 985, 0}, {984, 5, 1000, 1000, 984}, {900, -1, 1000, 900, 0},
                {900, 0, 1000, 1000, 900}, {900, 5, -1, 900, 0},   {1000, 5, 1000, 1000, 0},  {0, 5, 1000, 1000, 0},
                {-1, 5, 0, 0, -1},         {0, 0, 0, 0, 0}};
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        struct gp_system *s = machine();
        s->processes[0].device_count = 1;
        s->processes[0].devices[0].total_bytes = rows[i].device;
        nvml[0].total_bytes = rows[i].total, nvml[0].used_bytes = rows[i].used;
        cr_assert_eq(gp_machine_add_nvml(s, true), 0);
        cr_assert_eq(gp_machine_add_gpus(s), 0);
        cr_assert_eq(s->gpu_count, 2);
        cr_expect_eq(s->gpus[0].total_bytes, rows[i].is_total, "%zu: %lld", i, (long long)s->gpus[0].total_bytes);
        cr_expect_eq(s->gpus[0].limit_bytes, rows[i].is_limit, "%zu: %lld", i, (long long)s->gpus[0].limit_bytes);
        cr_expect_eq(s->gpus[1].total_bytes, 901);
        gp_system_free(s);
    }
    struct gp_system *s = machine();
    struct gp_process *more = gp_system_add(s);
    more->devices = calloc(4, sizeof(*more->devices));
    more->device_count = 4;
    for (int i = 0; i < 4; i++) {
        more->devices[i] = (struct gp_device_view){.index = 7 + i, .identified = i != 2, .total_bytes = 50 + i};
        snprintf(more->devices[i].uuid, 48, "%s", i == 1 ? "" : i == 3 ? "GPU-1" : "GPU-9");
        snprintf(more->devices[i].name, 64, "Nine");
    }
    cr_assert_eq(gp_machine_add_gpus(s), 0); /* 0 and 1 of the first process, and 9 */
    cr_assert_eq(s->gpu_count, 3);
    static const char *const uuids[] = {"GPU-0", "GPU-1", "GPU-9"};
    for (int i = 0; i < 3; i++) {
        cr_expect_str_eq(s->gpus[i].uuid, uuids[i]);
        cr_expect(s->gpus[i].index == i && s->gpus[i].used_bytes == -1 && s->gpus[i].limit_bytes == 0);
        cr_expect_eq(s->gpus[i].total_bytes, i == 2 ? 50 : 1000);
    }
    cr_expect_str_eq(s->gpus[2].name, "Nine");
    gp_system_free(s);
}

static int machine_once(void *arg)
{
    struct gp_system *s = arg;
    unsigned until = memory_fails;
    memory_fails = MEMORY_NEVER;
    s = machine();
    memory_fails = until;
    int rc = gp_machine_add_nvml(s, false);
    if (!rc)
        rc = gp_machine_add_gpus(s);
    if (!rc && (s->process_count != 2 || s->gpu_count != 2))
        rc = -1;
    gp_system_free(s);
    return nvml_held ? -2 : rc;
}

Test(collect_take, each_allocation_fails)
{
    if (!MEMORY_IS_COUNTED)
        cr_skip("a sanitizer's allocator");
    struct memory_tried tried = memory_each(machine_once, NULL);
    cr_expect_gt(tried.calls, 4, "%u", tried.calls);
    cr_expect_eq(tried.wrong, 0, "%u", tried.wrong);
    cr_expect_eq(tried.kept, 0, "%u", tried.kept);
}
