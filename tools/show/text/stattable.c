/* SPDX-License-Identifier: MIT
 * stattable.c: `gpuprof stat` as text; see write.h.
 */
#include <inttypes.h>
#include <show/text/stats.h>
#include <show/text/write.h>
#include <stdarg.h>
#include <string.h>

static void row_print(FILE *out, const char *name, const struct gp_wire_value *v)
{
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], c[GP_SIZE_TEXT], d[GP_SIZE_TEXT];
    fprintf(out, "    %-12s %12s %12s %14s %14s\n", name, gp_size_text(a, v->current), gp_size_text(b, v->peak),
            gp_size_text(c, v->allocated), gp_size_text(d, v->freed));
}

static void kinds_print(FILE *out, const struct gp_wire_device *device)
{
    for (unsigned kind = GP_KIND_LINEAR; kind < GP_KINDS; kind++) {
        const struct gp_wire_kind_value *v = &device->kinds[kind];
        char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], c[GP_SIZE_TEXT], d[GP_SIZE_TEXT];
        if (v->calls <= 0 && v->current_bytes <= 0 && v->peak_bytes <= 0 && v->live <= 0)
            continue;
        fprintf(out, "      %-10s %12s %12s %14s %14s   live %" PRId64, gp_kind_name(kind),
                gp_size_text(a, v->current_bytes), gp_size_text(b, v->peak_bytes), gp_size_text(c, v->allocated_bytes),
                gp_size_text(d, v->freed_bytes), v->live);
        if (v->calls >= 0)
            fprintf(out, ", calls %" PRId64, v->calls);
        fputc('\n', out);
    }
}

/* The totals of a process that only the agent's maps know. */
static void totals_print(FILE *out, const struct gp_wire_device *d)
{
    const struct {
        const char *name;
        const struct gp_wire_value *value;
    } rows[] = {{"allocated", &d->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL]},
                {"reserved", &d->stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL]},
                {"asleep", &d->asleep_bytes}};
    const struct gp_wire_value *calls = &d->stats[GP_STAT_ALLOCATION][GP_POOL_ALL];
    fprintf(out, "    %-12s %12s %12s\n", "", "CURRENT", "PEAK");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) - !d->asleep_bytes.peak; i++) {
        const struct gp_wire_value *v = rows[i].value;
        char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
        fprintf(out, "    %-12s %12s %12s\n", rows[i].name, gp_size_text(a, v->current), gp_size_text(b, v->peak));
    }
    fprintf(out, "    allocations %" PRId64 ", frees %" PRId64 "\n", calls->allocated, calls->freed);
}

static void owners_print(FILE *out, const struct gp_process *process, const struct gp_device_view *device)
{
    struct gp_owner_view views[GP_OWNER_VIEWS];
    int count = gp_peer_owners_of(process, device, views);
    if (count)
        fprintf(out, "    %-20s %12s %12s %12s %12s\n", "OWNER", "ALLOCATED", "PEAK", "RESERVED", "PEAK");
    for (int i = 0; i < count; i++) {
        const struct gp_wire_owner_value *v = &views[i].value;
        char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], c[GP_SIZE_TEXT], d[GP_SIZE_TEXT];
        fprintf(out, "      %-18.18s %12s %12s %12s %12s   live %" PRId64 "\n", views[i].owner,
                gp_size_text(a, v->allocated_bytes), gp_size_text(b, v->allocated_peak_bytes),
                gp_size_text(c, v->reserved_bytes), gp_size_text(d, v->reserved_peak_bytes), v->live);
    }
}

/* Says a line, and whether something in it is wrong. */
static __attribute__((format(printf, 3, 4))) void pool_say(const struct gp_pool_lines *lines, bool is_wrong,
                                                           const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    lines->line(lines->arg, text, is_wrong);
}

