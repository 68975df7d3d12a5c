/* SPDX-License-Identifier: MIT
 *
 * sites.c: see sites.h. Offsets and counts are fetched once and checked before they are used; rows,
 * frames and strings below a count never change, except the live numbers of a row.
 */
#include <read/collect/sites.h>

#include <base/clock.h>
#include <base/compiler.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <record/modules.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_SITES_ROWS 512u /* fetched at a time: 64 KiB */

/* Sixteen times the library's limits: a hostile session must not make a reader allocate
 * gigabytes. */
#define GP_SITES_MOST_ROWS    (1u << 20)
#define GP_SITES_MOST_FRAMES  (1u << 24)
#define GP_SITES_MOST_STRINGS (1u << 26)

struct gp_sites_reader {
    struct gp_peer peer;
    bool own; /* the descriptor is closed with the reader */
    uint64_t offset;
    struct gp_wire_sites head; /* as last fetched, after the checks */
    char proc[GP_PROC_FOLDER];
    struct gp_modules modules; /* as last read */
    uint32_t *module_index;    /* index in sites->modules of each of their rows */
    uint32_t wire_strings;     /* bytes fetched */
};

static int sites_wrong(char problem[GP_PROBLEM_BYTES], const char *what, uint32_t number)
{
    snprintf(problem, GP_PROBLEM_BYTES, "call sites: %s (%u)", what, number);
    return -EPROTO;
}

/* Makes room for `count` items and keeps the old ones. */
static int sites_room(void *array, size_t count, size_t bytes)
{
    void *old, *moved;
    memcpy(&old, array, sizeof(old));
    moved = realloc(old, (count ? count : 1) * bytes);
    if (!moved)
        return -ENOMEM;
    memcpy(array, &moved, sizeof(moved));
    return 0;
}

/* ---- head -------------------------------------------------------------------------------------------------------- */

static int sites_place(struct gp_sites_reader *reader, uint64_t *room, char problem[GP_PROBLEM_BYTES])
{
    struct gp_wire_header header;
    int rc = gp_peer_fetch(&reader->peer, &header, sizeof(header), 0);
    if (rc)
        return rc;
    if (header.sites_offset == 0) /* stacks were never on; the bytes come before the offset */
        return -ENOENT;
    if (header.sites_offset < sizeof(header) || header.sites_offset % 8 != 0 ||
        header.sites_bytes < sizeof(struct gp_wire_sites) || header.sites_offset > reader->peer.total_bytes ||
        header.sites_bytes > reader->peer.total_bytes - header.sites_offset)
        return sites_wrong(problem, "the tables do not fit inside the session", 0);
    if (reader->offset && reader->offset != header.sites_offset)
        return sites_wrong(problem, "the tables moved", 0);
    reader->offset = header.sites_offset;
    *room = header.sites_bytes;
    return 0;
}

static bool sites_inside(uint64_t offset, uint64_t count, uint64_t bytes, uint64_t room)
{
    return offset >= sizeof(struct gp_wire_sites) && offset % 8 == 0 && offset <= room &&
           count <= (room - offset) / bytes;
}

