/* SPDX-License-Identifier: MIT
 *
 * peerread.c: copies the numbers of a session and checks every one: gp_peer_read and gp_peer_drop of
 * peer.h.
 */
#include <base/clock.h>
#include <base/compiler.h>
#include <base/known.h>
#include <base/text.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/peer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ==== copies of CUPTI ============================================================================================= */

/* No process has tried or met more: a larger count is damage, and is not shown. */
#define GP_CUPTI_MOST 4096u

/* A private copy, with its strings cleaned and its counts bounded. */
static void cupti_take(const struct gp_wire_cupti *cupti, struct gp_process *process)
{
    struct gp_cupti_view *view = &process->cupti;
    memset(view, 0, sizeof(*view));
    view->tried = cupti->copies <= GP_CUPTI_MOST ? cupti->copies : 0;
    view->strange = cupti->strange <= GP_CUPTI_MOST ? cupti->strange : 0;
    view->shared = cupti->shared == 1;
    view->copy_count = view->tried < GP_WIRE_COPIES ? view->tried : GP_WIRE_COPIES;
    view->name_count = view->strange < GP_WIRE_STRANGE ? view->strange : GP_WIRE_STRANGE;
    for (uint32_t i = 0; i < view->copy_count; i++) {
        const struct gp_wire_copy *from = &cupti->copy[i];
        struct gp_wire_copy *to = &view->copies[i];
        gp_text_clean(to->path, sizeof(to->path), from->path, sizeof(from->path));
        gp_text_clean(to->answer, sizeof(to->answer), from->answer, sizeof(from->answer));
        to->status = from->status;
        to->version = from->version;
    }
    for (uint32_t i = 0; i < view->name_count; i++)
        gp_text_clean(view->names[i], sizeof(view->names[i]), cupti->strange_names[i], sizeof(cupti->strange_names[i]));
}

/* ==== the out-of-memory report ==================================================================================== */

#define GP_OOM_FLAGS (GP_OOM_CACHE | GP_OOM_DRIVER | GP_OOM_PENDING | GP_OOM_PARTIAL)
#define GP_OOM_FRAMEWORK_FLAGS                                                                                         \
    (GP_OOM_FRAMEWORK | GP_OOM_REFUSED | GP_OOM_KEPT | GP_OOM_NO_POOLS | GP_OOM_BESIDE | GP_OOM_REPLAYED)

/* No machine has 2^60 bytes: sums stay in range. */
#define GP_OOM_MOST (1ll << 60)

static bool oom_framework_good(const struct gp_wire_oom_framework *framework)
{
    const int64_t numbers[] = {framework->segment_bytes, framework->blocks, framework->private_bytes,
                               framework->split_bytes};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i] < -1 || numbers[i] > GP_OOM_MOST)
            return false;
    return !(framework->flags & ~GP_OOM_FRAMEWORK_FLAGS);
}

static bool oom_numbers_good(const struct gp_wire_oom *oom)
{
    const int64_t numbers[] = {
        oom->free_bytes,          oom->total_bytes,          oom->reserved_bytes,   oom->allocated_bytes,
        oom->pool_reserved_bytes, oom->graph_reserved_bytes, oom->graph_used_bytes, oom->limit_bytes,
        oom->idle_bytes,          oom->largest_idle_bytes,   oom->releasable_bytes, oom->waiting_bytes,
        oom->idle_pieces,         oom->pinning_blocks,       oom->rest_bytes,       oom->rest_count};
    const int64_t most = GP_OOM_MOST;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i] < -1 || numbers[i] > most)
            return false;
    for (unsigned i = 0; i < GP_KINDS; i++)
        if (oom->kinds[i] < -1 || oom->kinds[i] > most)
            return false;
    return true;
}

static const char *oom_wrong(const struct gp_wire_oom *oom)
{
    if (oom->count == 0 || oom->flags & ~GP_OOM_FLAGS || oom->error == 0)
        return "its head is invalid";
    if (oom->device < -1 || oom->device > (int32_t)GP_WIRE_HOST)
        return "device out of range";
    if (oom->holder_count > GP_OOM_HOLDERS)
        return "too many holders";
    for (uint32_t i = 0; i < oom->holder_count; i++)
        if (oom->holders[i].kind == GP_KIND_NONE || oom->holders[i].kind >= GP_KINDS)
            return "a holder has an unknown kind";
    if (!oom_numbers_good(oom))
        return "a number is negative or too large";
    return NULL;
}