static void pool_framework(const struct gp_pool_lines *lines, const struct gp_device_view *device)
{
    const struct gp_wire_framework *f = &device->framework, *heaps = &device->heaps;
    char size[GP_SIZE_TEXT];
    if (f->name[0] && gp_framework_agrees(f))
        pool_say(lines, false, "%s: %" PRId64 " blocks in %" PRId64 " segments, its own totals agree", f->name,
                 f->blocks, f->segments);
    else if (f->name[0])
        pool_say(lines, true,
                 "%s: %" PRId64 " blocks in %" PRId64 " segments, its own totals differ: allocated in %" PRIu64
                 ", reserved in %" PRIu64 " of %" PRIu64 " events",
                 f->name, f->blocks, f->segments, f->allocated_differs, f->reserved_differs, f->events);
    if (f->name[0] && f->private_bytes > 0)
        pool_say(lines, false, "%s: of these at least %s in pools of CUDA graphs and MemPools", f->name,
                 gp_size_text(size, f->private_bytes));
    if (device->wire.beside_bytes)
        pool_say(lines, false,
                 "%s: %s of its blocks lie in memory that counts by itself or in no total, such as managed", f->name,
                 gp_size_text(size, device->wire.beside_bytes));
    /* They name no totals of their own that ours could be compared with. */
    if (heaps->name[0])
        pool_say(lines, false, "%s: %" PRId64 " blocks in %" PRId64 " segments that sub-allocators describe",
                 heaps->name, heaps->blocks, heaps->segments);
}

/* "-" of one that is polled: it does not say. */
void gp_pool_lines(const struct gp_process *process, const struct gp_device_view *device,
                   const struct gp_pool_lines *lines)
{
    const struct gp_wire_doors *doors = &process->doors;
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], c[GP_SIZE_TEXT], d[GP_SIZE_TEXT];
    pool_framework(lines, device);
    if (device->wire.flags & GP_DEVICE_LATE)
        pool_say(lines, true, "no answer about pools and graphs in time: what they hold now is not known");
    for (uint32_t i = 0; i < doors->row_count; i++) {
        const struct gp_wire_door_row *row = &doors->rows[i];
        const char *name = doors->doors[row->door].name;
        gp_size_text(a, row->allocated_bytes);
        gp_size_text(b, row->reserved_bytes);
        if (row->device == device->index && row->time_ns)
            pool_say(lines, false,
                     "%s says itself: %s in use, peak %s, of its pool of %s, limit %s (polled, %" PRIu64 " ms old)",
                     name, a, gp_size_text(c, row->allocated_peak_bytes), b, gp_size_text(d, row->limit_bytes),
                     gp_door_age(process, row) / 1000000);
        else if (row->device == device->index)
            pool_say(lines, false, "%s: %" PRId64 " pieces, %s, in %" PRId64 " parts of its pools, %s", name,
                     row->pieces, a, row->pools, b);
    }
}

static void pool_print(void *out, const char *text, bool is_wrong)
{
    (void)is_wrong;
    fprintf(out, "    %s\n", text);
}

/* What libraries that hold memory here do with it. */
static void libraries_print(FILE *out, const struct gp_device_view *device)
{
    json_t *row, *rows = device->library_bytes ? gp_libraries_json(device->library_bytes) : NULL;
    char text[GP_LIBRARY_TEXT];
    size_t i;
    json_array_foreach(rows, i, row) fprintf(out, "    %s\n", gp_library_line(text, row));
    json_decref(rows);
}

/* Libraries whose pools are not watched, and why. */
static void doors_off_print(FILE *out, const struct gp_process *process)
{
    for (uint32_t i = 0; i < process->doors.door_count; i++) {
        const struct gp_wire_door *door = &process->doors.doors[i];
        if (door->state == GP_WIRE_DOOR_OFF)
            fprintf(out, "  %s's pools count as allocated as a whole: %s\n", door->name, door->text);
    }
}

static void before_print(FILE *out, const struct gp_process *process, const struct gp_device_view *device)
{
    const struct gp_wire_before_device *before = &device->before;
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
    const char *source = gp_before_source(before);
    if (!process->attached || device->index == (int)GP_WIRE_HOST)
        return;
    if (!source || before->bytes < 0) {
        fprintf(out, "    %-12s %12s   allocated before the attach: not known\n", "before attach", "?");
        return;
    }
    fprintf(out, "    %-12s %12s", "before attach", gp_size_text(a, before->bytes));
    if (before->at_attach_bytes >= 0 && before->at_attach_bytes != before->bytes)
        fprintf(out, " of %s", gp_size_text(b, before->at_attach_bytes));
    fprintf(out, "   allocated before the attach (source: %s)", source);
    if (before->framework_reserved_bytes >= 0)
        fprintf(out, ", %s: %s of %s", device->framework.name, gp_size_text(a, before->framework_allocated_bytes),
                gp_size_text(b, before->framework_reserved_bytes));
    fputc('\n', out);
    if (device->blocks.count > 0)
        fprintf(out, "    %-12s %12s   in %" PRId64 " blocks from before, each known: its own totals %s\n", "",
                gp_size_text(a, device->blocks.bytes), device->blocks.count,
                device->blocks.differs ? "differ" : "agree");
}

