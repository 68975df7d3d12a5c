/* SPDX-License-Identifier: MIT
 *
 * payload.c: decodes the payloads of all block types except events; see internal.h, and
 * record/blocks.c, which encodes them.
 */
#include <base/numbers.h>
#include <base/text.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <record/pack.h>
#include <stdio.h>
#include <string.h>

/* ==== structs of older recordings ================================================================================= */

#define RAW_STATS   9
#define RAW_POOLS   3
#define RAW_KINDS   14
#define RAW_SCOPES  16
#define RAW_HOLDERS 12

struct raw_device_1_2 {
    uint32_t flags;
    int32_t ordinal;
    uint8_t uuid[16];
    char name[64];
    int64_t total_bytes;
    int64_t stats[RAW_STATS][RAW_POOLS][4]; /* current, peak, allocated, freed */
    int64_t oversize_allocations[4], oversize_segments[4];
    int64_t num_alloc_retries, num_ooms, max_split_size, num_sync_all_streams, num_device_alloc, num_device_free;
    int64_t kinds[RAW_KINDS][8];
    int64_t scopes[RAW_SCOPES][2];
    int64_t linear_rounded_bytes;
    uint8_t reserved_[64];
};
_Static_assert(sizeof(struct raw_device_1_2) == 2296, "format 1.2");

struct raw_holder {
    uint64_t block_bytes, count;
    uint32_t site;
    uint8_t kind, pad_[3];
};

struct raw_oom_1_2 {
    uint64_t seq, count, time_ns, driver_ns, holders_ns;
    char api[48];
    uint32_t error, flags;
    int32_t device;
    uint32_t tid;
    uint64_t asked_bytes, stream;
    int64_t free_bytes, total_bytes, reserved_bytes, allocated_bytes;
    int64_t pool_reserved_bytes, graph_reserved_bytes, graph_used_bytes;
    int64_t kinds[RAW_KINDS];
    int64_t limit_bytes, idle_bytes, largest_idle_bytes, releasable_bytes, waiting_bytes, idle_pieces, pinning_blocks;
    char policy[16], conf[128];
    uint32_t holder_count, site;
    struct raw_holder holders[RAW_HOLDERS];
    int64_t rest_bytes, rest_count;
};
_Static_assert(sizeof(struct raw_oom_1_2) == 800, "format 1.2");

static struct gp_wire_value raw_value(const int64_t from[4])
{
    return (struct gp_wire_value){.current = from[0], .peak = from[1], .allocated = from[2], .freed = from[3]};
}

static struct gp_wire_kind_value raw_kind(const int64_t from[8])
{
    return (struct gp_wire_kind_value){.current_bytes = from[0],
                                       .peak_bytes = from[1],
                                       .allocated_bytes = from[2],
                                       .freed_bytes = from[3],
                                       .live = from[4],
                                       .live_peak = from[5],
                                       .calls = from[6],
                                       .reserved_bytes = from[7]};
}

/* Makes every number unknown (-1), as those are that are younger than a recording. */
static void raw_unknown(struct gp_wire_device *out)
{
    for (unsigned i = 0; i < GP_NUMBER_ROWS; i++)
        memset((char *)out + gp_number_rows[i].offset, 0xff, gp_number_rows[i].count * sizeof(int64_t));
}

/* Reads `bytes` of a device's numbers; of a shorter struct, which an older version wrote, the rest is 0. */
static void raw_device(struct gp_wire_device *out, const uint8_t *bytes, size_t count)
{
    struct raw_device_1_2 raw = {0};
    memcpy(&raw, bytes, count < sizeof(raw) ? count : sizeof(raw));
    memset(out, 0, sizeof(*out));
    raw_unknown(out);
    out->flags = raw.flags;
    out->ordinal = raw.ordinal;
    out->total_bytes = raw.total_bytes;
    out->oversize_allocations = raw_value(raw.oversize_allocations);
    out->oversize_segments = raw_value(raw.oversize_segments);
    out->num_alloc_retries = raw.num_alloc_retries;
    out->num_ooms = raw.num_ooms;
    out->max_split_size = raw.max_split_size;
    out->num_sync_all_streams = raw.num_sync_all_streams;
    out->num_device_alloc = raw.num_device_alloc;
    out->num_device_free = raw.num_device_free;
    out->linear_rounded_bytes = raw.linear_rounded_bytes;
    memcpy(out->uuid, raw.uuid, sizeof(out->uuid));
    memcpy(out->name, raw.name, sizeof(out->name));
    /* Ids of statistics and kinds never change (numbers.def). */
    for (unsigned stat = 0; stat < RAW_STATS; stat++)
        for (unsigned pool = 0; pool < RAW_POOLS; pool++)
            out->stats[stat][pool] = raw_value(raw.stats[stat][pool]);
    for (unsigned kind = 0; kind < RAW_KINDS; kind++)
        out->kinds[kind] = raw_kind(raw.kinds[kind]);
    for (unsigned scope = 0; scope < RAW_SCOPES && scope < GP_WIRE_SCOPES; scope++)
        out->scopes[scope] = (struct gp_wire_scope_value){.allocated_peak_bytes = raw.scopes[scope][0],
                                                          .reserved_peak_bytes = raw.scopes[scope][1]};
}

