/* SPDX-License-Identifier: MIT
 * pprof.c: a profile as `go tool pprof` and its relatives read it: gzipped protobuf with the sample
 * types of Go's heap profiles and the bytes at the peak.  Called through the table in formats.c.
 *
 * A serialised message is the concatenation of its parts, so each sample, location, function and
 * string is written as soon as it is known, as a Profile message with nothing else in it.  Only the
 * keys of written parts stay in memory.
 */
#include <convert/export/formats.h>
#include <convert/export/out.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <show/text/stats.h>
#include <symbol/symbol.h>

#include <errno.h>
#include <profile.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define GP_PPROF_TYPES 6u
#define GP_PPROF_LINES 64u /* inlined calls of one location; deeper ones become a location of their own */

static const char *const pprof_types[GP_PPROF_TYPES][2] = {{"alloc_objects", "count"}, {"alloc_space", "bytes"},
                                                           {"inuse_objects", "count"}, {"inuse_space", "bytes"},
                                                           {"peak_space", "bytes"},    {"leaked_space", "bytes"}};

struct gp_pprof {
    struct gp_export *export;
    struct gp_out *out;
    z_stream zip;
    struct gp_keys strings, functions, locations;
    uint64_t *stack; /* location ids of one sample */
    uint8_t *packed;
    size_t packed_room;
    unsigned types;
    int rc;
};

/* ---- bytes out --------------------------------------------------------------------------------------------------- */

static void pprof_zip(struct gp_pprof *p, const void *bytes, size_t count, int flush)
{
    unsigned char block[16384];
    p->zip.next_in = (unsigned char *)bytes;
    p->zip.avail_in = (uInt)count;
    int rc;
    do {
        p->zip.next_out = block;
        p->zip.avail_out = sizeof(block);
        rc = deflate(&p->zip, flush);
        if (rc == Z_STREAM_ERROR) {
            p->rc = -EIO;
            return;
        }
        gp_out_bytes(p->out, block, sizeof(block) - p->zip.avail_out);
    } while (p->zip.avail_out == 0 || (flush == Z_FINISH && rc != Z_STREAM_END));
}

static void pprof_put(struct gp_pprof *p, const Perftools__Profiles__Profile *part)
{
    size_t bytes = perftools__profiles__profile__get_packed_size(part);
    if (p->rc)
        return;
    if (bytes > p->packed_room) {
        uint8_t *bigger = realloc(p->packed, bytes * 2);
        if (!bigger) {
            p->rc = -ENOMEM;
            return;
        }
        p->packed = bigger;
        p->packed_room = bytes * 2;
    }
    perftools__profiles__profile__pack(part, p->packed);
    pprof_zip(p, p->packed, bytes, Z_NO_FLUSH);
}

/* ---- what is named once ------------------------------------------------------------------------------------------ */

static uint32_t pprof_number(struct gp_pprof *p, struct gp_keys *keys, const void *key, size_t bytes, bool *is_new)
{
    uint32_t number = 0;
    *is_new = false;
    if (!p->rc)
        p->rc = gp_hash_keys_number(keys, key, bytes, &number, is_new);
    return number;
}

static int64_t pprof_string(struct gp_pprof *p, const char *text)
{
    char clean[1024]; /* protobuf rejects invalid UTF-8; the longest name that symbols give */
    char *strings[] = {clean};
    bool is_new;
    gp_utf8_copy(clean, sizeof(clean), text);
    uint32_t number = pprof_number(p, &p->strings, clean, strlen(clean), &is_new);
    if (is_new) {
        Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
        part.n_string_table = 1;
        part.string_table = strings;
        pprof_put(p, &part);
    }
    return number;
}

static uint64_t pprof_function(struct gp_pprof *p, const struct gp_frame_text *frame)
{
    int64_t key[] = {pprof_string(p, frame->function), pprof_string(p, frame->file), frame->python};
    bool is_new;
    uint32_t number = pprof_number(p, &p->functions, key, sizeof(key), &is_new);
    if (is_new) {
        Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
        Perftools__Profiles__Function function = PERFTOOLS__PROFILES__FUNCTION__INIT;
        Perftools__Profiles__Function *functions[] = {&function};
        function.id = number + 1;
        /* pprof takes a name that is also the system's for one to be demangled, and "<module>" for
         * the arguments of a template. */
        function.name = key[0];
        function.system_name = frame->python ? 0 : key[0];
        function.filename = key[1];
        part.n_function = 1;
        part.function = functions;
        pprof_put(p, &part);
    }
    return number + 1;
}

struct gp_pprof_place { /* a location's key; without padding */
    uint64_t address, mapping, lines;
    struct {
        uint64_t function;
        int64_t line;
    } line[GP_PPROF_LINES];
};