/* A private copy; seq 0: no report.  0, or -EPROTO with process->problem. */
static int oom_take(const struct gp_wire_oom *oom, const struct gp_wire_oom_framework *framework,
                    struct gp_process *process)
{
    memset(&process->oom, 0, sizeof(process->oom));
    memset(&process->oom_framework, 0, sizeof(process->oom_framework));
    if (oom->seq == 0)
        return 0;
    const char *wrong = oom_wrong(oom);
    if (!wrong && !oom_framework_good(framework))
        wrong = "its part about a framework is invalid";
    if (wrong) {
        snprintf(process->problem, sizeof(process->problem), "out-of-memory report: %s", wrong);
        return -EPROTO;
    }
    process->oom = *oom;
    process->oom_framework = *framework;
    gp_text_clean(process->oom.api, sizeof(process->oom.api), oom->api, sizeof(oom->api));
    gp_text_clean(process->oom.policy, sizeof(process->oom.policy), oom->policy, sizeof(oom->policy));
    gp_text_clean(process->oom.conf, sizeof(process->oom.conf), oom->conf, sizeof(oom->conf));
    return 0;
}

/* ==== owners and frameworks ======================================================================================= */

/* Bounds every number so that sums stay in range: no machine has 2^60 bytes. */
#define OWNER_MOST (1ll << 60)

static bool numbers_good(const int64_t *numbers, size_t count, int64_t least)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] < least || numbers[i] > OWNER_MOST)
            return false;
    return true;
}

static bool owner_value_good(const struct gp_wire_owner_value *value)
{
    const int64_t numbers[] = {value->reserved_bytes, value->reserved_peak_bytes, value->allocated_bytes,
                               value->allocated_peak_bytes, value->live};
    return numbers_good(numbers, sizeof(numbers) / sizeof(numbers[0]), 0);
}

/* The sums may be negative for an instant: frees and allocations of different threads. */
static bool framework_good(const struct gp_wire_framework *framework)
{
    const int64_t numbers[] = {framework->blocks,
                               framework->segments,
                               framework->allocated_bytes,
                               framework->reserved_bytes,
                               framework->their_allocated_bytes,
                               framework->their_reserved_bytes,
                               framework->private_bytes};
    const uint64_t counts[] = {framework->events, framework->allocated_differs, framework->reserved_differs,
                               framework->retries, framework->ooms};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i] > INT64_MAX)
            return false;
    return numbers_good(numbers, sizeof(numbers) / sizeof(numbers[0]), -OWNER_MOST);
}

static bool framework_take(struct gp_wire_framework *view, const struct gp_wire_framework *framework)
{
    if (!framework_good(framework))
        return false;
    *view = *framework;
    gp_text_clean(view->name, sizeof(view->name), framework->name, sizeof(framework->name));
    return true;
}

static int owners_wrong(struct gp_process *process, const char *what)
{
    snprintf(process->problem, sizeof(process->problem), "owners: %s", what);
    return -EPROTO;
}

/* A private copy, into *process and its devices.  0, or -EPROTO with process->problem. */
static int owners_take(const struct gp_wire_owners *owners, struct gp_process *process)
{
    if (owners->count > GP_WIRE_OWNERS)
        return owners_wrong(process, "too many rows");
    process->owner_count = (int)owners->count;
    for (uint32_t i = 0; i < owners->count; i++) {
        const struct gp_wire_owner *row = &owners->rows[i];
        struct gp_wire_owner *view = &process->owners[i];
        gp_text_clean(view->owner, sizeof(view->owner), row->owner, sizeof(row->owner));
        gp_text_clean(view->library, sizeof(view->library), row->library, sizeof(row->library));
    }
    for (int i = 0; i < process->device_count; i++) {
        struct gp_device_view *device = &process->devices[i];
        for (uint32_t row = 0; row < owners->count; row++)
            if (!owner_value_good(&owners->values[device->index][row]))
                return owners_wrong(process, "a number is negative or too large");
        memcpy(device->owners, owners->values[device->index], sizeof(device->owners));
        if (device->index == (int)GP_WIRE_HOST)
            continue;
        if (!framework_take(&device->framework, &owners->frameworks[device->index]) ||
            !framework_take(&device->heaps, &owners->heaps[device->index]))
            return owners_wrong(process, "a framework's number is too large");
    }
    return 0;
}