static void device_print(FILE *out, const struct gp_process *process, const struct gp_device_view *device)
{
    const struct gp_wire_device *d = &device->wire;
    char text[GP_SIZE_TEXT];
    if (device->index == (int)GP_WIRE_HOST) {
        fprintf(out, "  host (pinned and registered memory)\n");
    } else {
        fprintf(out, "  device %d  %s", gp_device_number(device), device->name[0] ? device->name : "(name unknown)");
        if (device->total_bytes >= 0)
            fprintf(out, "  %s", gp_size_text(text, device->total_bytes));
        fprintf(out, "  %s\n", device->uuid);
    }
    if (device->totals_only) {
        totals_print(out, d);
        return;
    }
    fprintf(out, "    %-12s %12s %12s %14s %14s\n", "", "CURRENT", "PEAK", "ALLOCATED", "FREED");
    row_print(out, "allocated", &d->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL]);
    row_print(out, "reserved", &d->stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL]);
    if (d->asleep_bytes.peak)
        row_print(out, "asleep", &d->asleep_bytes);
    if (d->flags & GP_DEVICE_UNSOUND)
        fprintf(out, "    allocated is more than reserved: gpuprof has missed memory of this device\n");
    kinds_print(out, d);
    owners_print(out, process, device);
    gp_pool_lines(process, device, &(struct gp_pool_lines){pool_print, out});
    libraries_print(out, device);
    before_print(out, process, device);
    if (device->untracked_bytes >= 0)
        fprintf(out, "    %-12s %12s   held from the driver in addition (context, modules, libraries)\n", "untracked",
                gp_size_text(text, device->untracked_bytes));
    if (d->num_ooms || d->num_alloc_retries)
        fprintf(out, "    out of memory %" PRId64 " times, retries %" PRId64 "\n", d->num_ooms, d->num_alloc_retries);
    if (device->estimated)
        fprintf(out, "    note: sizes of arrays are estimates\n");
}

static void lost_print(FILE *out, const struct gp_process *process)
{
    bool any = false;
    for (unsigned i = 0; i < GP_LOSTS; i++) {
        if (!process->lost[i] || !gp_lost_name(i))
            continue;
        fprintf(out, "%s %s %" PRIu64, any ? "," : "  lost:", gp_lost_name(i), process->lost[i]);
        any = true;
    }
    if (any)
        fputc('\n', out);
}

static void recording_print(FILE *out, const struct gp_process *p)
{
    static const char *const states[] = {
        [GP_RECORD_ON] = "", [GP_RECORD_DONE] = ", ended", [GP_RECORD_FAILED] = ", failed"};
    if (p->recording.state == GP_RECORD_OFF)
        return;
    fprintf(out, "  recording: %" PRIu64 " events, %" PRIu64 " lost%s%s%s\n", p->recording.events, p->recording.lost,
            states[p->recording.state], p->recording.error ? ": " : "",
            p->recording.error ? strerror(p->recording.error) : "");
}

/* A copy that was tried in vain, or did not work alone. */
static void copies_print(FILE *out, const struct gp_process *p)
{
    const struct gp_cupti_view *cupti = &p->cupti;
    for (uint32_t i = 0; i < cupti->copy_count && (cupti->tried > 1 || p->source != GP_SOURCE_CUPTI); i++) {
        char text[GP_COPY_TEXT];
        fprintf(out, "  tried: %s\n", gp_copy_text(text, &cupti->copies[i]));
    }
    if (cupti->tried > cupti->copy_count)
        fprintf(out, "  tried: %u other copies of CUPTI\n", cupti->tried - cupti->copy_count);
    if (p->source == GP_SOURCE_NONE && !p->disabled && !p->from_agent)
        fprintf(out, "  note: %s\n", GP_SOURCE_ADVICE);
    if (p->gone)
        fprintf(out,
                "  note: the source is gone: the program ended CUPTI (cuptiFinalize), and later events are missing\n");
    if (cupti->strange)
        fprintf(out,
                "  note: CUPTI has %u newer entry points that look like memory and are not counted; see 'gpuprof "
                "doctor'\n",
                cupti->strange);
}

