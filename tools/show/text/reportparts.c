/* SPDX-License-Identifier: MIT
 * reportparts.c: each analysis as a JSON document of its own; see text.h and reportparts.h.  reportjson.c
 * reuses the parts. */
#include <analyze/analyze.h>
#include <analyze/report.h>
#include <common/values.h>
#include <gpuprof/wire.h>
#include <jansson.h>
#include <read/recording/recording.h>
#include <show/text/reportparts.h>
#include <show/text/stats.h>
#include <show/text/text.h>
#include <show/text/write.h>
#include <stdio.h>
#include <symbol/symbol.h>

#include <stdlib.h>
#include <string.h>

/* Most sites in a list of churn. */
#define GP_CHURN_ROWS 1000u
/* Most sites in a list of holders. */
#define GP_HOLDER_ROWS 1000u

json_t *gp_report_device_name(const struct gp_report *report, uint32_t device)
{
    if (device >= report->recording->device_count)
        return json_null();
    const struct gp_rec_device *row = &report->recording->devices[device];
    if (row->index == GP_WIRE_HOST)
        return json_string("host");
    return json_integer(row->ordinal >= 0 ? row->ordinal : row->index);
}

json_int_t gp_report_since(const struct gp_report *report, uint64_t time_ns)
{
    uint64_t begin = report->recording->begin_ns;
    return time_ns > begin ? (json_int_t)(time_ns - begin) : 0;
}

const char *gp_report_step_source(const struct gp_report *report)
{
    static const char *const sources[] = {"marks", "nvtx", "period", "time", "given", "stacks"};
    return sources[report->steps->source];
}

const char *gp_report_rhythm(const struct gp_report *report, char text[GP_RHYTHM_TEXT])
{
    const struct gp_steps *steps = report->steps;
    char length[GP_SIZE_TEXT];
    gp_seconds_text(length, (double)steps->length_ns / 1e9);
    switch (steps->source) {
    case GP_STEPS_MARKS:
        snprintf(text, GP_RHYTHM_TEXT, "marks \"%s\"", steps->name);
        break;
    case GP_STEPS_NVTX:
        snprintf(text, GP_RHYTHM_TEXT, "NVTX range \"%s\"%s", steps->name,
                 steps->told ? "" : ", which may be a part of a step");
        break;
    case GP_STEPS_PERIOD:
        snprintf(text, GP_RHYTHM_TEXT, "period of %s found in the allocations, %.0f %% even; may be parts of a step",
                 length, steps->sure * 100);
        break;
    case GP_STEPS_TIME:
        snprintf(text, GP_RHYTHM_TEXT, "equal stretches of time, because no rhythm was found");
        break;
    case GP_STEPS_GIVEN:
        snprintf(text, GP_RHYTHM_TEXT, "stretches of %s, as you chose", length);
        break;
    case GP_STEPS_STACKS:
        if (steps->call == GP_STEP_NET)
            snprintf(text, GP_RHYTHM_TEXT, "calls from %s on the stacks", steps->name);
        else
            snprintf(text, GP_RHYTHM_TEXT, "calls of %s on the stacks",
                     steps->call == GP_STEP_OPTIMIZER ? "an optimizer's step" : "a backward pass");
        break;
    }
    return text;
}

const char *gp_report_evidence(const struct gp_leak *leak, char text[GP_EVIDENCE_TEXT])
{
    char time[GP_SIZE_TEXT], rate[GP_SIZE_TEXT], freed[48] = "nothing of it was freed";
    if (leak->freed_bytes > 0 && leak->taken_bytes > 0)
        snprintf(freed, sizeof(freed), "%.2g %% of it was freed",
                 100.0 * (double)leak->freed_bytes / (double)leak->taken_bytes);
    snprintf(text, GP_EVIDENCE_TEXT, "grows for %s at %s/s; %s", gp_seconds_text(time, (double)leak->grows_ns / 1e9),
             gp_size_text(rate, (int64_t)leak->bytes_per_second), freed);
    return text;
}