static bool door_row_good(const struct gp_wire_doors *doors, const struct gp_wire_door_row *row)
{
    const int64_t numbers[] = {row->pieces, row->pools, row->allocated_bytes, row->reserved_bytes};
    return row->door < doors->door_count && row->device >= 0 && row->device < (int)GP_WIRE_GPUS &&
           row->events <= INT64_MAX && numbers_good(numbers, sizeof(numbers) / sizeof(numbers[0]), -OWNER_MOST);
}

static int doors_take(const struct gp_wire_doors *doors, struct gp_process *process)
{
    bool good = doors->door_count <= GP_WIRE_DOORS && doors->row_count <= GP_WIRE_DOOR_ROWS;
    for (uint32_t i = 0; good && i < doors->door_count; i++)
        good = doors->doors[i].state < GP_WIRE_DOOR_STATES;
    for (uint32_t i = 0; good && i < doors->row_count; i++)
        good = door_row_good(doors, &doors->rows[i]);
    if (!good)
        return owners_wrong(process, "the pools of a library are damaged");
    process->doors = *doors;
    for (uint32_t i = 0; i < doors->door_count; i++) {
        const struct gp_wire_door *door = &doors->doors[i];
        struct gp_wire_door *view = &process->doors.doors[i];
        gp_text_clean(view->name, sizeof(view->name), door->name, sizeof(door->name));
        gp_text_clean(view->text, sizeof(view->text), door->text, sizeof(door->text));
    }
    return 0;
}

/* What no row has. The counters are summed over threads that work, so the difference may be
 * negative for an instant; the sum stays right. */
static struct gp_wire_owner_value owners_shared(const struct gp_process *process, const struct gp_device_view *device)
{
    struct gp_wire_owner_value rest = {
        .reserved_bytes = device->wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current,
        .reserved_peak_bytes = -1,
        .allocated_bytes = device->wire.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current,
        .allocated_peak_bytes = -1,
        .live = device->wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current,
    };
    for (int i = 0; i < process->owner_count; i++) {
        rest.reserved_bytes -= device->owners[i].reserved_bytes;
        rest.allocated_bytes -= device->owners[i].allocated_bytes;
        rest.live -= device->owners[i].live;
    }
    return rest;
}

/* A row has room for 23 bytes of a file's name, and its library for 39. */
static void owners_name(const struct gp_wire_owner *row, char *name, size_t bytes)
{
    if (strlen(row->owner) == sizeof(row->owner) - 1 && strncmp(row->library, row->owner, sizeof(row->owner) - 1) == 0)
        gp_known_name(row->library, name, bytes);
    else
        snprintf(name, bytes, "%s", row->owner);
}

int gp_peer_owners_of(const struct gp_process *process, const struct gp_device_view *device,
                      struct gp_owner_view views[GP_OWNER_VIEWS])
{
    int count = 0;
    if (device->totals_only || !process->owner_count)
        return 0;
    for (int i = 0; i < process->owner_count; i++) {
        const struct gp_wire_owner_value *value = &device->owners[i];
        if (!value->reserved_peak_bytes && !value->allocated_peak_bytes)
            continue;
        struct gp_owner_view *view = &views[count++];
        owners_name(&process->owners[i], view->owner, sizeof(view->owner));
        memcpy(view->library, process->owners[i].library, sizeof(view->library));
        view->value = *value;
    }
    struct gp_wire_owner_value rest = owners_shared(process, device);
    if (rest.reserved_bytes || rest.allocated_bytes || rest.live)
        views[count++] = (struct gp_owner_view){.owner = "shared", .value = rest};
    return count;
}

static int64_t before_known(int64_t bytes)
{
    return bytes < 0 || bytes > INT64_MAX / 64 ? -1 : bytes;
}