static int sites_head(struct gp_sites_reader *reader, struct gp_wire_sites *head, uint64_t room,
                      char problem[GP_PROBLEM_BYTES])
{
    int rc = gp_peer_fetch(&reader->peer, head, sizeof(*head), reader->offset);
    if (rc)
        return rc;
    /* [site.A] acquire: the entries that the counts cover; pairs with [site.R]. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (head->modes == 0 && head->row_bytes == 0)
        return -ENOENT;
    if (head->row_bytes != sizeof(struct gp_wire_site) || head->frame_bytes != sizeof(struct gp_wire_frame))
        return sites_wrong(problem, "sizes are not those of this version", head->row_bytes);
    if (!sites_inside(head->rows_offset, head->row_limit, sizeof(struct gp_wire_site), room) ||
        !sites_inside(head->frames_offset, head->frame_limit, sizeof(struct gp_wire_frame), room) ||
        !sites_inside(head->strings_offset, head->string_limit, 1, room))
        return sites_wrong(problem, "a table lies outside its area", 0);
    if (head->row_limit > GP_SITES_MOST_ROWS || head->frame_limit > GP_SITES_MOST_FRAMES ||
        head->string_limit > GP_SITES_MOST_STRINGS)
        return sites_wrong(problem, "a table is larger than any library creates", head->row_limit);
    if (reader->head.row_bytes && head->string_limit != reader->head.string_limit)
        return sites_wrong(problem, "a table changed its size", head->string_limit);
    if (head->rows > head->row_limit || head->frames > head->frame_limit || head->strings > head->string_limit)
        return sites_wrong(problem, "more entries are in use than the limit", head->rows);
    return 0;
}

/* ---- tables that only grow --------------------------------------------------------------------------------------- */

/* The array has "", then room for all strings that the process can have, then the paths and build
 * IDs of modules. */
static int sites_strings(struct gp_sites *sites, const struct gp_wire_sites *head, char problem[GP_PROBLEM_BYTES])
{
    struct gp_sites_reader *reader = sites->reader;
    uint32_t have = reader->wire_strings;
    int rc = 0;
    if (head->strings < have)
        return sites_wrong(problem, "strings disappeared", head->strings);
    if (!sites->string_bytes) {
        sites->strings = calloc(head->string_limit + 2ul, 1);
        if (!sites->strings)
            return -ENOMEM;
        sites->string_bytes = head->string_limit + 2;
    }
    if (head->strings > have)
        rc = gp_peer_fetch(&reader->peer, sites->strings + 1 + have, head->strings - have,
                           reader->offset + head->strings_offset + have);
    if (rc)
        return rc;
    sites->strings[head->strings + 1ul] = '\0'; /* terminate, whatever the process wrote there */
    reader->wire_strings = head->strings;
    return 0;
}

static uint32_t sites_module(const struct gp_sites *sites, uint64_t pc)
{
    const struct gp_sites_reader *reader = sites->reader;
    const struct gp_module *found = pc ? gp_modules_find(&reader->modules, pc - 1) : NULL;
    return found ? reader->module_index[found - reader->modules.rows] : GP_REC_NONE;
}

static int sites_frame(const struct gp_sites *sites, const struct gp_wire_frame *wire, struct gp_rec_frame *out)
{
    *out = (struct gp_rec_frame){.module = GP_REC_NONE};
    if (wire->type == GP_FRAME_NATIVE) {
        out->pc = wire->pc;
        out->module = sites_module(sites, wire->pc);
        return 0;
    }
    uint32_t strings = sites->reader->wire_strings;
    if (wire->type != GP_FRAME_PYTHON || (strings && (wire->function >= strings || wire->file >= strings)) ||
        (!strings && (wire->function || wire->file)))
        return -EPROTO;
    out->function = strings ? wire->function + 1 : 0;
    out->file = strings ? wire->file + 1 : 0;
    out->line = wire->line;
    return 0;
}

static int sites_frames(struct gp_sites *sites, const struct gp_wire_sites *head, char problem[GP_PROBLEM_BYTES])
{
    struct gp_wire_frame wire[1024];
    if (head->frames < sites->frame_count)
        return sites_wrong(problem, "frames disappeared", head->frames);
    int rc = sites_room(&sites->frames, head->frames, sizeof(*sites->frames));
    for (uint32_t at = sites->frame_count; !rc && at < head->frames; at = sites->frame_count) {
        uint32_t part = head->frames - at < GP_COUNT(wire) ? head->frames - at : (uint32_t)GP_COUNT(wire);
        rc = gp_peer_fetch(&sites->reader->peer, wire, part * sizeof(*wire),
                           sites->reader->offset + head->frames_offset + (uint64_t)at * sizeof(*wire));
        for (uint32_t i = 0; !rc && i < part; i++) {
            rc = sites_frame(sites, &wire[i], &sites->frames[at + i]);
            if (rc)
                return sites_wrong(problem, "a frame is invalid", at + i);
            sites->frame_count++;
        }
    }
    return rc;
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static int sites_put(struct gp_sites *sites, const char *text, uint32_t *at)
{
    size_t bytes = strlen(text) + 1;
    *at = 0;
    if (bytes == 1)
        return 0;
    int rc = sites_room(&sites->strings, sites->string_bytes + bytes, 1);
    if (rc)
        return rc;
    memcpy(sites->strings + sites->string_bytes, text, bytes);
    *at = sites->string_bytes;
    sites->string_bytes += (uint32_t)bytes;
    return 0;
}

static bool sites_module_same(const struct gp_module *a, const struct gp_module *b)
{
    return a->start == b->start && a->end == b->end && a->offset == b->offset &&
           a->build_id_bytes == b->build_id_bytes && memcmp(a->build_id, b->build_id, a->build_id_bytes) == 0 &&
           strcmp(a->path, b->path) == 0;
}

static int sites_module_add(struct gp_sites *sites, const struct gp_module *module)
{
    char id[2 * sizeof(module->build_id) + 1] = "";
    int rc = sites_room(&sites->modules, sites->module_count + 1ul, sizeof(*sites->modules));
    if (rc)
        return rc;
    struct gp_rec_module *out = &sites->modules[sites->module_count];
    *out = (struct gp_rec_module){.start = module->start, .end = module->end, .offset = module->offset};
    for (unsigned i = 0; i < module->build_id_bytes && i < sizeof(module->build_id); i++)
        snprintf(id + 2 * i, 3, "%02x", module->build_id[i]);
    rc = sites_put(sites, module->path, &out->path);
    if (!rc)
        rc = sites_put(sites, id, &out->build_id);
    if (!rc)
        sites->module_count++;
    return rc;
}

/* A program that keeps loading and unloading code must not make a viewer grow without bound. */
#define GP_SITES_MOST_MODULES (4 * GP_MODULES_MOST)

/* Reads the current mappings. A known module keeps its index even after it is unmapped, because
 * older frames refer to it. */
static int sites_modules(struct gp_sites *sites)
{
    struct gp_sites_reader *reader = sites->reader;
    struct gp_modules now;
    int rc = gp_modules_read(&now, reader->proc, gp_proc_mapped_open);
    if (rc)
        return rc == -ENOENT ? -ESRCH : rc;
    uint32_t *index = calloc(now.count + 1ul, sizeof(*index));
    if (!index)
        rc = -ENOMEM;
    for (uint32_t i = 0; !rc && i < now.count; i++) {
        const struct gp_module *old = gp_modules_find(&reader->modules, now.rows[i].start);
        index[i] = sites->module_count;
        if (old && sites_module_same(old, &now.rows[i]))
            index[i] = reader->module_index[old - reader->modules.rows];
        else if (sites->module_count < GP_SITES_MOST_MODULES)
            rc = sites_module_add(sites, &now.rows[i]);
        else
            index[i] = GP_REC_NONE;
    }
    if (rc) {
        free(index);
        gp_modules_free(&now);
        return rc;
    }
    sites->modules_truncated = now.truncated || sites->module_count >= GP_SITES_MOST_MODULES;
    gp_modules_free(&reader->modules);
    free(reader->module_index);
    reader->modules = now;
    reader->module_index = index;
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int64_t sites_number(int64_t number)
{
    const int64_t most = 1ll << 60; /* no machine has this much memory; sums stay in range */
    /* Negative for an instant, when another thread frees before the allocating thread has
     * counted. */
    return number < 0 ? 0 : number > most ? most : number;
}

static int sites_row(struct gp_sites *sites, uint32_t index, const struct gp_wire_site *wire,
                     char problem[GP_PROBLEM_BYTES])
{
    struct gp_rec_site *out = &sites->sites[index];
    if (index && (wire->first_frame > sites->frame_count || wire->frame_count > GP_SITE_FRAMES ||
                  wire->frame_count > sites->frame_count - wire->first_frame || wire->kind >= GP_KINDS ||
                  wire->device >= GP_WIRE_DEVICES || wire->truncated > 1))
        return sites_wrong(problem, "a row is invalid", index);
    if (index == 0) { /* no numbers; a name if memory was allocated while stacks were off */
        bool named = wire->frame_count == 1 && wire->first_frame < sites->frame_count;
        *out = (struct gp_rec_site){.first_frame = named ? (uint32_t)wire->first_frame : 0, .frame_count = named};
        return 0;
    }
    bool current = wire->peak_seq == sites->devices[wire->device].peak_seq;
    *out = (struct gp_rec_site){
        .first_frame = (uint32_t)wire->first_frame,
        .frame_count = wire->frame_count,
        .device = wire->device,
        .kind = wire->kind,
        .truncated = wire->truncated,
        .live_bytes = sites_number(wire->live_bytes),
        .live_count = sites_number(wire->live_count),
        .peak_bytes = sites_number(wire->peak_bytes),
        .at_peak_bytes = sites_number(current ? wire->at_peak_bytes : wire->live_bytes),
        .allocated_bytes = sites_number(wire->allocated_bytes),
        .calls = sites_number(wire->calls),
    };
    return 0;
}

/* Reads a row until two copies are equal: then it had these values at one instant. */
static int sites_steady(struct gp_sites *sites, struct gp_wire_site *row, const struct gp_wire_site *again, uint64_t at)
{
    struct gp_wire_site other = *again;
    for (int tries = 0; tries < 8; tries++) {
        if (memcmp(row, &other, sizeof(other)) == 0)
            return 0;
        *row = other;
        int rc = gp_peer_fetch(&sites->reader->peer, &other, sizeof(other), at);
        if (rc)
            return rc;
    }
    sites->unsteady++;
    return 0;
}

static int sites_rows_once(struct gp_sites *sites, const struct gp_wire_sites *head, char problem[GP_PROBLEM_BYTES])
{
    const size_t bytes = sizeof(struct gp_wire_site);
    struct gp_wire_site *rows = malloc(2 * GP_SITES_ROWS * bytes), *again = rows + GP_SITES_ROWS;
    int rc = rows ? 0 : -ENOMEM;
    sites->unsteady = 0;
    for (uint32_t at = 0, part; !rc && at < head->rows; at += part) {
        uint64_t offset = sites->reader->offset + head->rows_offset + at * bytes;
        part = head->rows - at < GP_SITES_ROWS ? head->rows - at : GP_SITES_ROWS;
        rc = gp_peer_fetch(&sites->reader->peer, rows, part * bytes, offset);
        if (!rc)
            rc = gp_peer_fetch(&sites->reader->peer, again, part * bytes, offset);
        for (uint32_t i = 0; !rc && i < part; i++) {
            rc = sites_steady(sites, &rows[i], &again[i], offset + i * bytes);
            if (!rc)
                rc = sites_row(sites, at + i, &rows[i], problem);
        }
    }
    free(rows);
    return rc;
}

static bool sites_same_peaks(const struct gp_wire_sites *a, const struct gp_wire_sites *b)
{
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++)
        if (a->devices[i].peak_seq != b->devices[i].peak_seq)
            return false;
    return true;
}

static void sites_take_head(struct gp_sites *sites, const struct gp_wire_sites *head)
{
    sites->modes = head->modes;
    sites->captures = head->captures;
    sites->lost_rows = head->lost_rows;
    sites->lost_frames = head->lost_frames;
    sites->lost_strings = head->lost_strings;
    memcpy(sites->devices, head->devices, sizeof(sites->devices));
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        sites->devices[i].live_bytes = sites_number(head->devices[i].live_bytes);
        sites->devices[i].peak_bytes = sites_number(head->devices[i].peak_bytes);
    }
}

/* A row's bytes at the peak follow from comparing it with its device. If peaks keep rising, the
 * third attempt is as good as any later one. */
static int sites_rows(struct gp_sites *sites, struct gp_wire_sites *head, uint64_t room, char problem[GP_PROBLEM_BYTES])
{
    if (head->rows < sites->site_count)
        return sites_wrong(problem, "rows disappeared", head->rows);
    int rc = sites_room(&sites->sites, head->rows + 1ul, sizeof(*sites->sites));
    for (int tries = 0; !rc && tries < 3; tries++) {
        struct gp_wire_sites after;
        sites_take_head(sites, head);
        rc = sites_rows_once(sites, head, problem);
        if (!rc)
            rc = sites_head(sites->reader, &after, room, problem);
        if (rc || sites_same_peaks(head, &after))
            break;
        memcpy(head->devices, after.devices, sizeof(after.devices)); /* the counts stay those whose entries were read */
    }
    if (!rc)
        sites->site_count = head->rows;
    if (!rc && !sites->site_count) { /* no rows yet: the unknown site always exists */
        sites->sites[0] = (struct gp_rec_site){0};
        sites->site_count = 1;
    }
    return rc;
}

/* ---- entry points ------------------------------------------------------------------------------------------------ */

int gp_sites_update(struct gp_sites *sites, char problem[GP_PROBLEM_BYTES])
{
    struct gp_sites_reader *reader = sites->reader;
    struct gp_wire_sites head;
    uint64_t room;
    problem[0] = '\0';
    int rc = sites_place(reader, &room, problem);
    if (!rc)
        rc = sites_head(reader, &head, room, problem);
    if (!rc)
        rc = sites_strings(sites, &head, problem);
    /* The modules of a process that has ended stay those last read. So read them once at the
     * start. */
    if (!rc && (head.frames > sites->frame_count || !sites->time_ns)) {
        rc = sites_modules(sites);
        sites->ended = rc == -ESRCH;
        rc = sites->ended ? 0 : rc;
    }
    if (!rc)
        rc = sites_frames(sites, &head, problem);
    if (!rc)
        rc = sites_rows(sites, &head, room, problem);
    if (!rc) {
        reader->head = head;
        sites->time_ns = gp_clock_ns();
    }
    return rc;
}

int gp_sites_open_peer(struct gp_sites **out, const struct gp_peer *peer, pid_t pid, const char *proc,
                       char problem[GP_PROBLEM_BYTES])
{
    char folder[GP_PROC_FOLDER];
    struct gp_sites *sites = calloc(1, sizeof(*sites));
    *out = NULL;
    problem[0] = '\0';
    if (sites)
        sites->reader = calloc(1, sizeof(*sites->reader));
    if (!sites || !sites->reader) {
        free(sites);
        return -ENOMEM;
    }
    sites->pid = pid;
    sites->reader->peer = *peer;
    snprintf(sites->reader->proc, sizeof(sites->reader->proc), "%s", proc);
    snprintf(sites->root, sizeof(sites->root), "%s/root", gp_proc_folder(pid, folder));
    int rc = gp_sites_update(sites, problem);
    if (rc)
        gp_sites_close(sites);
    else
        *out = sites;
    return rc;
}

int gp_sites_open(struct gp_sites **out, pid_t pid, char problem[GP_PROBLEM_BYTES])
{
    struct gp_peer peer;
    char path[GP_PROC_FOLDER];
    *out = NULL;
    int rc = gp_peer_open_pid(&peer, pid, problem);
    if (rc)
        return rc;
    rc = gp_sites_open_peer(out, &peer, pid, gp_proc_folder(pid, path), problem);
    if (rc)
        gp_peer_close(&peer);
    else
        (*out)->reader->own = true;
    return rc;
}

int gp_sites_modes(pid_t pid, uint32_t *modes, char problem[GP_PROBLEM_BYTES])
{
    struct gp_sites_reader reader = {0};
    struct gp_wire_sites head;
    uint64_t room;
    *modes = 0;
    problem[0] = '\0';
    int rc = gp_peer_open_pid(&reader.peer, pid, problem);
    if (rc)
        return rc;
    rc = sites_place(&reader, &room, problem);
    if (!rc)
        rc = sites_head(&reader, &head, room, problem);
    if (!rc)
        *modes = head.modes & (GP_SITES_NATIVE | GP_SITES_PYTHON);
    gp_peer_close(&reader.peer);
    return rc == -ENOENT ? 0 : rc;
}

void gp_sites_close(struct gp_sites *sites)
{
    if (!sites)
        return;
    if (sites->reader->own)
        gp_peer_close(&sites->reader->peer);
    gp_modules_free(&sites->reader->modules);
    free(sites->reader->module_index);
    free(sites->reader);
    free(sites->sites);
    free(sites->frames);
    free(sites->modules);
    free(sites->strings);
    free(sites);
}