const char *gp_report_because(const struct gp_leak *leak, const char *word, const char *full,
                              char text[GP_BECAUSE_TEXT])
{
    char each[GP_SIZE_TEXT], rate[GP_SIZE_TEXT + 4], time[GP_SIZE_TEXT], repeat[96], end[96] = "", steps[160];
    const bool timed = strcmp(word, "stretch") == 0; /* a stretch of time keeps nothing by itself */
    snprintf(rate, sizeof(rate), "%s/s", gp_size_text(each, (int64_t)leak->bytes_per_second));
    gp_size_text(each, (int64_t)leak->bytes_per_step);
    if (!full && leak->seconds_to_oom >= 0)
        full = gp_seconds_text(time, leak->seconds_to_oom);
    if (full)
        snprintf(end, sizeof(end), ", and the device is full in %.64s", full);
    snprintf(repeat, sizeof(repeat), "each of %u repeats keeps %.3g and frees %.3g blocks", leak->repeats,
             leak->repeat_kept, leak->repeat_freed);
    snprintf(steps, sizeof(steps), "If these are steps, it keeps %s of each%s", each, end);
    switch ((enum gp_leak_doubt)leak->doubt) {
    case GP_LEAK_INSIDE:
        snprintf(text, GP_BECAUSE_TEXT,
                 "%s, inside one call of a net. %s; if they are layers of one pass, it does not leak", repeat, steps);
        break;
    case GP_LEAK_GENERATION: /* that a generation goes on until the device is full is not meant */
        snprintf(text, GP_BECAUSE_TEXT,
                 "it grew in one call of generate() alone. If it stays after that, it keeps %s of each token; if it is "
                 "the cache of that call, it does not leak",
                 each);
        break;
    case GP_LEAK_LOADING:
        snprintf(text, GP_BECAUSE_TEXT,
                 "%s, and keeps most of its memory. %s; if they are layers of one pass or weights that are loaded, it "
                 "does not leak",
                 repeat, steps);
        break;
    case GP_LEAK_LAYERS:
        snprintf(text, GP_BECAUSE_TEXT,
                 "%s, as quickly as layers do. %s; if they are layers of one pass, it does not leak", repeat, steps);
        break;
    case GP_LEAK_NO_STEPS:
        snprintf(text, GP_BECAUSE_TEXT,
                 "no steps are known, and it holds more after each of %u parts of the recording. If the program goes "
                 "on so, it keeps %s%s; if it is loading or in one pass, it does not leak",
                 leak->repeats, rate, end);
        break;
    case GP_LEAK_SHORT:
        snprintf(
            text, GP_BECAUSE_TEXT,
            "it began to grow in the last of %u %s%s. If it goes on so, it keeps %s%s%s; if it fills once, it does "
            "not leak",
            leak->repeats, word, timed ? "es" : "s", timed ? rate : each, timed ? "" : " of each", end);
        break;
    case GP_LEAK_UNEVEN:
        snprintf(text, GP_BECAUSE_TEXT,
                 "it also falls, but to a higher level each time. If that goes on, it keeps %s%s%s%s; if it has a "
                 "limit, it does not leak",
                 timed ? rate : each, timed ? "" : " of each ", timed ? "" : word, end);
        break;
    default:
        snprintf(text, GP_BECAUSE_TEXT, "it holds more with every %s", word);
        break;
    }
    return text;
}

const char *gp_report_missing(const struct gp_report *report)
{
    if (report->steps->source == GP_STEPS_TIME)
        return "steps, without which a program that is still loading looks the same. Mark each step with "
               "gpuprof_mark(\"step\") or an NVTX range, or give its length (--step=350ms).";
    if (report->leaks && !report->leaks->count && report->leaks->candidates)
        return "the name of a step, without which layers of one pass look the same. Mark each step with "
               "gpuprof_mark(\"step\") or an NVTX range, or give its length (--step=350ms).";
    return NULL;
}

json_t *gp_report_owner(const struct gp_recording *recording, uint32_t site)
{
    char owner[GP_SITE_OWNER];
    gp_bill_site_owner(recording, site, owner);
    return json_string(owner);
}

json_t *gp_report_owners(const struct gp_report *report, uint32_t device)
{
    const struct gp_bill_peak_owners *owners = report->devices[device].owners;
    json_t *list = json_array();
    for (uint32_t i = 0; i < owners->count; i++)
        json_array_append_new(list,
                              json_pack("{s:s,s:I,s:I}", "owner", owners->rows[i].owner, "bytes",
                                        (json_int_t)owners->rows[i].bytes, "count", (json_int_t)owners->rows[i].count));
    return list;
}