static void blocks_take(const struct gp_wire_blocks *blocks, struct gp_process *process)
{
    process->blocks_state = blocks->state < GP_BLOCKS_STATES ? blocks->state : GP_BLOCKS_NONE;
    process->blocks_took_ns = blocks->took_ns <= INT64_MAX ? blocks->took_ns : 0;
    for (size_t i = 0; i + 1 < sizeof(process->blocks_text) && blocks->text[i]; i++)
        process->blocks_text[i] = blocks->text[i] >= ' ' && blocks->text[i] <= '~' ? blocks->text[i] : '?';
    for (int i = 0; i < process->device_count; i++) {
        struct gp_device_view *device = &process->devices[i];
        device->blocks = (struct gp_wire_blocks_device){-1, -1, 0};
        if (process->blocks_state != GP_BLOCKS_DONE || device->index >= (int)GP_WIRE_GPUS)
            continue;
        const struct gp_wire_blocks_device *from = &blocks->devices[device->index];
        device->blocks.count = before_known(from->count);
        device->blocks.bytes = before_known(from->bytes);
        device->blocks.differs = from->differs <= INT64_MAX ? from->differs : 0;
    }
}

/* Numbers that cannot be are unknown. */
static void before_take(const struct gp_wire_before *before, const struct gp_wire_blocks *blocks,
                        struct gp_process *process)
{
    process->attached = before->attached == 1;
    blocks_take(blocks, process);
    for (int i = 0; i < process->device_count; i++) {
        struct gp_device_view *device = &process->devices[i];
        bool known = process->attached && device->index < (int)GP_WIRE_GPUS;
        struct gp_wire_before_device *to = &device->before;
        *to = (struct gp_wire_before_device){0};
        if (!known)
            continue;
        const struct gp_wire_before_device *from = &before->devices[device->index];
        to->source = from->source <= GP_BEFORE_FRAMEWORK ? from->source : GP_BEFORE_NONE;
        to->bytes = to->source ? before_known(from->bytes) : -1;
        to->at_attach_bytes = to->source ? before_known(from->at_attach_bytes) : -1;
        to->count = to->source ? before_known(from->count) : -1;
        to->freed = from->freed <= INT64_MAX ? from->freed : 0;
        to->framework_allocated_bytes = before_known(from->framework_allocated_bytes);
        to->framework_reserved_bytes = before_known(from->framework_reserved_bytes);
    }
}

const char *gp_before_source(const struct gp_wire_before_device *before)
{
    static const char *const names[] = {
        [GP_BEFORE_DRIVER] = "driver", [GP_BEFORE_PART] = "driver, in part", [GP_BEFORE_FRAMEWORK] = "framework"};
    return before->source <= GP_BEFORE_FRAMEWORK ? names[before->source] : NULL;
}

/* ==== the numbers ================================================================================================= */

/* A publication takes some tens of microseconds. 50 attempts at intervals of 100 us (5 ms) cover
 * one that is preempted for a time slice. A process that is stopped in the middle of one must not
 * delay the view of the others for longer. */
#define GP_READ_TRIES    50
#define GP_READ_PAUSE_NS 100000

struct gp_copy {
    struct gp_wire_header header;
    struct gp_wire_device devices[GP_WIRE_DEVICES];
    struct gp_wire_scope scopes[GP_WIRE_SCOPES];
    struct gp_wire_failure failures[GP_WIRE_FAILURES];
    struct gp_wire_oom oom;
    struct gp_wire_oom_framework oom_framework;
    struct gp_wire_owners owners;
    struct gp_wire_cupti cupti;
    struct gp_wire_before before;
    struct gp_wire_blocks blocks;
    struct gp_wire_doors doors;
};

