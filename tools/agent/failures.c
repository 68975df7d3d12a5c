/* SPDX-License-Identifier: MIT
 *
 * failures.c: logs failed allocations from the ring of events (failures.h). A record is a frame
 * written by the kernel (process, length) around the process's own bytes. Only the type of an event
 * is examined, and of a failed allocation the numbers, which are logged unchecked.
 */
#include <agent/failures.h>
#include <agent/kernel/bpf.h>
#include <agent/maps/maps.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <base/text.h>
#include <gpuprof/maps.h>
#include <gpuprof/wire.h>
#include <read/common/agentlog.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Log lines per second: for one container, and in all. A training job that runs out of memory fails
 * once and ends; a server that retries fails thousands of times with the same message. */
#define GP_FAILURES_CONTAINER 10u
#define GP_FAILURES_ALL       100u
#define GP_FAILURES_SECOND    1000000000ull
/* Records per turn, some 10 ms of work: the heartbeat stays on time while the ring fills as fast as
 * it is read. */
#define GP_FAILURES_RECORDS 4096u
/* A name is looked up again after this time: a runtime may write its files after the first event. */
#define GP_FAILURES_NAME_NS 30000000000ull

struct gp_failures_source { /* a container that had a log line in this second */
    uint64_t cgroup_id;
    uint32_t lines;
    uint64_t named_ns; /* 0: name is not set */
    char name[192];
};

struct gp_failures {
    struct ring_buffer *ring;
    int processes;   /* the table process_device, which maps a device number to a GPU */
    uint32_t budget; /* records left in this turn */
    struct gp_failures_count count;
    uint64_t second_ns, suppressed_logged;
    uint32_t lines, source_count;
    struct gp_failures_source source[GP_FAILURES_ALL]; /* one for each line that a second may have */
};

/* ---- one log line ------------------------------------------------------------------------------------------------ */

static void failures_second(struct gp_failures *failures)
{
    uint64_t now = gp_clock_ns();
    if (now - failures->second_ns < GP_FAILURES_SECOND)
        return;
    uint64_t suppressed = failures->count.suppressed - failures->suppressed_logged;
    if (suppressed)
        gp_agent_log(GP_AGENTLOG_WARNING, "suppressed %" PRIu64 " further allocation-failure messages (rate limit)",
                     suppressed);
    failures->suppressed_logged = failures->count.suppressed;
    failures->second_ns = now;
    failures->lines = 0;
    for (uint32_t i = 0; i < failures->source_count; i++)
        failures->source[i].lines = 0;
}

/* The container's entry: its own, a new one, or that of a container with no line in this second.
 * There are as many entries as lines, so one is found while a line may be written. */
static struct gp_failures_source *failures_find(struct gp_failures *failures, uint64_t cgroup_id)
{
    struct gp_failures_source *free_entry = NULL;
    for (uint32_t i = 0; i < failures->source_count; i++) {
        if (failures->source[i].cgroup_id == cgroup_id)
            return &failures->source[i];
        if (failures->source[i].lines == 0)
            free_entry = &failures->source[i];
    }
    if (failures->source_count < GP_FAILURES_ALL)
        free_entry = &failures->source[failures->source_count++];
    if (free_entry)
        *free_entry = (struct gp_failures_source){.cgroup_id = cgroup_id};
    return free_entry;
}

static const char *failures_name(struct gp_failures_source *source, pid_t hint)
{
    uint64_t now = gp_clock_ns();
    if (source->named_ns && now - source->named_ns < GP_FAILURES_NAME_NS)
        return source->name;
    struct gp_container_name found;
    source->named_ns = now;
    if (gp_container_lookup("", source->cgroup_id, hint, &found) != 0)
        snprintf(source->name, sizeof(source->name), "cgroup %" PRIu64, source->cgroup_id);
    else if (found.pod[0])
        snprintf(source->name, sizeof(source->name), "%.60s/%.60s/%.60s", found.namespace_, found.pod, found.container);
    else
        snprintf(source->name, sizeof(source->name), "%.180s", found.container[0] ? found.container : found.path);
    return source->name;
}