void gp_report_add_place(const struct gp_report *report, json_t *object, uint32_t site)
{
    const struct gp_frame_text *frames, *name = gp_symbols_name(report->symbols, site);
    gp_symbols_site(report->symbols, site, &frames);
    json_object_set_new(object, "function", json_string(name->function));
    json_object_set_new(object, "file", json_string(name->file));
    json_object_set_new(object, "line", json_integer(name->line));
    json_object_set_new(object, "operation", gp_json_text(gp_symbols_operation(report->symbols, site)->text));
    json_object_set_new(object, "frame", json_integer(name - frames));
    json_object_set_new(object, "owner", gp_report_owner(report->recording, site));
}

json_t *gp_report_frames(const struct gp_report *report, uint32_t site)
{
    const struct gp_frame_text *frames;
    uint32_t count = gp_symbols_site(report->symbols, site, &frames);
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:I,s:s,s:b,s:b,s:s,s:b}", "function", frames[i].function, "file",
                                        frames[i].file, "line", (json_int_t)frames[i].line, "module", frames[i].module,
                                        "python", frames[i].python, "inlined", frames[i].inlined, "role",
                                        gp_frame_role_name(frames[i].role), "folded", frames[i].folded));
    return list;
}

static json_t *json_caller(const struct gp_frame_text *caller)
{
    return caller ? json_pack("{s:s,s:s,s:I}", "function", caller->function, "file", caller->file, "line",
                              (json_int_t)caller->line)
                  : json_null();
}

/* Adds to each row of a list what the text shows: the name, with the frames that tell the site from others of that
 * name in the list.  frames: the whole stack too. */
static json_t *json_add_callers(const struct gp_report *report, json_t *list, bool frames)
{
    uint32_t count = (uint32_t)json_array_size(list);
    uint32_t *sites = calloc(count + 1ul, sizeof(*sites));
    const struct gp_frame_text **callers = calloc(2 * (count + 1ul), sizeof(*callers)), **callees = callers + count;
    for (uint32_t i = 0; sites && i < count; i++)
        sites[i] = (uint32_t)json_integer_value(json_object_get(json_array_get(list, i), "site"));
    if (sites && callers) {
        gp_symbols_callers(report->symbols, sites, count, callers);
        gp_symbols_callees(report->symbols, sites, count, callees);
    }
    for (uint32_t i = 0; sites && callers && i < count; i++) {
        json_t *row = json_array_get(list, i);
        char label[192];
        gp_symbols_line(report->symbols, sites[i], callers[i], callees[i], label, sizeof(label));
        json_object_set_new(row, "name", json_string(label));
        json_object_set_new(row, "caller", json_caller(callers[i]));
        json_object_set_new(row, "callee", json_caller(callees[i]));
        if (frames)
            json_object_set_new(row, "frames", gp_report_frames(report, sites[i]));
    }
    free(sites);
    free(callers);
    return list;
}

/* In how many of its points the memory of the site grew. */
static uint32_t report_grew(const struct gp_leak *leak)
{
    uint32_t grew = 0;
    for (uint32_t k = 0; k < leak->points; k++)
        grew += leak->kept[k + 1] > leak->kept[k];
    return grew;
}

const char *gp_report_what(char text[GP_USE_WORDS], const struct gp_report *report, uint32_t site, uint8_t kind)
{
    unsigned use = report->used_for ? report->used_for[site] : 0;
    if (!use)
        snprintf(text, GP_USE_WORDS, "%s", gp_kind_name(kind));
    else
        gp_use_words(text, (enum gp_use)((use & ~GP_USE_PROBABLY) - 1), use & GP_USE_PROBABLY ? 0 : 1);
    return text;
}

json_t *gp_report_use(const struct gp_report *report, uint32_t site)
{
    unsigned use = report->used_for ? report->used_for[site] : 0;
    return use ? json_string(gp_use_name((enum gp_use)((use & ~GP_USE_PROBABLY) - 1))) : json_null();
}

json_t *gp_report_use_text(const struct gp_report *report, uint32_t site)
{
    char text[GP_USE_WORDS];
    return report->used_for && report->used_for[site] ? json_string(gp_report_what(text, report, site, GP_KIND_NONE))
                                                      : json_null();
}