static int copy_once(const struct gp_peer *s, struct gp_copy *copy)
{
    uint64_t after;
    int rc = gp_peer_fetch(s, &copy->header, sizeof(copy->header), 0);
    if (rc)
        return rc;
    if (copy->header.publish_seq & 1)
        return -EAGAIN;
    rc = gp_peer_fetch(s, copy->devices, sizeof(copy->devices), s->devices_offset);
    if (!rc)
        rc = gp_peer_fetch(s, copy->scopes, sizeof(copy->scopes), s->scopes_offset);
    memset(&copy->owners, 0, sizeof(copy->owners));
    if (!rc && s->owners_offset)
        rc = gp_peer_fetch(s, &copy->owners, sizeof(copy->owners), s->owners_offset);
    memset(&copy->before, 0, sizeof(copy->before));
    if (!rc && s->before_offset)
        rc = gp_peer_fetch(s, &copy->before, sizeof(copy->before), s->before_offset);
    memset(&copy->blocks, 0, sizeof(copy->blocks));
    if (!rc && s->blocks_offset)
        rc = gp_peer_fetch(s, &copy->blocks, sizeof(copy->blocks), s->blocks_offset);
    memset(&copy->doors, 0, sizeof(copy->doors));
    if (!rc && s->doors_offset)
        rc = gp_peer_fetch(s, &copy->doors, sizeof(copy->doors), s->doors_offset);
    /* Each fetch is a system call: its copy is complete before the next one starts. */
    if (!rc)
        rc = gp_peer_fetch(s, &after, sizeof(after), offsetof(struct gp_wire_header, publish_seq));
    if (!rc && after != copy->header.publish_seq)
        rc = -EAGAIN;
    return rc;
}

/* Copies the last complete report. If every attempt meets one that is being written, there is
 * none. */
static int copy_oom(const struct gp_peer *s, struct gp_wire_oom *oom, struct gp_wire_oom_framework *framework)
{
    uint64_t after;
    int rc = 0;
    memset(framework, 0, sizeof(*framework));
    for (int i = 0; i < GP_READ_TRIES && !rc && s->oom_offset; i++) {
        if (i)
            nanosleep(&(struct timespec){0, GP_READ_PAUSE_NS}, NULL);
        rc = gp_peer_fetch(s, oom, sizeof(*oom), s->oom_offset);
        if (!rc && s->oom_framework_offset)
            rc = gp_peer_fetch(s, framework, sizeof(*framework), s->oom_framework_offset);
        if (!rc)
            rc = gp_peer_fetch(s, &after, sizeof(after), s->oom_offset + offsetof(struct gp_wire_oom, seq));
        if (!rc && after == oom->seq && !(after & 1))
            return 0;
    }
    memset(oom, 0, sizeof(*oom));
    return rc;
}

static int copy_take(const struct gp_peer *s, struct gp_copy *copy)
{
    int rc = -EAGAIN;
    for (int i = 0; i < GP_READ_TRIES && rc == -EAGAIN; i++) {
        if (i)
            nanosleep(&(struct timespec){0, GP_READ_PAUSE_NS}, NULL);
        rc = copy_once(s, copy);
    }
    if (!rc) /* each row is written once, so these are not under publish_seq */
        rc = gp_peer_fetch(s, copy->failures, sizeof(copy->failures), s->failures_offset);
    if (!rc)
        rc = copy_oom(s, &copy->oom, &copy->oom_framework);
    memset(&copy->cupti, 0, sizeof(copy->cupti));
    if (!rc && s->cupti_offset) /* its rows precede its counts */
        rc = gp_peer_fetch(s, &copy->cupti, sizeof(copy->cupti), s->cupti_offset);
    return rc;
}

static bool value_good(const struct gp_wire_value *value)
{
    return value->current >= 0 && value->peak >= 0 && value->allocated >= 0 && value->freed >= 0;
}

static bool kind_good(const struct gp_wire_kind_value *kind)
{
    /* -1 is unknown: the memory of a context, or the reserved bytes of a kind that reserves none
     * itself. */
    return kind->current_bytes >= -1 && kind->peak_bytes >= -1 && kind->allocated_bytes >= -1 &&
           kind->freed_bytes >= -1 && kind->live >= -1 && kind->live_peak >= -1 && kind->calls >= -1 &&
           kind->reserved_bytes >= -1;
}

