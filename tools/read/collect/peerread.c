/* SPDX-License-Identifier: MIT
 *
 * peerread.c: copies the numbers of a session and checks every one: gp_peer_read and gp_peer_drop
 * of peer.h.
 */
#include <read/collect/cuptiread.h>
#include <read/collect/oomread.h>
#include <read/collect/ownerread.h>
#include <read/collect/peer.h>

#include <base/clock.h>
#include <base/compiler.h>
#include <base/text.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    if (!value_good(&d->oversize_allocations) || !value_good(&d->oversize_segments) || !value_good(&d->asleep_bytes))
        return "a statistic is negative";
    if (d->num_alloc_retries < 0 || d->num_ooms < 0 || d->num_sync_all_streams < 0 || d->num_device_alloc < 0 ||
        d->num_device_free < 0 || d->max_split_size < -1 || d->total_bytes < -1 || d->linear_rounded_bytes < 0 ||
        d->beside_bytes < 0)
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
        gp_cupti_take(&copy->cupti, process);
    if (!rc && copy->header.publish_ns) {
        process->state = GP_PROCESS_STALE;
        rc = devices_take(copy, process);
        if (!rc)
            rc = gp_owners_take(&copy->owners, process);
        if (!rc)
            rc = gp_owners_doors(&copy->doors, process);
        if (!rc)
            gp_before_take(&copy->before, &copy->blocks, process);
        if (!rc)
            rc = scopes_take(copy, process);
        if (!rc)
            rc = gp_oom_take(&copy->oom, &copy->oom_framework, process);
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