static json_t *report_leak(const struct gp_report *report, const struct gp_leak *leak, uint32_t rank)
{
    char evidence[GP_EVIDENCE_TEXT], because[GP_BECAUSE_TEXT];
    json_t *curve = json_array(),
           *row = json_pack("{s:I,s:I}", "rank", (json_int_t)rank, "site", (json_int_t)leak->site);
    if (!row || !curve) {
        json_decref(row);
        json_decref(curve);
        return NULL;
    }
    gp_report_add_place(report, row, leak->site);
    json_object_set_new(row, "device", gp_report_device_name(report, leak->device));
    json_object_set_new(row, "kind", json_string(gp_kind_name(leak->kind)));
    json_object_set_new(row, "live_bytes", json_integer(leak->live_bytes));
    json_object_set_new(row, "live_count", json_integer(leak->live_count));
    json_object_set_new(row, "bytes_per_step", json_real(leak->bytes_per_step));
    json_object_set_new(row, "confidence", json_real(leak->confidence));
    json_object_set_new(row, "bytes_per_second", json_real(leak->bytes_per_second));
    json_object_set_new(row, "grows_seconds", json_real((double)leak->grows_ns / 1e9));
    json_object_set_new(row, "allocated_bytes", json_integer(leak->taken_bytes));
    json_object_set_new(row, "freed_bytes", json_integer(leak->freed_bytes));
    json_object_set_new(row, "evidence", json_string(gp_report_evidence(leak, evidence)));
    json_object_set_new(row, "missing", gp_json_text(gp_report_missing(report)));
    json_object_set_new(row, "seconds_to_oom", gp_json_known_seconds(leak->seconds_to_oom));
    json_object_set_new(row, "oldest_seconds", json_real((double)leak->oldest_ns / 1e9));
    for (uint32_t k = 0; k <= leak->points; k++)
        json_array_append_new(curve, json_integer(leak->kept[k]));
    json_object_set_new(row, "live_bytes_at_bounds", curve);
    json_object_set_new(row, "grew", json_integer(report_grew(leak)));
    json_object_set_new(row, "chances", json_integer(leak->points));
    if (leak->doubt) {
        json_object_set_new(row, "if_steps_bytes_per_step", json_real(leak->bytes_per_step));
        json_object_set_new(row, "because",
                            json_string(gp_report_because(leak, gp_steps_word(report->steps), NULL, because)));
    }
    return row;
}

json_t *gp_report_suspects(const struct gp_report *report)
{
    const struct gp_leaks *leaks = report->leaks;
    json_t *list = json_array();
    for (uint32_t i = 0; i < leaks->count; i++)
        json_array_append_new(list, report_leak(report, &leaks->suspects[i], i + 1));
    return json_add_callers(report, list, true);
}

json_t *gp_report_candidates(const struct gp_report *report)
{
    const struct gp_leaks *leaks = report->leaks;
    json_t *list = json_array();
    for (uint32_t i = 0; i < leaks->candidates; i++)
        json_array_append_new(list, report_leak(report, &leaks->suspects[leaks->count + i], i + 1));
    return json_add_callers(report, list, true);
}

json_t *gp_report_leaks_json(const struct gp_report *report)
{
    const struct gp_leaks *leaks = report->leaks;
    char rhythm[GP_RHYTHM_TEXT];
    return json_pack("{s:s,s:I,s:s,s:s,s:s,s:f,s:s,s:f,s:s,s:s,s:o,s:o}", "schema", "gpuprof.leaks/1", "steps",
                     (json_int_t)leaks->steps, "step_source", gp_report_step_source(report), "step_found",
                     gp_steps_found(report->steps), "step_word", gp_steps_word(report->steps), "step_sure",
                     report->steps->sure, "step_name", report->steps->name, "step_seconds",
                     (double)report->steps->length_ns / 1e9, "step_rhythm", gp_report_rhythm(report, rhythm), "why",
                     leaks->why, "suspects", gp_report_suspects(report), "candidates", gp_report_candidates(report));
}

