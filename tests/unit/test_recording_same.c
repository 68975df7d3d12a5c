/* SPDX-License-Identifier: MIT
 *
 * test_recording_same.c: what the reader of recordings makes of damaged files is what it made of them
 * before: every field of those that it accepts, and why it refuses the others.  The files are the
 * inputs of fuzz_recording.c, each with every byte changed in five ways, and cut there.
 * tests/golden/recording.txt has a checksum for each; GP_GOLDEN_UPDATE=1 writes it, without the
 * lines of other versions of libzstd.
 */
#include <read/recording/recording.h>
#include <stdint.h>

static void seen(const struct gp_recording *recording, const char *why);
#define FUZZ_SEEN(_recording, _why) seen(_recording, _why)
#include "../fuzz/fuzz_recording.c"

#include <criterion/criterion.h>
#include <lib/build.h>
#include <lib/paths.h>
#include <lib/recsave.h>
#include <zstd.h>

static uint64_t sum;
static const char *copy_path;   /* where accepted recordings are written; NULL: nowhere */
static const char *copied_name; /* of the input */

static void add(uint64_t number)
{
    for (int i = 0; i < 64; i += 16)
        sum = (sum ^ (number >> i & 0xffff)) * 1099511628211ull; /* FNV-1a, two bytes at a time */
}

static void add_text(const char *text)
{
    for (; *text; text++)
        add((unsigned char)*text);
    add(0);
}

static void add_event(const struct gp_recording *r, const struct gp_rec_event *event)
{
    if (event->type == GP_EVENT_MARK)
        add_text(r->strings + event->bytes);
    else
        add(event->bytes);
    add(event->time_ns), add(event->address), add(event->unused), add(event->site);
    add(event->thread), add(event->cost), add(event->stream), add(event->type), add(event->kind), add(event->device);
}

static void add_devices(const struct gp_recording *r)
{
    for (uint32_t i = 0; i < r->device_count; i++) {
        const struct gp_rec_device *device = &r->devices[i];
        add(device->index), add((uint64_t)device->ordinal), add((uint64_t)device->total_bytes), add(device->has_last);
        add_text(device->uuid), add_text(device->name);
        for (int stat = 0; device->has_last && stat < GP_STATS; stat++)
            for (int pool = 0; pool < GP_POOLS; pool++)
                add((uint64_t)device->last.stats[stat][pool].current),
                    add((uint64_t)device->last.stats[stat][pool].peak);
    }
    for (size_t i = 0; i < r->sample_count; i++) {
        const struct gp_rec_sample *sample = &r->samples[i];
        add(sample->time_ns), add(sample->device), add((uint64_t)sample->allocated_bytes);
        add((uint64_t)sample->reserved_bytes), add((uint64_t)sample->active_bytes);
        add((uint64_t)sample->inactive_split_bytes), add((uint64_t)sample->used_bytes);
        add((uint64_t)sample->process_bytes);
    }
}

static void add_sites(const struct gp_recording *r)
{
    for (uint32_t i = copy_path ? 1 : 0; i < r->site_count; i++) { /* files have no numbers of the unknown site */
        const struct gp_rec_site *site = &r->sites[i];
        add(site->first_frame), add(site->frame_count), add(site->device), add(site->kind), add(site->truncated);
        add((uint64_t)site->live_bytes), add((uint64_t)site->live_count), add((uint64_t)site->peak_bytes);
        add((uint64_t)site->at_peak_bytes), add((uint64_t)site->allocated_bytes), add((uint64_t)site->calls);
    }
    for (uint32_t i = 0; i < r->frame_count; i++) {
        add(r->frames[i].pc), add(r->frames[i].line), add(r->frames[i].module);
        add_text(r->strings + r->frames[i].function), add_text(r->strings + r->frames[i].file);
    }
}

static void add_names(const struct gp_recording *r)
{
    for (uint32_t i = 0; i < r->module_count; i++) {
        add(r->modules[i].start), add(r->modules[i].end), add(r->modules[i].offset);
        add_text(r->strings + r->modules[i].path), add_text(r->strings + r->modules[i].build_id);
    }
    for (uint32_t i = 0; i < r->thread_count; i++)
        add(r->threads[i].tid), add_text(r->strings + r->threads[i].name);
    for (uint32_t i = 0; i < r->stream_count; i++)
        add(r->streams[i]);
}