/* NULL, or what is wrong. Counts of memory cannot be negative: a negative count means damage. */
static const char *device_wrong(const struct gp_wire_device *d, int index)
{
    bool host = index == (int)GP_WIRE_HOST;
    if (host ? d->ordinal != -1 : d->ordinal < 0 || d->ordinal >= (int)GP_WIRE_GPUS)
        return "ordinal out of range";
    for (int i = 0; i < GP_STATS; i++) {
        for (int pool = 0; pool < GP_POOLS; pool++) {
            if (!value_good(&d->stats[i][pool]))
                return "a statistic is negative";
        }
    }
#define GP_VALUE(_id, _name)                                                                                           \
    if (!value_good(&d->_name))                                                                                        \
        return "a statistic is negative";
#include <gpuprof/numbers.def>
    if (d->num_alloc_retries < 0 || d->num_ooms < 0 || d->num_sync_all_streams < 0 || d->num_device_alloc < 0 ||
        d->num_device_free < 0 || d->max_split_size < -1 || d->total_bytes < -1 || d->linear_rounded_bytes < 0 ||
        d->beside_bytes < 0 || d->polled.peak_bytes < 0 || d->polled.pool_bytes < 0 || d->polled.limit_bytes < 0)
        return "a count is negative";
    for (int i = 0; i < GP_KINDS; i++) {
        if (!kind_good(&d->kinds[i]))
            return "a kind's count is negative";
    }
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++) {
        if (d->scopes[i].allocated_peak_bytes < 0 || d->scopes[i].reserved_peak_bytes < 0)
            return "a scope's peak is negative";
    }
    return NULL;
}

static void device_take(struct gp_device_view *view, const struct gp_wire_device *d, int index)
{
    view->index = index;
    view->ordinal = d->ordinal;
    view->identified = d->flags & GP_DEVICE_IDENTIFIED;
    view->estimated = d->flags & GP_DEVICE_ESTIMATED;
    view->polled = d->flags & GP_DEVICE_POLLED;
    view->total_bytes = view->identified ? d->total_bytes : -1;
    view->untracked_bytes = -1;
    if (view->identified) {
        gp_text_uuid(view->uuid, sizeof(view->uuid), d->uuid);
        gp_text_clean(view->name, sizeof(view->name), d->name, sizeof(d->name));
    }
    view->wire = *d;
    memset(view->wire.name, 0, sizeof(view->wire.name)); /* only view->name may be printed */
}

static int devices_take(const struct gp_copy *copy, struct gp_process *process)
{
    int count = 0;
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++)
        count += copy->devices[i].flags & GP_DEVICE_PRESENT ? 1 : 0;
    process->devices = calloc((size_t)(count ? count : 1), sizeof(*process->devices));
    if (!process->devices)
        return -ENOMEM;
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        if (!(copy->devices[i].flags & GP_DEVICE_PRESENT))
            continue;
        const char *wrong = device_wrong(&copy->devices[i], (int)i);
        if (wrong) {
            snprintf(process->problem, sizeof(process->problem), "device %u: %s", i, wrong);
            return -EPROTO;
        }
        struct gp_device_view *view = &process->devices[process->device_count++];
        device_take(view, &copy->devices[i], (int)i);
        process->simulated |= strncmp(view->name, "Simulated GPU", 13) == 0;
    }
    return 0;
}

static int scopes_take(const struct gp_copy *copy, struct gp_process *process)
{
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++) {
        const struct gp_wire_scope *scope = &copy->scopes[i];
        if (!scope->in_use)
            continue;
        if (scope->in_use != 1) {
            snprintf(process->problem, sizeof(process->problem), "scope %u: neither open nor free", i);
            return -EPROTO;
        }
        struct gp_scope_view *view = &process->scopes[process->scope_count++];
        view->slot = (int)i;
        view->begin_ns = scope->begin_ns;
        gp_text_clean(view->name, sizeof(view->name), scope->name, sizeof(scope->name));
    }
    for (unsigned i = 0; i < GP_WIRE_FAILURES; i++) {
        const struct gp_wire_failure *failure = &copy->failures[i];
        if (!failure->error)
            continue;
        struct gp_failure_view *view = &process->failures[process->failure_count++];
        gp_text_clean(view->api, sizeof(view->api), failure->api, sizeof(failure->api));
        view->error = failure->error;
        view->count = failure->count;
    }
    return 0;
}