/* The same of a failed request. False: too short. */
static bool raw_oom(struct gp_wire_oom *out, const uint8_t *bytes, size_t count)
{
    struct raw_oom_1_2 raw;
    if (count < sizeof(raw))
        return false;
    memcpy(&raw, bytes, sizeof(raw));
    *out = (struct gp_wire_oom){
#define GP_OOM_NUMBER(_id, _field) ._field = raw._field,
#include <record/oom.def>
        .seq = raw.seq,
        .holder_count = raw.holder_count < RAW_HOLDERS ? raw.holder_count : RAW_HOLDERS,
    };
    memcpy(out->api, raw.api, sizeof(out->api));
    memcpy(out->policy, raw.policy, sizeof(out->policy));
    memcpy(out->conf, raw.conf, sizeof(out->conf));
    for (unsigned kind = 0; kind < GP_KINDS; kind++)
        out->kinds[kind] = kind < RAW_KINDS ? raw.kinds[kind] : -1;
    for (unsigned i = 0; i < RAW_HOLDERS && i < GP_OOM_HOLDERS; i++)
        out->holders[i] = (struct gp_wire_oom_holder){.block_bytes = raw.holders[i].block_bytes,
                                                      .count = raw.holders[i].count,
                                                      .site = raw.holders[i].site,
                                                      .kind = raw.holders[i].kind};
    return true;
}

/* ==== the payloads ================================================================================================ */

static uint32_t payload_string(struct gp_read *read, struct gp_unpack *in)
{
    uint64_t length = gp_unpack_number(in);
    const uint8_t *text = gp_unpack_raw(in, length);
    return text ? gp_read_string(read, text, length) : 0;
}

static void payload_text(struct gp_unpack *in, char *to, size_t to_bytes)
{
    uint64_t length = gp_unpack_number(in);
    const uint8_t *text = gp_unpack_raw(in, length);
    gp_text_clean(to, to_bytes, text ? (const char *)text : "", text ? length : 0);
}

/* Reads and checks the number of the first row of `count`. Rows lost with damaged blocks stay
 * zero. */
static bool payload_first(struct gp_read *read, struct gp_unpack *in, uint32_t count, uint32_t *first)
{
    uint64_t number = gp_unpack_number(in);
    if (in->bad || read->error || count > gp_unpack_left(in) || number > GP_READ_ROWS - count ||
        number + count > GP_READ_TABLE(read->file_bytes))
        return false;
    *first = (uint32_t)number;
    return true;
}

static int32_t payload_rank(struct gp_unpack *in)
{
    int64_t number = gp_unpack_signed(in);
    return number < 0 || number > INT32_MAX ? -1 : (int32_t)number;
}

_Static_assert((int)GP_REC_ATTACHED_NO == (int)GP_FORMAT_ATTACHED_NO &&
                   (int)GP_REC_ATTACHED_YES == (int)GP_FORMAT_ATTACHED_YES,
               "format");