/* A document with one object per device. */
static json_t *json_devices(const struct gp_report *report, const char *schema,
                            json_t *part(const struct gp_report *report, uint32_t device))
{
    json_t *devices = json_array();
    for (uint32_t d = 0; d < report->recording->device_count; d++) {
        json_t *device = part(report, d);
        if (!device || json_object_set_new(device, "device", gp_report_device_name(report, d)) != 0 ||
            json_array_append_new(devices, device) != 0) {
            json_decref(devices);
            return NULL;
        }
    }
    return json_pack("{s:s,s:o}", "schema", schema, "devices", devices);
}

json_t *gp_report_parts(const struct gp_report *report, const struct gp_peak *peak)
{
    json_t *parts = json_array();
    for (uint32_t i = 0; i < peak->count; i++) {
        const struct gp_peak_part *part = &peak->parts[i];
        json_t *row = json_pack("{s:I,s:s,s:I,s:I}", "site", (json_int_t)part->site, "kind", gp_kind_name(part->kind),
                                "bytes", (json_int_t)part->bytes, "count", (json_int_t)part->count);
        if (row) {
            json_object_set_new(row, "use", gp_report_use(report, part->site));
            gp_report_add_place(report, row, part->site);
        }
        json_array_append_new(parts, row);
    }
    return json_add_callers(report, parts, true);
}

void gp_report_add_before(const struct gp_report *report, uint32_t d, json_t *object)
{
    const struct gp_recording *r = report->recording;
    struct gp_wire_before_device before = gp_rec_before_at(r, d, r->end_ns);
    gp_before_json(object, before.bytes, r->attached == GP_REC_ATTACHED_YES ? &before : NULL);
}

static json_t *json_peak(const struct gp_report *report, uint32_t device)
{
    const struct gp_peak *peak = report->devices[device].peak;
    json_t *object =
        json_pack("{s:I,s:I,s:s,s:o,s:o}", "time_ns", gp_report_since(report, peak->time_ns), "bytes",
                  (json_int_t)peak->bytes, "bound", gp_rec_bound_name(report->recording->devices[device].bound),
                  "parts", gp_report_parts(report, peak), "owners", gp_report_owners(report, device));
    if (object)
        gp_report_add_before(report, device, object);
    return object;
}

json_t *gp_report_peak_json(const struct gp_report *report)
{
    return json_devices(report, "gpuprof.peak/1", json_peak);
}

json_t *gp_report_churn_part(const struct gp_report *report, bool frames)
{
    const struct gp_churn *churn = report->churn;
    json_t *sites = json_array();
    for (uint32_t i = 0; i < churn->count && i < GP_CHURN_ROWS; i++) {
        const struct gp_churn_site *site = &churn->sites[i];
        json_t *row =
            json_pack("{s:I,s:I,s:f,s:I,s:I,s:I}", "site", (json_int_t)site->site, "pairs", (json_int_t)site->pairs,
                      "pairs_per_step", site->pairs_per_step, "bytes", (json_int_t)site->bytes, "mean_life_ns",
                      (json_int_t)site->mean_life_ns, "driver_ns", (json_int_t)site->driver_ns);
        if (row)
            gp_report_add_place(report, row, site->site);
        json_array_append_new(sites, row);
    }
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:f,s:I,s:I,s:o}", "step_word", gp_steps_word(report->steps), "pairs",
                     (json_int_t)churn->pairs, "driver_ns", (json_int_t)churn->driver_ns, "allocations",
                     (json_int_t)churn->allocations, "frees", (json_int_t)churn->frees, "pairs_per_step",
                     churn->pairs_per_step, "steps", (json_int_t)churn->steps, "sites_left_out",
                     (json_int_t)(churn->count > GP_CHURN_ROWS ? churn->count - GP_CHURN_ROWS : 0), "sites",
                     json_add_callers(report, sites, frames));
}

json_t *gp_report_churn_json(const struct gp_report *report)
{
    json_t *object = gp_report_churn_part(report, true);
    if (object)
        json_object_set_new(object, "schema", json_string("gpuprof.churn/1"));
    return object;
}