static void pprof_location_put(struct gp_pprof *p, const struct gp_pprof_place *place, uint64_t id)
{
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    Perftools__Profiles__Location location = PERFTOOLS__PROFILES__LOCATION__INIT;
    Perftools__Profiles__Location *locations[] = {&location};
    Perftools__Profiles__Line line[GP_PPROF_LINES], *lines[GP_PPROF_LINES];
    for (size_t i = 0; i < place->lines; i++) {
        perftools__profiles__line__init(&line[i]);
        line[i].function_id = place->line[i].function;
        line[i].line = place->line[i].line;
        lines[i] = &line[i];
    }
    location.id = id;
    location.mapping_id = place->mapping;
    location.address = place->address;
    location.n_line = place->lines;
    location.line = lines;
    part.n_location = 1;
    part.location = locations;
    pprof_put(p, &part);
}

/* Writes one location for frames[0] and the functions that it was inlined into.  Returns the number
 * of frames used. */
static uint32_t pprof_location(struct gp_pprof *p, const struct gp_frame_text *frames, uint32_t count, uint64_t *id)
{
    struct gp_pprof_place place = {0};
    uint32_t n = 0;
    bool is_new, inlined;
    do {
        inlined = frames[n].inlined;
        place.line[n].function = pprof_function(p, &frames[n]);
        place.line[n].line = frames[n].line;
    } while (inlined && ++n < count && n < GP_PPROF_LINES);
    n += !inlined;
    const struct gp_frame_text *code = &frames[n - 1];
    place.lines = n;
    place.address = code->pc;
    place.mapping = code->module_index < p->export->recording->module_count ? code->module_index + 1 : 0;
    uint32_t number = pprof_number(p, &p->locations, &place,
                                   offsetof(struct gp_pprof_place, line) + n * sizeof(place.line[0]), &is_new);
    if (is_new)
        pprof_location_put(p, &place, number + 1);
    *id = number + 1;
    return n;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void pprof_mapping(struct gp_pprof *p, uint32_t index)
{
    const struct gp_recording *recording = p->export->recording;
    const struct gp_rec_module *module = &recording->modules[index];
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    Perftools__Profiles__Mapping mapping = PERFTOOLS__PROFILES__MAPPING__INIT;
    Perftools__Profiles__Mapping *mappings[] = {&mapping};
    mapping.id = index + 1;
    mapping.memory_start = module->start;
    mapping.memory_limit = module->end;
    mapping.file_offset = module->offset;
    mapping.filename = pprof_string(p, recording->strings + module->path);
    mapping.build_id = pprof_string(p, recording->strings + module->build_id);
    /* The profile has its symbols: readers need not search for the files. */
    mapping.has_functions = mapping.has_filenames = mapping.has_line_numbers = mapping.has_inline_frames = true;
    part.n_mapping = 1;
    part.mapping = mappings;
    pprof_put(p, &part);
}

static void pprof_type(struct gp_pprof *p, Perftools__Profiles__ValueType *type, const char *name, const char *unit)
{
    perftools__profiles__value_type__init(type);
    type->type = pprof_string(p, name);
    type->unit = pprof_string(p, unit);
}

static const char *pprof_default(enum gp_export_weight weight)
{
    switch (weight) {
    case GP_EXPORT_PEAK:
        return "peak_space";
    case GP_EXPORT_ALLOCATED:
        return "alloc_space";
    case GP_EXPORT_LEAKED:
        return "leaked_space";
    default:
        return "inuse_space";
    }
}

static int64_t pprof_comment(struct gp_pprof *p)
{
    const struct gp_recording *recording = p->export->recording;
    char text[768];
    snprintf(text, sizeof(text), "gpuprof: GPU memory of %.64s (pid %u): %.500s", recording->comm, recording->pid,
             recording->command_line);
    return pprof_string(p, text);
}

static int64_t pprof_losses(struct gp_pprof *p)
{
    const struct gp_recording *recording = p->export->recording;
    char text[160];
    snprintf(text, sizeof(text), "events: %llu tried, %llu recorded, %llu dropped; damaged blocks: %llu",
             (unsigned long long)recording->tried, (unsigned long long)recording->delivered,
             (unsigned long long)recording->dropped, (unsigned long long)recording->damaged_blocks);
    return pprof_string(p, text);
}

static void pprof_head(struct gp_pprof *p)
{
    const struct gp_recording *recording = p->export->recording;
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    Perftools__Profiles__ValueType type[GP_PPROF_TYPES], period, *types[GP_PPROF_TYPES];
    pprof_string(p, ""); /* pprof requires it as the first string */
    for (unsigned i = 0; i < p->types; i++) {
        pprof_type(p, &type[i], pprof_types[i][0], pprof_types[i][1]);
        types[i] = &type[i];
    }
    int64_t comments[] = {pprof_comment(p), pprof_losses(p)};
    pprof_type(p, &period, "space", "bytes");
    part.n_sample_type = p->types;
    part.sample_type = types;
    part.period_type = &period;
    part.period = 1; /* a period of one byte: every byte is sampled */
    part.time_nanos = (int64_t)recording->begin_unix_ns;
    part.duration_nanos = (int64_t)(recording->end_ns - recording->begin_ns);
    part.n_comment = 2;
    part.comment = comments;
    part.default_sample_type = pprof_string(p, pprof_default(p->export->weight));
    pprof_put(p, &part);
    for (uint32_t i = 0; i < recording->module_count; i++)
        pprof_mapping(p, i);
}

static void pprof_label(struct gp_pprof *p, Perftools__Profiles__Label *label, const char *key, const char *text)
{
    perftools__profiles__label__init(label);
    label->key = pprof_string(p, key);
    label->str = text ? pprof_string(p, text) : 0;
}

/* The stack from the frame that names the site outward: `pprof -top` credits the leaf, and with the
 * functions of CUDA and of wrappers there it would credit these with everything. */
static uint32_t pprof_frames(const struct gp_export *export, uint32_t site, const struct gp_frame_text **frames)
{
    uint32_t count = gp_symbols_site(export->symbols, site, frames);
    const struct gp_frame_text *name = gp_symbols_name(export->symbols, site);
    if (export->full_stacks || name < *frames || name >= *frames + count)
        return count;
    count -= (uint32_t)(name - *frames);
    *frames = name;
    return count;
}

static void pprof_sample(struct gp_pprof *p, const struct gp_export_sum *sum)
{
    const struct gp_recording *recording = p->export->recording;
    const struct gp_frame_text *frames;
    uint32_t count = pprof_frames(p->export, sum->site, &frames), depth = 0;
    int64_t values[GP_PPROF_TYPES] = {sum->allocated_count, sum->allocated_bytes, sum->live_count,
                                      sum->live_bytes,      sum->peak_bytes,      sum->leaked_bytes};
    Perftools__Profiles__Label label[3], *labels[] = {&label[0], &label[1], &label[2]};
    Perftools__Profiles__Sample sample = PERFTOOLS__PROFILES__SAMPLE__INIT, *samples[] = {&sample};
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    char device[16];
    uint64_t *stack = realloc(p->stack, count * sizeof(stack[0]));
    if (!stack) {
        p->rc = -ENOMEM;
        return;
    }
    p->stack = stack;
    for (uint32_t i = 0; i < count && !p->rc; depth++)
        i += pprof_location(p, &frames[i], count - i, &stack[depth]);
    pprof_label(p, &label[0], "device", gp_export_device(recording, sum->device, device));
    pprof_label(p, &label[1], "kind", gp_kind_name(sum->kind));
    pprof_label(p, &label[2], "pid", NULL);
    label[2].num = recording->pid;
    sample.n_location_id = depth;
    sample.location_id = stack;
    sample.n_value = p->types;
    sample.value = values;
    sample.n_label = 3;
    sample.label = labels;
    part.n_sample = 1;
    part.sample = samples;
    pprof_put(p, &part);
}

int gp_export_pprof(struct gp_export *export, struct gp_out *out)
{
    struct gp_pprof p = {.export = export, .out = out, .types = GP_PPROF_TYPES};
    struct gp_export_sums sums;
    p.types -= export->weight != GP_EXPORT_LEAKED;
    int rc = gp_export_weigh(export, &sums);
    if (rc)
        return rc;
    if (deflateInit2(&p.zip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16 /* gzip */, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(sums.rows);
        return -ENOMEM;
    }
    pprof_head(&p);
    for (uint32_t i = 0; i < sums.count && !p.rc && !out->error; i++) {
        pprof_sample(&p, &sums.rows[i]);
        if (export->progress && (i & 1023) == 0)
            export->progress(export->progress_arg, (unsigned)((uint64_t)i * 1000 / sums.count));
    }
    if (!p.rc)
        pprof_zip(&p, "", 0, Z_FINISH);
    deflateEnd(&p.zip);
    gp_hash_keys_free(&p.strings);
    gp_hash_keys_free(&p.functions);
    gp_hash_keys_free(&p.locations);
    free(p.stack);
    free(p.packed);
    free(sums.rows);
    return p.rc ? p.rc : out->error;
}