static bool payload_process(struct gp_read *read, struct gp_unpack *in)
{
    struct gp_recording *r = read->recording;
    r->pid = (uint32_t)gp_unpack_number(in);
    uint64_t source = gp_unpack_number(in);
    r->source = source <= GP_SOURCE_HOOKS ? (uint32_t)source : GP_SOURCE_NONE;
    r->driver_version = (uint32_t)gp_unpack_number(in);
    r->from_start = gp_unpack_number(in) == 1;
    r->begin_ns = gp_unpack_number(in);
    r->begin_unix_ns = gp_unpack_number(in);
    read->comm = payload_string(read, in);
    read->command_line = payload_string(read, in);
    read->host = payload_string(read, in);
    read->allocator = payload_string(read, in);
    if (!in->bad && gp_unpack_left(in) > 0) { /* since format 1.1 */
        r->rank = payload_rank(in);
        r->local_rank = payload_rank(in);
        r->world_size = payload_rank(in);
        r->has_rank = r->rank >= 0;
    }
    uint64_t attached = !in->bad && gp_unpack_left(in) > 0 ? gp_unpack_number(in) : 0; /* since format 1.2 */
    r->attached = attached <= GP_FORMAT_ATTACHED_YES ? (enum gp_rec_attached)attached : GP_REC_ATTACHED_UNKNOWN;
    read->has_process |= !in->bad;
    return !in->bad;
}

static bool payload_strings(struct gp_read *read, struct gp_unpack *in)
{
    uint64_t first = gp_unpack_number(in), bytes = gp_unpack_left(in);
    if (in->bad || first > GP_READ_UNPACKED(read->file_bytes) ||
        !GP_READ_ROOM(read, read->site_strings, read->site_strings_room, first + bytes + 1, GP_READ_STRINGS))
        return false;
    memcpy(read->site_strings + first, gp_unpack_raw(in, bytes), bytes);
    if (first + bytes > read->site_string_bytes)
        read->site_string_bytes = first + bytes;
    return true;
}

