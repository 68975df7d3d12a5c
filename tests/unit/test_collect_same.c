/* SPDX-License-Identifier: MIT
 *
 * test_collect_same.c: what the reader of sessions makes of damaged ones is what it made of them
 * before: the JSON and the tables of those that it accepts, and why it refuses the others.  The
 * damage is that of fuzz_session.c: each byte of each part is changed.  tests/golden/session.txt has
 * a checksum for each part; GP_GOLDEN_UPDATE=1 writes it.
 */
#define FUZZ_SEEN(_session, _process, _problem) seen(_session, _process, _problem)
#define FUZZ_QUIET
struct gp_peer;
struct gp_process;
static void seen(const struct gp_peer *session, const struct gp_process *process, const char *problem);
#include "../fuzz/fuzz_session.c"

#include <criterion/criterion.h>
#include <lib/paths.h>

static uint64_t sum;

static void add(const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * 1099511628211ull; /* FNV-1a */
}

static void add_number(uint64_t number)
{
    add(&number, sizeof(number));
}

static void add_text(const char *text)
{
    add(text, strlen(text) + 1);
}

static void add_device(const struct gp_device_view *device)
{
    add_number((uint64_t)device->index), add_number((uint64_t)device->ordinal), add_number(device->identified);
    add_number(device->estimated), add_number(device->polled), add_number((uint64_t)device->total_bytes);
    add_text(device->uuid), add_text(device->name);
    add(device->wire.stats, sizeof(device->wire.stats));
    for (int kind = 0; kind < GP_KINDS; kind++)
        add(&device->wire.kinds[kind], sizeof(device->wire.kinds[kind]));
    add_number((uint64_t)device->wire.num_ooms), add_number((uint64_t)device->wire.linear_rounded_bytes);
}

static void add_ring(const struct gp_peer *session)
{
    struct gp_ringread *reader;
    const struct gp_wire_event *events;
    if (gp_ringread_new_fd(&reader, session->fd, session->ring_offset, session->chunk_count, GP_RINGREAD_OLDEST) != 0)
        return;
    ssize_t count = gp_ringread_poll(reader, UINT64_MAX, &events);
    for (ssize_t i = 0; i < count; i++) {
        add_number(events[i].type), add_number(events[i].kind), add_number(events[i].device);
        add_number(events[i].address), add_number(events[i].bytes), add_number(events[i].stream);
    }
    add_number((uint64_t)count);
    gp_ringread_free(reader);
}

/* Not what differs from run to run: the process and its times. */
static void seen(const struct gp_peer *session, const struct gp_process *process, const char *problem)
{
    add_text(problem);
    if (!session)
        return;
    add_number(process->state), add_number(process->source), add_number(process->closed), add_number(process->disabled);
    add_text(process->problem), add_text(process->source_detail), add_text(process->trouble);
    add_text(process->options), add_text(process->stacks), add_text(process->allocator);
    add_number(process->attached), add_number(process->gone), add_number(process->yielded);
    add(process->lost, sizeof(process->lost)), add_number(process->events), add_number(process->enabled_callbacks);
    add_number(process->recording.state), add_number((uint64_t)process->recording.error);
    add_number(process->recording.events), add_number(process->recording.lost);
    add_number(process->driver_version), add_number(process->cupti_version);
    for (int i = 0; i < process->device_count; i++)
        add_device(&process->devices[i]);
    for (int i = 0; i < process->scope_count; i++)
        add_text(process->scopes[i].name);
    for (int i = 0; i < process->failure_count; i++)
        add_text(process->failures[i].api), add_number((uint64_t)process->failures[i].count);
    for (int i = 0; i < process->owner_count; i++)
        add_text(process->owners[i].owner);
    add_number((uint64_t)process->device_count), add_number((uint64_t)process->scope_count);
    add_number((uint64_t)process->failure_count), add_number(process->oom.count);
    add_ring(session);
}

static void change(size_t from, size_t bytes)
{
    static const uint8_t changes[] = {0x01, 0x80, 0xff};
    for (size_t at = from; at < from + bytes; at++)
        for (size_t i = 0; i < sizeof(changes); i++) {
            uint8_t was = ((uint8_t *)spare)[at];
            uint8_t patch[] = {0, (uint8_t)at, (uint8_t)(at >> 8), (uint8_t)(at >> 16), 1, (uint8_t)(was ^ changes[i])};
            bool waits = at == offsetof(struct gp_wire_header, publish_seq) && i; /* 5 ms, for an odd number */
            if (!waits)
                LLVMFuzzerTestOneInput(patch, sizeof(patch));
        }
}

static size_t whole(const char *path, char *into, size_t room)
{
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s is missing: GP_GOLDEN_UPDATE=1 writes it", path);
    size_t size = fread(into, 1, room - 1, file);
    into[size] = '\0';
    fclose(file);
    return size;
}

Test(golden, damaged_sessions, .timeout = 120)
{
    static char golden[2048], old[2048];
    fuzz_begin();
    const struct gp_wire_header *header = good.header;
    const struct {
        const char *name;
        size_t from, bytes;
    } parts[] = {
        {"header", 0, sizeof(*header)},
        {"device", header->devices_offset, sizeof(struct gp_wire_device)},
        {"host", header->devices_offset + GP_WIRE_HOST * sizeof(struct gp_wire_device), 256},
        {"scope", header->scopes_offset + 2 * sizeof(struct gp_wire_scope), sizeof(struct gp_wire_scope)},
        {"failure", header->failures_offset + 3 * sizeof(struct gp_wire_failure), sizeof(struct gp_wire_failure)},
    };
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char line[64];
        sum = 14695981039346656037ull;
        change(parts[i].from, parts[i].bytes);
        snprintf(line, sizeof(line), "%s %016llx\n", parts[i].name, (unsigned long long)sum);
        strcat(golden, line);
    }
    const char *path = path_source("tests/golden/session.txt");
    if (getenv("GP_GOLDEN_UPDATE")) {
        FILE *file = fopen(path, "w");
        cr_assert(file, "%s", path);
        fputs(golden, file);
        fclose(file);
    }
    whole(path, old, sizeof(old));
    cr_expect_str_eq(golden, old);
    cr_expect(accepted > 100 && refused > 100 && damaged > 100, "%lu, %lu, %lu", (unsigned long)accepted,
              (unsigned long)refused, (unsigned long)damaged);
}