static void failures_device(struct gp_failures *failures, uint32_t tgid, uint32_t device, char *text, size_t bytes)
{
    static const uint8_t none[16];
    struct gp_map_process_key key = {.tgid = tgid, .device = device};
    struct gp_map_process row;
    char uuid[48];
    if (device == UINT8_MAX) {
        snprintf(text, bytes, "an unknown GPU");
    } else if (bpf_map_lookup_elem(failures->processes, &key, &row) || !memcmp(row.uuid, none, sizeof(none))) {
        snprintf(text, bytes, "its GPU %" PRIu32, device); /* the process has ended, or has not reported its UUID yet */
    } else {
        gp_text_uuid(uuid, sizeof(uuid), row.uuid);
        snprintf(text, bytes, "its GPU %" PRIu32 " (%s)", device, uuid);
    }
}

static void failures_log(struct gp_failures *failures, const struct gp_map_record *record,
                         const struct gp_wire_event *event)
{
    failures->count.failures++;
    failures_second(failures);
    struct gp_failures_source *source =
        failures->lines < GP_FAILURES_ALL ? failures_find(failures, record->cgroup_id) : NULL;
    if (!source || source->lines >= GP_FAILURES_CONTAINER) {
        failures->count.suppressed++;
        return;
    }
    failures->lines++;
    source->lines++;
    char comm[64], device[96], bytes[32] = "memory"; /* not every call has a size */
    if (event->bytes)
        snprintf(bytes, sizeof(bytes), "%" PRIu64 " bytes", event->bytes);
    gp_text_clean(comm, sizeof(comm), record->comm, sizeof(record->comm));
    failures_device(failures, record->tgid, event->device, device, sizeof(device));
    gp_agent_log(GP_AGENTLOG_WARNING,
                 "allocation failed: pid %" PRIu32 " (%s) in %s requested %s on %s: error %" PRIu32, record->tgid, comm,
                 failures_name(source, (pid_t)record->tgid), bytes, device, event->error);
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

void gp_failures_take(struct gp_failures *failures, const void *data, size_t bytes)
{
    const struct gp_map_record *record = data;
    size_t room = bytes < sizeof(*record) ? 0 : (bytes - sizeof(*record)) / sizeof(record->events[0]);
    failures->count.records++;
    if (bytes < sizeof(*record) || record->count > room) {
        failures->count.malformed++; /* the BPF program writes no such record: the ring is damaged */
        return;
    }
    failures->count.events += record->count;
    for (uint32_t i = 0; i < record->count; i++) {
        if (GP_UNLIKELY(record->events[i].type == GP_EVENT_OOM))
            failures_log(failures, record, &record->events[i]);
    }
}

static int failures_record(void *arg, void *data, size_t bytes)
{
    struct gp_failures *failures = arg;
    gp_failures_take(failures, data, bytes);
    return --failures->budget ? 0 : -EAGAIN;
}

int gp_failures_open(struct gp_failures **out, struct gp_bpf *bpf)
{
    *out = NULL;
    struct gp_failures *failures = calloc(1, sizeof(*failures));
    if (!failures)
        return -ENOMEM;
    failures->second_ns = gp_clock_ns();
    failures->processes = bpf ? gp_bpf_map(bpf, "process_device") : -1;
    int events = bpf ? gp_bpf_map(bpf, "events") : -1;
    if (bpf)
        failures->ring = ring_buffer__new(events, failures_record, failures, NULL);
    if (bpf && !failures->ring) {
        int error = -errno;
        free(failures);
        return error;
    }
    *out = failures;
    return 0;
}

void gp_failures_close(struct gp_failures *failures)
{
    if (!failures)
        return;
    ring_buffer__free(failures->ring);
    free(failures);
}

int gp_failures_fd(const struct gp_failures *failures)
{
    return failures->ring ? ring_buffer__epoll_fd(failures->ring) : -1;
}

void gp_failures_turn(struct gp_failures *failures)
{
    failures->budget = GP_FAILURES_RECORDS;
    if (failures->ring)
        ring_buffer__consume(failures->ring);
    failures_second(failures);
}

struct gp_failures_count gp_failures_count(const struct gp_failures *failures)
{
    return failures->count;
}
