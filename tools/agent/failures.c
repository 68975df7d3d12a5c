/* SPDX-License-Identifier: MIT
 *
 * failures.c: see failures.h.  A record is the kernel's frame (whose it is, how long) around the process's own bytes:
 * of an event the type is looked at, and of a failed allocation the numbers, which are said as they stand.
 */
#include <agent/failures.h>
#include <base/clock.h>
#include <base/text.h>
#include <collect/uuid.h>
#include <common/agentlog.h>
#include <maps/maps.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lines a second: of one container, and of all.  A training job that runs out of memory fails once and ends; a server
 * that retries fails thousands of times and says the same each time. */
#define GP_FAILURES_CONTAINER 10u
#define GP_FAILURES_ALL       100u
#define GP_FAILURES_SECOND    1000000000ull
/* Of one turn, so that the heart beats on time while the ring is filled as fast as it is read: some 10 ms of work. */
#define GP_FAILURES_RECORDS 4096u
/* A name is looked up again after so long: files of runtimes may come later than the first event. */
#define GP_FAILURES_NAME_NS 30000000000ull

struct gp_failures_teller { /* a container that has said something in this second */
    uint64_t cgroup_id;
    uint32_t lines;
    uint64_t named_ns; /* 0: name is not known */
    char name[192];
};

struct gp_failures {
    struct ring_buffer *ring;
    int processes;   /* the table process_device: which GPU a device number means */
    uint32_t budget; /* records of this turn */
    struct gp_failures_count count;
    uint64_t second_ns, unsaid_said;
    uint32_t lines, tellers;
    struct gp_failures_teller teller[GP_FAILURES_ALL]; /* one for each line that a second may have */
};

/* ---- who and where ----------------------------------------------------------------------------------------------- */

static void failures_second(struct gp_failures *failures)
{
    uint64_t now = gp_clock_ns();
    if (now - failures->second_ns < GP_FAILURES_SECOND)
        return;
    uint64_t unsaid = failures->count.unsaid - failures->unsaid_said;
    if (unsaid)
        gp_agent_log(GP_AGENTLOG_WARNING,
                     "%" PRIu64 " more failed allocations are not said one by one: they came too fast", unsaid);
    failures->unsaid_said = failures->count.unsaid;
    failures->second_ns = now;
    failures->lines = 0;
    for (uint32_t i = 0; i < failures->tellers; i++)
        failures->teller[i].lines = 0;
}

/* A place for the container: its own, a new one, or that of one which is silent in this second.  There are as many as
 * lines, so there is always one while a line may be written. */
static struct gp_failures_teller *failures_find(struct gp_failures *failures, uint64_t cgroup_id)
{
    struct gp_failures_teller *silent = NULL;
    for (uint32_t i = 0; i < failures->tellers; i++) {
        if (failures->teller[i].cgroup_id == cgroup_id)
            return &failures->teller[i];
        if (failures->teller[i].lines == 0)
            silent = &failures->teller[i];
    }
    if (failures->tellers < GP_FAILURES_ALL)
        silent = &failures->teller[failures->tellers++];
    if (silent)
        *silent = (struct gp_failures_teller){.cgroup_id = cgroup_id};
    return silent;
}

static const char *failures_name(struct gp_failures_teller *teller, pid_t hint)
{
    uint64_t now = gp_clock_ns();
    if (teller->named_ns && now - teller->named_ns < GP_FAILURES_NAME_NS)
        return teller->name;
    struct gp_container_name found;
    teller->named_ns = now;
    if (gp_container_lookup("", teller->cgroup_id, hint, &found) != 0)
        snprintf(teller->name, sizeof(teller->name), "cgroup %" PRIu64, teller->cgroup_id);
    else if (found.pod[0])
        snprintf(teller->name, sizeof(teller->name), "%.60s/%.60s/%.60s", found.namespace_, found.pod, found.container);
    else
        snprintf(teller->name, sizeof(teller->name), "%.180s", found.container[0] ? found.container : found.path);
    return teller->name;
}

static void failures_device(struct gp_failures *failures, uint32_t tgid, uint32_t device, char *text, size_t bytes)
{
    static const uint8_t none[16];
    struct gp_map_process_key key = {.tgid = tgid, .device = device};
    struct gp_map_process row;
    char uuid[48];
    if (device == UINT8_MAX) {
        snprintf(text, bytes, "no known GPU");
    } else if (bpf_map_lookup_elem(failures->processes, &key, &row) || !memcmp(row.uuid, none, sizeof(none))) {
        snprintf(text, bytes, "its GPU %" PRIu32, device); /* the process is gone, or has not said yet which that is */
    } else {
        gp_text_uuid(uuid, sizeof(uuid), row.uuid);
        snprintf(text, bytes, "its GPU %" PRIu32 " (%s)", device, uuid);
    }
}

static void failures_say(struct gp_failures *failures, const struct gp_map_record *record,
                         const struct gp_wire_event *event)
{
    failures->count.failures++;
    failures_second(failures);
    struct gp_failures_teller *teller =
        failures->lines < GP_FAILURES_ALL ? failures_find(failures, record->cgroup_id) : NULL;
    if (!teller || teller->lines >= GP_FAILURES_CONTAINER) {
        failures->count.unsaid++;
        return;
    }
    failures->lines++;
    teller->lines++;
    char comm[64], device[96], bytes[32] = "memory"; /* not every call says how much */
    if (event->bytes)
        snprintf(bytes, sizeof(bytes), "%" PRIu64 " bytes", event->bytes);
    gp_text_clean(comm, sizeof(comm), record->comm, sizeof(record->comm));
    failures_device(failures, record->tgid, event->device, device, sizeof(device));
    gp_agent_log(GP_AGENTLOG_WARNING,
                 "allocation failed: pid %" PRIu32 " (%s) in %s asked for %s of %s: error %" PRIu32, record->tgid, comm,
                 failures_name(teller, (pid_t)record->tgid), bytes, device, event->error);
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

void gp_failures_take(struct gp_failures *failures, const void *data, size_t bytes)
{
    const struct gp_map_record *record = data;
    size_t room = bytes < sizeof(*record) ? 0 : (bytes - sizeof(*record)) / sizeof(record->events[0]);
    failures->count.records++;
    if (bytes < sizeof(*record) || record->count > room) {
        failures->count.broken++; /* the kernel's side writes none: the ring is damaged or another's */
        return;
    }
    failures->count.events += record->count;
    for (uint32_t i = 0; i < record->count; i++) {
        if (GP_UNLIKELY(record->events[i].type == GP_EVENT_OOM))
            failures_say(failures, record, &record->events[i]);
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