void gp_notes_print(FILE *out, const struct gp_process *p)
{
    static const char *const states[] = {
        [GP_PROCESS_STALE] = "the process did not answer: these are the last numbers that it published",
        [GP_PROCESS_UNKNOWN] = "the process has not published any numbers yet",
        [GP_PROCESS_DAMAGED] = "the session is damaged, so its numbers are not shown",
        [GP_PROCESS_FOREIGN] = "the process is not profiled",
    };
    if (p->from_agent && p->state == GP_PROCESS_STALE)
        fprintf(out, "  state: the agent is not running: these are its last numbers\n");
    else if (p->state != GP_PROCESS_LIVE)
        fprintf(out, "  state: %s%s%s\n", states[p->state], p->problem[0] ? ": " : "", p->problem);
    if (p->closed)
        fprintf(out, "  state: the process has ended: the numbers are final\n");
    if (p->disabled)
        fprintf(out, "  trouble: the library has turned profiling off%s%s\n", p->trouble[0] ? ": " : "", p->trouble);
    else if (p->trouble[0])
        fprintf(out, "  trouble: %s\n", p->trouble);
    if (p->yielded)
        fprintf(out, "  note: the CUPTI subscriber was released on request\n");
    if (p->state != GP_PROCESS_DAMAGED && p->state != GP_PROCESS_FOREIGN)
        copies_print(out, p);
    if (p->options[0])
        fprintf(out, "  settings: %s\n", p->options);
    if (p->stacks[0])
        fprintf(out, "  stacks: %s\n", p->stacks);
    lost_print(out, p);
    recording_print(out, p);
    for (int i = 0; i < p->failure_count; i++)
        fprintf(out, "  failed: %s with error %u, %" PRIu64 " times\n", p->failures[i].api, p->failures[i].error,
                p->failures[i].count);
}

static void scopes_print(FILE *out, const struct gp_process *process, int only)
{
    for (int i = 0; i < process->scope_count; i++) {
        for (int d = 0; d < process->device_count; d++) {
            const struct gp_device_view *device = &process->devices[d];
            const struct gp_wire_scope_value *v = &device->wire.scopes[process->scopes[i].slot];
            char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
            if (device->index == (int)GP_WIRE_HOST || (only >= 0 && gp_device_number(device) != only))
                continue;
            fprintf(out, "  scope %s, device %d: peak allocated %s, peak reserved %s\n", process->scopes[i].name,
                    gp_device_number(device), gp_size_text(a, v->allocated_peak_bytes),
                    gp_size_text(b, v->reserved_peak_bytes));
        }
    }
}

static void limits_print(FILE *out, const struct gp_process *p)
{
    for (int i = 0; i < p->cgroup_limit_count; i++) {
        const struct gp_cgroup_limit *limit = &p->cgroup_limits[i];
        char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
        if (limit->limit_bytes < 0)
            continue;
        fprintf(out, "  cgroup limit %s of %s, %s used by the cgroup (%s)\n", gp_size_text(a, limit->limit_bytes),
                limit->region, limit->used_bytes < 0 ? "?" : gp_size_text(b, limit->used_bytes), limit->controller);
    }
}

static void process_print(FILE *out, const struct gp_process *p, int only)
{
    const char *source = gp_source_name(p->source);
    fprintf(out, "PID %d  %s  user %s", (int)p->pid, p->comm, p->user);
    if (p->ray_job[0])
        fprintf(out, "  Ray job %s", p->ray_job);
    if (p->container[0])
        fprintf(out, "  container %s", p->container);
    if (p->from_agent)
        fprintf(out, "  from the agent's maps: only totals and peaks");
    else if (p->state != GP_PROCESS_DAMAGED)
        fprintf(out, "  source %s%s%s%s", source ? source : "?", p->source_detail[0] ? " (" : "", p->source_detail,
                p->source_detail[0] ? ")" : "");
    if (p->allocator[0] && strcmp(p->allocator, "off") != 0)
        fprintf(out, "  allocator %s", p->allocator);
    fputc('\n', out);
    gp_notes_print(out, p);
    doors_off_print(out, p);
    for (int i = 0; i < p->device_count; i++) {
        if (only < 0 || gp_device_number(&p->devices[i]) == only)
            device_print(out, p, &p->devices[i]);
    }
    limits_print(out, p);
    scopes_print(out, p, only);
    if (p->oom.count && (only < 0 || only == p->oom.device)) {
        fputc('\n', out);
        gp_oom_print(out, p);
    }
}

void gp_stat_table(FILE *out, const struct gp_system *system, int device)
{
    bool first = true;
    for (int i = 0; i < system->process_count; i++) {
        if (system->processes[i].state == GP_PROCESS_FOREIGN)
            continue;
        if (!first)
            fputc('\n', out);
        first = false;
        process_print(out, &system->processes[i], device);
    }
}