static void add_failure(const struct gp_wire_oom *oom)
{
    add(oom->time_ns), add_text(oom->api), add(oom->error), add(oom->flags), add((uint64_t)oom->device);
    add(oom->asked_bytes), add(oom->stream), add((uint64_t)oom->free_bytes), add((uint64_t)oom->total_bytes);
    add((uint64_t)oom->reserved_bytes), add((uint64_t)oom->allocated_bytes), add((uint64_t)oom->limit_bytes);
    add_text(oom->policy), add_text(oom->conf), add(oom->site), add(oom->holder_count), add((uint64_t)oom->rest_bytes);
    for (int kind = 0; kind < GP_KINDS; kind++)
        add((uint64_t)oom->kinds[kind]);
    for (uint32_t i = 0; i < oom->holder_count; i++)
        add(oom->holders[i].kind), add(oom->holders[i].site), add(oom->holders[i].block_bytes),
            add(oom->holders[i].count);
}

/* In parts, so that a difference has a name. */
enum { PART_PROCESS, PART_COUNTS, PART_EVENTS, PART_DEVICES, PART_SITES, PART_NAMES, PART_FAILURE, PARTS };
static const char *const parts[] = {"process", "counts", "events", "devices", "sites", "names", "failure"};

static void add_part(const struct gp_recording *r, int part)
{
    switch (part) {
    case PART_PROCESS:
        add(r->pid), add_text(r->comm), add_text(r->command_line), add_text(r->host), add(r->source);
        add_text(r->allocator), add(r->driver_version), add(r->begin_ns), add(r->end_ns), add(r->begin_unix_ns);
        add(r->has_rank);
        if (r->has_rank)
            add((uint64_t)r->rank), add((uint64_t)r->local_rank), add((uint64_t)r->world_size);
        add(r->attached);
        break;
    case PART_COUNTS:
        add(r->complete), add(r->from_start), add(r->tried), add(r->delivered), add(r->dropped);
        add(r->unwritten), add((uint64_t)r->write_error), add(r->write_error_ns), add(r->ended_early),
            add(r->stopped_ns);
        for (int i = 0; i < GP_LOSTS; i++)
            add(r->lost[i]);
        break;
    case PART_EVENTS:
        for (size_t i = 0; i < r->event_count; i++)
            add_event(r, &r->events[i]), add(r->peer[i]);
        for (size_t i = 0; i < r->baseline_count; i++)
            add_event(r, &r->baseline[i]);
        break;
    case PART_DEVICES:
        add_devices(r);
        break;
    case PART_SITES:
        add_sites(r);
        break;
    case PART_NAMES:
        add_names(r);
        break;
    default:
        if (r->has_oom)
            add_failure(&r->oom);
    }
}

static void add_recording(const struct gp_recording *r)
{
    add(r->damaged_blocks), add(r->from_torch), add(r->before_blocks), add(r->before_bytes), add(r->torch_unknown);
    for (int part = 0; part < PARTS; part++)
        add_part(r, part);
}

/* A recording that is written and read again has the same contents. */
static void copied(const struct gp_recording *r)
{
    struct gp_recording *copy;
    char why[200] = "";
    cr_assert_eq(recsave(r, copy_path), 0);
    cr_assert_eq(gp_recording_open(&copy, copy_path, why, sizeof(why), NULL, NULL), 0, "%s", why);
    for (int part = 0; part < PARTS; part++) {
        sum = 1, add_part(r, part);
        uint64_t before = sum;
        sum = 1, add_part(copy, part);
        cr_expect_eq(sum, before, "%s of %s", parts[part], copied_name);
    }
    gp_recording_free(copy);
}