static int header_take(const struct gp_wire_header *h, struct gp_process *process)
{
    if (h->source > GP_SOURCE_HOOKS) {
        snprintf(process->problem, sizeof(process->problem), "header: unknown source of events %u", h->source);
        return -EPROTO;
    }
    process->source = h->source;
    process->driver_version = h->driver_version;
    process->cupti_version = h->cupti_version;
    process->closed = h->flags & GP_SESSION_CLOSED;
    process->disabled = h->flags & GP_SESSION_DISABLED;
    process->yielded = h->flags & GP_SESSION_YIELDED;
    process->gone = h->flags & GP_SESSION_GONE;
    gp_text_clean(process->source_detail, sizeof(process->source_detail), h->source_detail, sizeof(h->source_detail));
    gp_text_clean(process->trouble, sizeof(process->trouble), h->trouble, sizeof(h->trouble));
    gp_text_clean(process->options, sizeof(process->options), h->options, sizeof(h->options));
    gp_text_clean(process->stacks, sizeof(process->stacks), h->stacks_detail, sizeof(h->stacks_detail));
    gp_text_clean(process->allocator, sizeof(process->allocator), h->allocator, sizeof(h->allocator));
    memcpy(process->lost, h->lost, sizeof(process->lost));
    process->recording.state = h->record_state <= GP_RECORD_FAILED ? h->record_state : GP_RECORD_OFF;
    process->recording.error = h->record_errno > 0 && h->record_errno < 4096 ? h->record_errno : 0;
    process->recording.events = h->recorded & INT64_MAX;
    process->recording.lost = h->record_lost & INT64_MAX;
    process->events = h->events;
    process->enabled_callbacks = h->enabled_callbacks;
    process->publish_ns = h->publish_ns;
    uint64_t now = gp_clock_ns();
    process->age_ns = h->publish_ns && h->publish_ns < now ? now - h->publish_ns : 0;
    return 0;
}

/* Discards everything copied from a damaged session, because any part of it may be wrong. */
static void copy_reject(struct gp_process *process)
{
    gp_peer_drop(process);
    process->scope_count = 0;
    process->failure_count = 0;
    process->owner_count = 0;
    memset(&process->oom, 0, sizeof(process->oom));
    memset(&process->oom_framework, 0, sizeof(process->oom_framework));
    memset(&process->cupti, 0, sizeof(process->cupti));
    process->simulated = false;
    process->state = GP_PROCESS_DAMAGED;
}

int gp_peer_read(const struct gp_peer *session, struct gp_process *process)
{
    struct gp_copy *copy = malloc(sizeof(*copy));
    if (!copy)
        return -ENOMEM;
    process->state = GP_PROCESS_UNKNOWN;
    process->session_ns = session->start_ns;
    memset(&process->oom, 0, sizeof(process->oom));
    int rc = copy_take(session, copy);
    if (rc == -EAGAIN) {
        snprintf(process->problem, sizeof(process->problem),
                 "an update of the numbers was never finished (the process is stopped, or died during it)");
        free(copy);
        return 0;
    }
    /* The layout was checked when the session was opened and is not read again; only the other
     * fields of this copy are used. */
    if (rc)
        snprintf(process->problem, sizeof(process->problem), "the session could not be read");
    else
        rc = header_take(&copy->header, process);
    if (!rc)
        cupti_take(&copy->cupti, process);
    if (!rc && copy->header.publish_ns) {
        process->state = GP_PROCESS_STALE;
        rc = devices_take(copy, process);
        if (!rc)
            rc = owners_take(&copy->owners, process);
        if (!rc)
            rc = doors_take(&copy->doors, process);
        if (!rc)
            before_take(&copy->before, &copy->blocks, process);
        if (!rc)
            rc = scopes_take(copy, process);
        if (!rc)
            rc = oom_take(&copy->oom, &copy->oom_framework, process);
    }
    free(copy);
    if (rc && rc != -ENOMEM) {
        copy_reject(process);
        rc = 0;
    }
    return rc;
}

void gp_peer_drop(struct gp_process *process)
{
    free(process->devices);
    process->devices = NULL;
    process->device_count = 0;
}