json_t *gp_report_fragmentation_part(const struct gp_report *report, uint32_t device)
{
    const struct gp_fragmentation *f = report->devices[device].fragmentation;
    json_t *points = json_array();
    for (uint32_t i = 0; i < f->count; i++) {
        const struct gp_fragment_point *point = &f->points[i];
        json_array_append_new(points,
                              json_pack("[I,I,I,I,o]", gp_report_since(report, point->time_ns),
                                        (json_int_t)point->reserved_bytes, (json_int_t)point->allocated_bytes,
                                        (json_int_t)point->requested_bytes, gp_json_known(point->largest_free_bytes)));
    }
    return json_pack("{s:f,s:f,s:f,s:b,s:o}", "utilisation", f->utilisation, "external", f->external, "internal",
                     f->internal, "has_segments", f->has_segments, "points", points);
}

json_t *gp_report_series(const struct gp_report *report, const struct gp_series *series)
{
    json_t *points = json_array();
    for (uint32_t i = 0; i < series->count; i++) {
        const struct gp_series_point *point = &series->points[i];
        json_array_append_new(points,
                              json_pack("[I,I,I,I]", gp_report_since(report, point->time_ns), (json_int_t)point->low,
                                        (json_int_t)point->high, (json_int_t)point->last));
    }
    return points;
}

static json_t *json_holders(const struct gp_report *report, const struct gp_holders *holders)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < holders->count && i < GP_HOLDER_ROWS; i++) {
        const struct gp_holder *holder = &holders->rows[i];
        json_t *row = json_pack("{s:I,s:I,s:I,s:I}", "site", (json_int_t)holder->site, "live_bytes",
                                (json_int_t)holder->live_bytes, "live_count", (json_int_t)holder->live_count,
                                "free_bytes", (json_int_t)holder->free_bytes);
        if (row)
            gp_report_add_place(report, row, holder->site);
        json_array_append_new(list, row);
    }
    return json_add_callers(report, list, true);
}

/* As in the document of a report, with the series and the sites that the document has beside this
 * part. */
static json_t *json_fragmentation(const struct gp_report *report, uint32_t device)
{
    const struct gp_report_device *row = &report->devices[device];
    json_t *object = gp_report_fragmentation_part(report, device);
    json_t *series =
        json_pack("{s:o,s:o,s:o}", "reserved", gp_report_series(report, row->reserved), "allocated",
                  gp_report_series(report, row->allocated), "requested", gp_report_series(report, row->requested));
    if (!object) {
        json_decref(series);
        return NULL;
    }
    json_object_set_new(object, "series", series);
    json_object_set_new(object, "sites_time_ns", json_integer(gp_report_since(report, row->holders_ns)));
    json_object_set_new(object, "sites", json_holders(report, row->holders));
    return object;
}

json_t *gp_report_fragmentation_json(const struct gp_report *report)
{
    return json_devices(report, "gpuprof.fragmentation/1", json_fragmentation);
}

json_t *gp_report_bill_part(const struct gp_report *report, uint32_t device)
{
    const struct gp_bill *bill = report->devices[device].bill;
    json_t *rows = json_array();
    for (uint32_t i = 0; i < bill->count; i++) {
        /* -1 alone is unknown: "untracked" is negative where an estimate was too high, and that is
         * shown. */
        bool unknown = bill->rows[i].bytes == -1;
        json_array_append_new(rows, json_pack("{s:s,s:o,s:b}", "what", bill->rows[i].what, "bytes",
                                              unknown ? json_null() : json_integer(bill->rows[i].bytes), "estimated",
                                              bill->rows[i].estimated));
    }
    return json_pack("{s:I,s:o,s:o}", "time_ns", gp_report_since(report, bill->time_ns), "process_bytes",
                     gp_json_known(bill->process_bytes), "rows", rows);
}

/* As in the document of a report, with the call sites that held the memory at that moment. */
static json_t *json_bill(const struct gp_report *report, uint32_t device)
{
    json_t *object = gp_report_bill_part(report, device);
    if (object)
        json_object_set_new(object, "sites", gp_report_parts(report, report->devices[device].held));
    return object;
}

json_t *gp_report_reconcile_json(const struct gp_report *report)
{
    return json_devices(report, "gpuprof.reconcile/1", json_bill);
}

const struct gp_frame_text **gp_report_callers(const struct gp_report *report)
{
    uint32_t count = report->recording->site_count;
    uint32_t *sites = calloc(count + 1ul, sizeof(*sites));
    const struct gp_frame_text **callers = calloc(count + 1ul, sizeof(*callers));
    for (uint32_t i = 0; sites && i < count; i++)
        sites[i] = i;
    if (sites && callers)
        gp_symbols_callers(report->symbols, sites, count, callers);
    free(sites);
    return callers;
}