static void seen(const struct gp_recording *r, const char *why)
{
    add_text(why);
    if (r && copy_path)
        copied(r);
    else if (r)
        add_recording(r);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static uint8_t changed(uint8_t byte, int way)
{
    const uint8_t ways[] = {byte ^ 1, byte ^ 0x80, 0, 0xff, (uint8_t)(byte + 1)};
    return ways[way];
}

static uint64_t sum_of(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    sum = 14695981039346656037ull;
    for (int way = -1; way < 5; way++)
        for (size_t at = 0; at < size; at++) {
            memcpy(copy, data, size);
            if (way >= 0)
                copy[at] = changed(data[at], way);
            LLVMFuzzerTestOneInput(copy, way < 0 ? at : size);
        }
    LLVMFuzzerTestOneInput(data, size);
    free(copy);
    return sum;
}

static size_t whole(const char *path, void *into, size_t room)
{
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s is missing", path);
    size_t size = fread(into, 1, room - 1, file);
    ((char *)into)[size] = '\0';
    fclose(file);
    return size;
}

static const char *const names[] = {"blocks-all", "blocks-devices", "blocks-events", "blocks-oom",
                                    "cut",        "pickle-calls",   "pickle-self",   "snapshot-whole",
                                    "snapshot2",  "snapshot4",      "snapshot5",     "whole"};
#define NAMES (sizeof(names) / sizeof(names[0]))

/* Versions of libzstd differ in which damaged frames they accept, so the sum of an input that has
 * frames is that of one version. */
static void write_line(char line[96], unsigned i, uint64_t found)
{
    bool has_frames = strcmp(names[i], "cut") == 0 || strcmp(names[i], "whole") == 0;
    int used = snprintf(line, 96, "%s %016llx", names[i], (unsigned long long)found);
    if (has_frames)
        used += snprintf(line + used, 96 - (size_t)used, " libzstd %u", ZSTD_versionNumber());
    snprintf(line + used, 96 - (size_t)used, "\n");
}

/* The golden file has the line, or none for this version of libzstd. */
static void expect_line(const char *old, const char *line)
{
    const char *version = strstr(line, " libzstd ");
    if (version && !strstr(old, version))
        cr_log_warn("tests/golden/recording.txt has no sum for this libzstd: %s", line);
    else
        cr_expect(strstr(old, line), "not in tests/golden/recording.txt: %s", line);
}

static size_t corpus(unsigned i, void *into, size_t room)
{
    char name[64];
    snprintf(name, sizeof(name), "tests/fuzz/corpus/recording/%s", names[i]);
    return whole(path_source(name), into, room);
}

Test(golden, copies_of_recordings)
{
    static uint8_t data[4096];
    char path[300], *folder = build_folder();
    cr_assert(folder);
    snprintf(path, sizeof(path), "%s/x", folder);
    copy_path = path;
    for (unsigned i = 0; i < NAMES; i++) {
        copied_name = names[i];
        LLVMFuzzerTestOneInput(data, corpus(i, data, sizeof(data)));
    }
    cr_expect_gt(accepted, 5);
    build_remove(folder);
}

Test(golden, damaged_recordings, .timeout = 120)
{
    static char golden[4096], old[4096];
    static uint8_t data[4096];
#ifdef __SANITIZE_ADDRESS__ /* 50 times as slow: it marks every byte of the reader's 8 MiB at each of 67 000 files */
    cr_skip_test("fuzz/fuzz_recording reads every third of these files under the sanitizer");
#endif
    for (unsigned i = 0; i < NAMES; i++) {
        char line[96];
        uint64_t found = sum_of(data, corpus(i, data, sizeof(data)));
        write_line(line, i, found);
        strcat(golden, line);
    }
    const char *path = path_source("tests/golden/recording.txt");
    if (getenv("GP_GOLDEN_UPDATE")) {
        FILE *file = fopen(path, "w");
        cr_assert(file, "%s", path);
        fputs(golden, file);
        fclose(file);
    }
    whole(path, old, sizeof(old));
    for (char *at = golden, *end; (end = strchr(at, '\n')); at = end + 1) {
        char line[96];
        snprintf(line, sizeof(line), "%.*s\n", (int)(end - at), at);
        expect_line(old, line);
    }
    cr_expect(accepted > 1000 && refused > 1000, "%lu and %lu", (unsigned long)accepted, (unsigned long)refused);
}