/* The index in read->mapped of the first mapping that ends above the address. */
static uint32_t payload_mapped(const struct gp_read *read, uint64_t address)
{
    uint32_t low = 0, high = read->mapped_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (read->recording->modules[read->mapped[middle]].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t payload_module_of(const struct gp_read *read, uint64_t pc)
{
    uint32_t at = payload_mapped(read, pc);
    bool inside = at < read->mapped_count && read->recording->modules[read->mapped[at]].start <= pc;
    return inside ? read->mapped[at] : GP_REC_NONE;
}

/* Frames read from here on lie in the current mappings: removes the mappings that the new one
 * overlaps. */
static bool payload_map(struct gp_read *read, uint32_t module)
{
    const struct gp_rec_module *modules = read->recording->modules;
    if (!GP_READ_ROOM(read, read->mapped, read->mapped_room, (size_t)read->mapped_count + 1, GP_READ_MODULES))
        return false;
    if (modules[module].end <= modules[module].start)
        return false; /* nothing is mapped there: the row is left out */
    uint32_t at = payload_mapped(read, modules[module].start), over = at;
    while (over < read->mapped_count && modules[read->mapped[over]].start < modules[module].end)
        over++;
    memmove(&read->mapped[at + 1], &read->mapped[over], (read->mapped_count - over) * sizeof(*read->mapped));
    read->mapped[at] = module;
    read->mapped_count += 1 - (over - at);
    return true;
}

static bool payload_frames(struct gp_read *read, struct gp_unpack *in, uint32_t count)
{
    struct gp_recording *r = read->recording;
    uint32_t first, last = GP_REC_NONE;
    if (!payload_first(read, in, count, &first) ||
        !GP_READ_ROOM(read, r->frames, read->frames_room, (size_t)first + count, GP_READ_ROWS))
        return false;
    for (; r->frame_count < first; r->frame_count++)
        r->frames[r->frame_count].module = GP_REC_NONE;
    for (uint32_t i = 0; i < count; i++) {
        struct gp_rec_frame frame = {.module = GP_REC_NONE};
        if (gp_unpack_number(in) == GP_FRAME_PYTHON) {
            frame.function = (uint32_t)gp_unpack_number(in);
            frame.file = (uint32_t)gp_unpack_number(in);
            frame.line = (uint32_t)gp_unpack_number(in);
        } else {
            frame.pc = gp_unpack_number(in);
            if (last == GP_REC_NONE || frame.pc < r->modules[last].start || frame.pc >= r->modules[last].end)
                last = payload_module_of(read, frame.pc);
            frame.module = last;
        }
        r->frames[first + i] = frame;
    }
    if (first + count > r->frame_count)
        r->frame_count = first + count;
    return !in->bad;
}

static bool payload_sites(struct gp_read *read, struct gp_unpack *in, uint32_t count)
{
    struct gp_recording *r = read->recording;
    uint32_t first;
    if (!payload_first(read, in, count, &first) ||
        !GP_READ_ROOM(read, r->sites, read->sites_room, (size_t)first + count, GP_READ_ROWS))
        return false;
    for (uint32_t i = first; i < first + count; i++) {
        struct gp_rec_site *site = &r->sites[i];
        uint64_t first_frame = gp_unpack_number(in), frames = gp_unpack_number(in), kind = gp_unpack_number(in),
                 device = gp_unpack_number(in);
        site->truncated = gp_unpack_number(in) == 1;
        /* read.c checks that the frames exist when everything is read. */
        bool sound = first_frame < GP_READ_ROWS && frames <= GP_SITE_FRAMES;
        site->first_frame = sound ? (uint32_t)first_frame : 0;
        site->frame_count = sound ? (uint32_t)frames : 0;
        site->kind = kind < GP_KINDS ? (uint8_t)kind : GP_KIND_NONE;
        site->device = device < GP_WIRE_DEVICES ? (uint8_t)device : UINT8_MAX;
    }
    if (first + count > r->site_count)
        r->site_count = first + count;
    return !in->bad;
}

static bool payload_site_numbers(struct gp_read *read, struct gp_unpack *in, uint32_t count)
{
    struct gp_recording *r = read->recording;
    uint32_t first;
    if (!payload_first(read, in, count, &first) ||
        !GP_READ_ROOM(read, r->sites, read->sites_room, (size_t)first + count, GP_READ_ROWS))
        return false;
    if (first + count > r->site_count)
        r->site_count = first + count;
    for (uint32_t i = first; i < first + count; i++) {
        struct gp_rec_site *site = &r->sites[i];
        site->live_bytes = gp_unpack_signed(in);
        site->live_count = gp_unpack_signed(in);
        site->peak_bytes = gp_unpack_signed(in);
        site->at_peak_bytes = gp_unpack_signed(in);
        site->allocated_bytes = gp_unpack_signed(in);
        site->calls = gp_unpack_signed(in);
    }
    read->has_numbers |= !in->bad;
    return !in->bad;
}

static uint32_t payload_hex(struct gp_read *read, struct gp_unpack *in)
{
    char hex[65] = "";
    uint64_t bytes = gp_unpack_number(in);
    const uint8_t *id = gp_unpack_raw(in, bytes);
    if (!id || bytes > 32)
        return 0;
    for (uint64_t i = 0; i < bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", id[i]);
    return gp_read_string(read, hex, 2 * bytes);
}

/* The recorder reads the maps at most once a second, so these modules may be for frames that it
 * wrote since the last ones. */
static void payload_late_frames(struct gp_read *read)
{
    struct gp_recording *r = read->recording;
    for (; read->late_frames < r->frame_count; read->late_frames++) {
        struct gp_rec_frame *frame = &r->frames[read->late_frames];
        if (frame->pc && frame->module == GP_REC_NONE)
            frame->module = payload_module_of(read, frame->pc);
    }
}

static bool payload_modules(struct gp_read *read, struct gp_unpack *in, uint32_t count)
{
    struct gp_recording *r = read->recording;
    for (uint32_t i = 0; i < count && !in->bad; i++) {
        if (!GP_READ_ROOM(read, r->modules, read->modules_room, r->module_count + 1, GP_READ_MODULES))
            return false;
        struct gp_rec_module *module = &r->modules[r->module_count];
        module->start = gp_unpack_number(in);
        uint64_t bytes = gp_unpack_number(in);
        module->end = bytes <= UINT64_MAX - module->start ? module->start + bytes : module->start;
        module->offset = gp_unpack_number(in);
        module->path = payload_string(read, in);
        module->build_id = payload_hex(read, in);
        if (!in->bad && payload_map(read, r->module_count))
            r->module_count++;
    }
    payload_late_frames(read);
    return !in->bad;
}

/* Names of frames that are in damaged blocks are skipped. */
static bool payload_names(struct gp_read *read, struct gp_unpack *in, uint32_t count)
{
    struct gp_recording *r = read->recording;
    for (uint32_t i = 0; i < count && !in->bad; i++) {
        uint64_t number = gp_unpack_number(in), calls = gp_unpack_number(in);
        const struct gp_rec_frame *frame = number < r->frame_count && r->frames[number].pc ? &r->frames[number] : NULL;
        for (uint32_t depth = 0; depth < calls && !in->bad; depth++) {
            struct gp_rec_name name = {.depth = depth};
            name.function = payload_string(read, in);
            name.file = payload_string(read, in);
            name.line = (uint32_t)gp_unpack_number(in);
            if (in->bad || !frame || !name.function)
                continue;
            name.pc = frame->pc;
            name.module = frame->module;
            if (read->error || !GP_READ_ROOM(read, r->names, read->names_room, r->name_count + 1ul, GP_READ_ROWS))
                return false;
            r->names[r->name_count++] = name;
        }
    }
    return !in->bad;
}

static bool payload_threads(struct gp_read *read, struct gp_unpack *in, uint32_t count)
{
    for (uint32_t i = 0; i < count && !in->bad; i++) {
        uint32_t thread = gp_read_thread(read, (uint32_t)gp_unpack_number(in)), name = payload_string(read, in);
        if (read->error)
            return false;
        if (!in->bad)
            read->recording->threads[thread].name = name;
    }
    return !in->bad;
}

static bool payload_samples(struct gp_read *read, struct gp_unpack *in, uint32_t count)
{
    struct gp_recording *r = read->recording;
    for (uint32_t i = 0; i < count && !in->bad; i++) {
        struct gp_rec_sample sample = {.time_ns = gp_unpack_number(in)};
        uint64_t index = gp_unpack_number(in);
        int64_t *numbers[] = {&sample.allocated_bytes,      &sample.reserved_bytes, &sample.active_bytes,
                              &sample.inactive_split_bytes, &sample.used_bytes,     &sample.process_bytes};
        for (unsigned k = 0; k < 6; k++) {
            int64_t number = gp_unpack_signed(in);
            *numbers[k] = number < 0 ? -1 : number;
        }
        if (in->bad || index >= GP_WIRE_DEVICES)
            return false;
        sample.device = gp_read_device(read, (uint32_t)index);
        if (!GP_READ_ROOM(read, r->samples, read->samples_room, r->sample_count + 1, GP_READ_ROWS))
            return false;
        r->samples[r->sample_count++] = sample;
    }
    return !in->bad;
}

/* Numbers that are not in the file are unknown; rows and values that this version does not know are skipped. */
static bool payload_numbers(struct gp_unpack *in, struct gp_wire_device *out)
{
    out->flags = (uint32_t)gp_unpack_number(in);
    uint64_t rows = gp_unpack_number(in);
    if (rows)
        raw_unknown(out);
    for (uint64_t i = 0; i < rows && !in->bad; i++) {
        uint64_t id = gp_unpack_number(in), count = gp_unpack_number(in);
        const struct gp_number_row *row = gp_number_row(id);
        for (uint64_t k = 0; k < count && !in->bad; k++) {
            int64_t value = gp_unpack_signed(in);
            if (row && k < row->count)
                memcpy((char *)out + row->offset + k * sizeof(value), &value, sizeof(value));
        }
    }
    return rows > 0;
}

/* The struct as it was in format 1.2. */
static bool payload_raw_numbers(struct gp_unpack *in, struct gp_wire_device *out)
{
    uint64_t bytes = gp_unpack_number(in);
    const uint8_t *raw = gp_unpack_raw(in, bytes);
    if (raw)
        raw_device(out, raw, bytes);
    return raw && bytes > 0;
}

static bool payload_devices(struct gp_read *read, struct gp_unpack *in, uint32_t count, bool is_raw)
{
    for (uint32_t i = 0; i < count && !in->bad; i++) {
        struct gp_rec_device row = {0};
        uint64_t index = gp_unpack_number(in);
        row.ordinal = (int32_t)gp_unpack_signed(in);
        payload_text(in, row.uuid, sizeof(row.uuid));
        payload_text(in, row.name, sizeof(row.name));
        row.total_bytes = gp_unpack_signed(in);
        bool final = gp_unpack_number(in) == 1;
        bool known = is_raw ? payload_raw_numbers(in, &row.last) : payload_numbers(in, &row.last);
        if (in->bad || index >= GP_WIRE_DEVICES)
            return false;
        row.has_last = final && known;
        row.index = (uint8_t)index;
        row.total_bytes = row.total_bytes < 0 ? -1 : row.total_bytes;
        row.ordinal = index == GP_WIRE_HOST || row.ordinal < -1 ? -1 : row.ordinal;
        gp_text_clean(row.last.name, sizeof(row.last.name), row.name, sizeof(row.name));
        uint8_t at = gp_read_device(read, (uint32_t)index);
        if (read->error)
            return false;
        read->recording->devices[at] = row;
    }
    return !in->bad;
}

static int64_t payload_before_bytes(struct gp_unpack *in)
{
    int64_t bytes = gp_unpack_signed(in);
    return bytes < 0 || bytes > INT64_MAX / 64 ? -1 : bytes;
}

static bool payload_before(struct gp_read *read, struct gp_unpack *in, uint32_t count)
{
    struct gp_recording *r = read->recording;
    for (uint32_t i = 0; i < count && !in->bad; i++) {
        struct gp_rec_before row = {.time_ns = gp_unpack_number(in)};
        uint64_t index = gp_unpack_number(in), source = gp_unpack_number(in), freed;
        row.is.bytes = payload_before_bytes(in);
        row.is.at_attach_bytes = payload_before_bytes(in);
        row.is.count = payload_before_bytes(in);
        freed = gp_unpack_number(in);
        row.is.freed = freed <= INT64_MAX ? freed : 0;
        row.is.framework_allocated_bytes = payload_before_bytes(in);
        row.is.framework_reserved_bytes = payload_before_bytes(in);
        row.is.source = source <= GP_BEFORE_FRAMEWORK && row.is.bytes >= 0 ? (uint32_t)source : GP_BEFORE_NONE;
        if (in->bad || index >= GP_WIRE_GPUS)
            return false;
        row.device = gp_read_device(read, (uint32_t)index);
        if (read->error || !GP_READ_ROOM(read, r->befores, read->befores_room, r->before_count + 1, GP_READ_ROWS))
            return false;
        r->befores[r->before_count++] = row;
    }
    return !in->bad;
}

static void payload_clean(char *text, size_t bytes)
{
    char clean[128] = "";
    gp_text_clean(clean, bytes < sizeof(clean) ? bytes : sizeof(clean), text, bytes);
    memcpy(text, clean, bytes < sizeof(clean) ? bytes : sizeof(clean));
}

static void payload_oom_number(struct gp_wire_oom *oom, uint64_t id, int64_t value)
{
    switch (id) {
#define GP_OOM_NUMBER(_id, _field)                                                                                     \
    case _id:                                                                                                          \
        oom->_field = (__typeof__(oom->_field))value;                                                                  \
        break;
#include <record/oom.def>
    default: /* a later version's */
        break;
    }
}

static void payload_oom_holders(struct gp_unpack *in, struct gp_wire_oom *oom)
{
    uint64_t count = gp_unpack_number(in);
    oom->holder_count = count < GP_OOM_HOLDERS ? (uint32_t)count : GP_OOM_HOLDERS;
    for (uint32_t i = 0; i < oom->holder_count; i++) {
        oom->holders[i].block_bytes = gp_unpack_number(in);
        oom->holders[i].count = gp_unpack_number(in);
        oom->holders[i].site = (uint32_t)gp_unpack_number(in);
        uint64_t kind = gp_unpack_number(in);
        oom->holders[i].kind = kind < GP_KINDS ? (uint8_t)kind : GP_KIND_NONE;
    }
}

static bool payload_oom(struct gp_unpack *in, struct gp_wire_oom *oom)
{
    uint64_t numbers = gp_unpack_number(in);
    for (uint64_t i = 0; i < numbers && !in->bad; i++) {
        uint64_t id = gp_unpack_number(in);
        payload_oom_number(oom, id, gp_unpack_signed(in));
    }
    memset(oom->kinds, 0xff, sizeof(oom->kinds));
    uint64_t kinds = gp_unpack_number(in);
    for (uint64_t kind = 0; kind < kinds && !in->bad; kind++) {
        int64_t bytes = gp_unpack_signed(in);
        if (kind < GP_KINDS)
            oom->kinds[kind] = bytes;
    }
    payload_text(in, oom->api, sizeof(oom->api));
    payload_text(in, oom->policy, sizeof(oom->policy));
    payload_text(in, oom->conf, sizeof(oom->conf));
    payload_oom_holders(in, oom);
    return !in->bad;
}

/* The struct as it was in format 1.2. */
static bool payload_raw_oom(struct gp_unpack *in, struct gp_wire_oom *oom)
{
    uint64_t bytes = gp_unpack_number(in);
    const uint8_t *raw = gp_unpack_raw(in, bytes);
    if (!raw || !raw_oom(oom, raw, bytes))
        return false;
    payload_clean(oom->api, sizeof(oom->api));
    payload_clean(oom->policy, sizeof(oom->policy));
    payload_clean(oom->conf, sizeof(oom->conf));
    for (uint32_t i = 0; i < oom->holder_count; i++)
        if (oom->holders[i].kind >= GP_KINDS)
            oom->holders[i].kind = GP_KIND_NONE;
    return true;
}

static bool payload_failed(struct gp_recording *recording, struct gp_unpack *in, bool is_raw)
{
    struct gp_wire_oom oom = {0};
    if (is_raw ? !payload_raw_oom(in, &oom) : !payload_oom(in, &oom))
        return false;
    if (oom.device < 0 || oom.device >= (int32_t)GP_WIRE_DEVICES)
        oom.device = -1;
    recording->oom = oom;
    recording->has_oom = oom.count > 0;
    return true;
}

static bool payload_counts(struct gp_read *read, struct gp_unpack *in, bool end)
{
    struct gp_recording *r = read->recording;
    gp_unpack_number(in); /* the reason of the end, and the error, are not used here */
    gp_unpack_number(in);
    uint64_t time_ns = gp_unpack_number(in), tried = gp_unpack_number(in), delivered = gp_unpack_number(in);
    uint64_t drops = gp_unpack_number(in), dropped = 0, unwritten = 0, lost[GP_LOSTS] = {0};
    for (uint64_t i = 0; i < drops && !in->bad; i++) {
        uint64_t count = gp_unpack_number(in);
        dropped += count;
        unwritten += i == GP_DROP_FILE ? count : 0;
    }
    uint64_t losts = gp_unpack_number(in);
    for (uint64_t i = 0; i < losts && !in->bad; i++) {
        uint64_t count = gp_unpack_number(in);
        if (i < GP_LOSTS)
            lost[i] = count;
    }
    bool has_error = !in->bad && gp_unpack_left(in) > 0; /* since format 1.1 */
    uint64_t error = has_error ? gp_unpack_number(in) : 0, error_ns = has_error ? gp_unpack_number(in) : 0;
    uint64_t before = has_error ? gp_unpack_number(in) : 0;
    if (in->bad)
        return false;
    r->write_error = error < 4096 ? (int)error : EIO;
    r->write_error_ns = error_ns;
    r->ended_early = error && unwritten && before == delivered;
    r->unwritten = unwritten;
    r->end_ns = time_ns;
    r->tried = tried;
    r->delivered = delivered;
    r->dropped = dropped;
    memcpy(r->lost, lost, sizeof(lost));
    r->complete = end;
    read->has_counts = true;
    return true;
}

bool gp_read_payload(struct gp_read *read, const struct gp_format_block *block, const void *payload)
{
    struct gp_unpack in = {.at = payload, .end = (const uint8_t *)payload + block->bytes};
    switch (block->type) {
    case GP_BLOCK_PROCESS:
        return payload_process(read, &in);
    case GP_BLOCK_STRINGS:
        return payload_strings(read, &in);
    case GP_BLOCK_FRAMES:
        return payload_frames(read, &in, block->count);
    case GP_BLOCK_SITES:
        return payload_sites(read, &in, block->count);
    case GP_BLOCK_SITE_NUMBERS:
        return payload_site_numbers(read, &in, block->count);
    case GP_BLOCK_MODULES:
        return payload_modules(read, &in, block->count);
    case GP_BLOCK_THREADS:
        return payload_threads(read, &in, block->count);
    case GP_BLOCK_SAMPLES:
        return payload_samples(read, &in, block->count);
    case GP_BLOCK_DEVICES:
    case GP_BLOCK_DEVICES_RAW:
        return payload_devices(read, &in, block->count, block->type == GP_BLOCK_DEVICES_RAW);
    case GP_BLOCK_OOM:
    case GP_BLOCK_OOM_RAW:
        return payload_failed(read->recording, &in, block->type == GP_BLOCK_OOM_RAW);
    case GP_BLOCK_BEFORE:
        return payload_before(read, &in, block->count);
    case GP_BLOCK_NAMES:
        return payload_names(read, &in, block->count);
    case GP_BLOCK_COUNTS:
    case GP_BLOCK_END:
        return payload_counts(read, &in, block->type == GP_BLOCK_END);
    default:
        return true;
    }
}