/* Adds what gp_report_add_place and json_add_callers add to the rows of other documents. */
static void json_add_site(const struct gp_report *report, json_t *row, uint32_t site,
                          const struct gp_frame_text *caller)
{
    char label[192];
    gp_symbols_line(report->symbols, site, caller, NULL, label, sizeof(label));
    json_object_set_new(row, "name", json_string(label));
    json_object_set_new(row, "caller", json_caller(caller));
    json_object_set_new(row, "frames", gp_report_frames(report, site));
    gp_report_add_place(report, row, site);
}

json_t *gp_diff_json(const struct gp_diff *diff, const struct gp_report *const reports[2])
{
    json_t *rows = json_array();
    const struct gp_frame_text **callers[2] = {gp_report_callers(reports[0]), gp_report_callers(reports[1])};
    for (uint32_t i = 0; i < diff->count; i++) {
        const struct gp_diff_row *row = &diff->rows[i];
        int side = row->site[1] != GP_REC_NONE; /* the newer recording that has it */
        json_t *sites = json_pack("[o,o]", row->site[0] == GP_REC_NONE ? json_null() : json_integer(row->site[0]),
                                  row->site[1] == GP_REC_NONE ? json_null() : json_integer(row->site[1]));
        json_t *object = json_pack("{s:o,s:[I,I],s:[I,I],s:[I,I],s:[I,I]}", "site", sites, "most_bytes",
                                   (json_int_t)row->own_bytes[0], (json_int_t)row->own_bytes[1], "at_peak_bytes",
                                   (json_int_t)row->peak_bytes[0], (json_int_t)row->peak_bytes[1], "live_bytes",
                                   (json_int_t)row->live_bytes[0], (json_int_t)row->live_bytes[1], "calls",
                                   (json_int_t)row->calls[0], (json_int_t)row->calls[1]);
        if (object)
            json_add_site(reports[side], object, row->site[side],
                          callers[side] ? callers[side][row->site[side]] : NULL);
        json_array_append_new(rows, object);
    }
    free(callers[0]);
    free(callers[1]);
    return json_pack("{s:s,s:o}", "schema", "gpuprof.diff/1", "sites", rows);
}

/* Memory of other processes is in no sum, but it is all that a consumer of CUDA IPC may have. The size of one that was
 * closed at once is not known. */
void gp_text_imported(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    const struct gp_recording *r = report->recording;
    const struct gp_series *series = report->devices[device].kinds[GP_KIND_IMPORTED];
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
    int64_t high = 0;
    size_t unknown = 0;
    for (uint32_t i = 0; series && i < series->count; i++)
        high = series->points[i].high > high ? series->points[i].high : high;
    for (size_t i = 0; i < r->event_count; i++)
        unknown += r->events[i].type == GP_EVENT_ALLOC && r->events[i].kind == GP_KIND_IMPORTED &&
                   r->events[i].device == device && r->events[i].bytes == 0;
    if (high)
        fprintf(page->out, "  imported   peak %s; %s at the end: memory of other processes, in no sum of this page\n",
                gp_size_text(a, high), gp_size_text(b, series->points[series->count - 1].last));
    if (unknown)
        fprintf(page->out, "  imported   %zu block%s of other processes whose size is not known\n", unknown,
                unknown == 1 ? "" : "s");
}

/* A managed block may be larger than the GPU, and its pages lie where they were used last. */
void gp_text_managed(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    struct gp_kind_peak peak;
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], c[GP_SIZE_TEXT], label[256];
    if (!(report->devices[device].kinds_seen & 1u << GP_KIND_MANAGED) ||
        !gp_flow_kind_peak(report->flow, device, GP_KIND_MANAGED, &peak) || !peak.bytes)
        return;
    fprintf(page->out, "  managed    peak %s; %s at the end: virtual size, in no sum of this page\n",
            gp_size_text(a, peak.bytes), gp_size_text(b, peak.end_bytes));
    if (!peak.site)
        return;
    gp_symbols_line(report->symbols, peak.site, NULL, NULL, label, sizeof(label));
    fprintf(page->out, "             %s of it by %s\n", gp_size_text(c, peak.site_bytes), label);
}
