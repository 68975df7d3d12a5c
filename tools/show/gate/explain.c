/* SPDX-License-Identifier: MIT
 * explain.c: the answer of a recording in few words; see explain.h.
 */
#include <analyze/libraries.h>
#include <show/gate/explain.h>
#include <show/text/helps.h>
#include <show/text/reportparts.h>
#include <show/text/text.h>
#include <show/text/write.h>
#include <symbol/symbol.h>

#include <base/text.h>
#include <stdlib.h>
#include <string.h>

#define GP_EXPLAIN_NAME 96u
#define GP_EXPLAIN_ROWS 5u
/* A library that holds less than this share of the peak is not worth a sentence. */
#define GP_EXPLAIN_LIBRARY 0.05

struct explain {
    struct gp_report *report;
    const struct gp_report_device *device;
    uint32_t d;
    int64_t uses[GP_USES];
    double sures[GP_USES];
    bool who, what; /* known of most of the peak: the call sites, and the uses */
    json_t *helps, *doubts;
};

static json_t *explain_name(const struct gp_report *report, uint32_t site)
{
    char label[GP_EXPLAIN_NAME];
    gp_symbols_line(report->symbols, site, NULL, NULL, label, sizeof(label));
    return json_string(label);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* The GPU on which a request failed, if it has memory, else the one with the highest peak; false: no GPU has memory. */
static bool explain_device(struct explain *explain)
{
    const struct gp_recording *recording = explain->report->recording;
    uint32_t failed = gp_report_failure(recording).device;
    for (uint32_t d = 0; d < recording->device_count; d++) {
        const struct gp_report_device *device = &explain->report->devices[d];
        if (recording->devices[d].index == GP_WIRE_HOST || !device->peak || device->peak->bytes <= 0)
            continue;
        if (explain->device &&
            (explain->d == failed || (d != failed && explain->device->peak->bytes >= device->peak->bytes)))
            continue;
        explain->device = device;
        explain->d = d;
    }
    return explain->device;
}

static json_t *explain_who(struct explain *explain)
{
    const struct gp_peak *peak = explain->device->peak;
    json_t *list = json_array();
    int64_t unknown = 0;
    for (uint32_t i = 0; i < peak->count; i++) {
        const struct gp_peak_part *part = &peak->parts[i];
        if (!part->site)
            unknown += part->bytes;
        else if (json_array_size(list) < GP_EXPLAIN_ROWS)
            json_array_append_new(list, json_pack("{s:o,s:I,s:f}", "name", explain_name(explain->report, part->site),
                                                  "bytes", (json_int_t)part->bytes, "share",
                                                  (double)part->bytes / (double)peak->bytes));
    }
    explain->who = unknown <= peak->bytes / 100;
    const struct gp_recording *recording = explain->report->recording;
    if (!explain->who)
        json_array_append_new(explain->doubts,
                              json_sprintf("%.0f %% of the peak has no call site: %s",
                                           100.0 * (double)unknown / (double)peak->bytes,
                                           recording->from_rmm     ? "a log of RMM has no stacks"
                                           : recording->from_torch ? "the snapshot was made without stacks"
                                                                   : "record with --stacks=all"));
    return list;
}

static void explain_uses_doubt(struct explain *explain)
{
    int64_t bytes = explain->device->peak->bytes, plain = 0, unknown = explain->uses[GP_USE_UNKNOWN];
    for (int use = 0; use < GP_USES; use++)
        plain += explain->sures[use] >= GP_USE_PLAIN ? explain->uses[use] : 0;
    explain->what = plain >= bytes - bytes / 4;
    if (unknown > bytes / 4)
        json_array_append_new(explain->doubts, json_sprintf("what %.0f %% of the peak is for is unknown",
                                                            100.0 * (double)unknown / (double)bytes));
}

/* How sure each of them is is in *sures. */
static json_t *explain_uses(struct explain *explain, json_t **sures)
{
    struct gp_report_uses uses = {0};
    json_t *object = json_object();
    *sures = json_object();
    if (!gp_report_uses_find(explain->report, &uses)) {
        gp_report_uses_free(&uses);
        json_decref(object);
        return NULL;
    }
    const struct gp_use_table *table = uses.uses[explain->d];
    for (uint32_t i = 0; table && i < GP_USE_RULES; i++)
        if (table->rows[i].count && table->rows[i].use < GP_USES)
            explain->uses[table->rows[i].use] += table->rows[i].at_peak_bytes;
    for (int use = 0; table && use < GP_USES; use++) {
        explain->sures[use] = gp_use_sure(table, (enum gp_use)use);
        if (explain->uses[use] <= 0)
            continue;
        json_object_set_new(object, gp_use_name((enum gp_use)use), json_integer(explain->uses[use]));
        if (explain->sures[use] > 0)
            json_object_set_new(*sures, gp_use_name((enum gp_use)use), json_real(explain->sures[use]));
    }
    explain->helps = gp_report_helps(explain->report, explain->d, table);
    explain_uses_doubt(explain);
    gp_report_uses_free(&uses);
    return object;
}

static json_t *explain_grows(struct explain *explain)
{
    const struct gp_leaks *leaks = explain->report->leaks;
    json_t *list = json_array();
    for (uint32_t i = 0; i < leaks->count && i < 2; i++) {
        const struct gp_leak *leak = &leaks->suspects[i];
        json_array_append_new(
            list, json_pack("{s:o,s:s,s:f,s:f,s:o}", "name", explain_name(explain->report, leak->site), "step_word",
                            gp_steps_word(explain->report->steps), "bytes_per_step", leak->bytes_per_step, "confidence",
                            leak->confidence, "seconds_to_oom", gp_json_known_seconds(leak->seconds_to_oom)));
    }
    return list;
}

static json_t *explain_may_grow(struct explain *explain)
{
    const struct gp_leaks *leaks = explain->report->leaks;
    char because[GP_BECAUSE_TEXT];
    json_t *list = json_array();
    for (uint32_t i = 0; i < leaks->candidates && i < 2; i++) {
        const struct gp_leak *leak = &leaks->suspects[leaks->count + i];
        json_array_append_new(
            list, json_pack("{s:o,s:f,s:f,s:s}", "name", explain_name(explain->report, leak->site),
                            "if_steps_bytes_per_step", leak->bytes_per_step, "confidence", leak->confidence, "because",
                            gp_report_because(leak, gp_steps_word(explain->report->steps), NULL, because)));
    }
    return list;
}

static int64_t explain_reserved(const struct explain *explain)
{
    int64_t most = 0;
    for (uint32_t i = 0; explain->device->reserved && i < explain->device->reserved->count; i++)
        if (explain->device->reserved->points[i].high > most)
            most = explain->device->reserved->points[i].high;
    return most;
}

static void explain_doubts(struct explain *explain)
{
    const struct gp_recording *recording = explain->report->recording;
    if (!recording->complete)
        json_array_append_new(explain->doubts, json_sprintf("the recording ends where its writer was killed"));
    if (gp_rec_missing(recording) || recording->damaged_blocks || recording->ended_early)
        json_array_append_new(explain->doubts, json_sprintf("events are missing: sums are lower bounds"));
    if (recording->unseen_blocks || recording->unfreed_blocks)
        json_array_append_new(
            explain->doubts,
            json_sprintf("the trace lacks allocations or frees of %llu blocks: each counts only where it is certain",
                         (unsigned long long)(recording->unseen_blocks + recording->unfreed_blocks)));
    else if (recording->from_torch && explain->device && recording->devices[explain->d].bound)
        json_array_append_new(
            explain->doubts,
            json_sprintf("the trace does not have all of the program: more may have been held before it"));
    if (recording->from_pprof)
        json_array_append_new(
            explain->doubts,
            json_sprintf(
                "a heap profile is one moment: what was held before, and what grows, it does not say ('gpuprof "
                "diff' compares two)"));
    else if (explain->report->steps->source == GP_STEPS_TIME)
        json_array_append_new(explain->doubts, json_sprintf("no steps were found: whether memory grows is a guess"));
    else if (explain->report->leaks->steps < 4)
        json_array_append_new(explain->doubts,
                              json_sprintf("%u %s %s too few to see growth", explain->report->leaks->steps,
                                           gp_steps_words(explain->report->steps, explain->report->leaks->steps),
                                           explain->report->leaks->steps == 1 ? "is" : "are"));
    else if (!gp_steps_are_steps(explain->report->steps))
        json_array_append_new(explain->doubts, json_sprintf("what repeats may be parts of a step, which is not known"));
    if (explain->report->leaks->candidates && !explain->report->leaks->count)
        json_array_append_new(
            explain->doubts,
            json_sprintf("what may grow is known if the program marks its steps (gpuprof_mark, NVTX)"));
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static json_t *explain_failed(const struct gp_report *report)
{
    const struct gp_report_failure failure = gp_report_failure(report->recording);
    if (!failure.count)
        return json_null();
    return json_pack("{s:I,s:o,s:o,s:f,s:o,s:I}", "asked_bytes", (json_int_t)(failure.asked_bytes & INT64_MAX),
                     "free_bytes", gp_json_known(failure.free_bytes), "device",
                     failure.device == GP_REC_NONE ? json_null() : gp_report_device_name(report, failure.device),
                     "seconds", (double)gp_report_since(report, failure.time_ns) / 1e9, "name",
                     failure.site ? explain_name(report, failure.site) : json_null(), "count",
                     (json_int_t)failure.count);
}

/* What the answer is sure of, and in *others what it is not sure of. */
static json_t *explain_sure(const struct explain *explain, json_t **others)
{
    const struct gp_recording *recording = explain->report->recording;
    const struct gp_leaks *leaks = explain->report->leaks;
    const struct gp_steps *steps = explain->report->steps;
    /* A suspect is as sure as its confidence says, which is printed; that nothing grows is known of steps alone. */
    const bool grows = leaks->count ? leaks->suspects[0].confidence >= GP_USE_PLAIN
                                    : steps->source != GP_STEPS_TIME && leaks->steps >= 4 && gp_steps_are_steps(steps);
    const struct {
        const char *what;
        bool sure;
    } parts[] = {{"the peak", recording->complete && !gp_rec_missing(recording) && !recording->damaged_blocks &&
                                  !recording->ended_early && !recording->devices[explain->d].bound},
                 {"who held it", explain->who},
                 {"what it was for", explain->what},
                 {"what grows", grows}};
    json_t *list = json_array();
    *others = json_array();
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        json_array_append_new(parts[i].sure ? list : *others, json_string(parts[i].what));
    return list;
}

/* What libraries that hold much of the peak do with memory. */
static json_t *explain_libraries(const struct explain *explain)
{
    const struct gp_peak *peak = explain->device->peak;
    int64_t bytes[GP_LIBRARIES];
    gp_library_bytes(explain->report->recording, peak, bytes);
    for (uint32_t i = 0; i < GP_LIBRARIES; i++)
        bytes[i] = (double)bytes[i] < GP_EXPLAIN_LIBRARY * (double)peak->bytes ? 0 : bytes[i];
    return gp_libraries_json(bytes);
}

static json_t *explain_object(struct explain *explain)
{
    const struct gp_report *report = explain->report;
    const struct gp_recording *recording = report->recording;
    const struct gp_peak *peak = explain->device->peak;
    const struct gp_series *allocated = explain->device->allocated;
    int64_t reserved = explain_reserved(explain);
    json_t *sures, *not_sure, *who = explain_who(explain), *uses = explain_uses(explain, &sures),
                              *grows = explain_grows(explain);
    explain_doubts(explain);
    json_t *sure = explain_sure(explain, &not_sure);
    bool all = !json_array_size(explain->doubts) && !json_array_size(not_sure);
    char command[GP_EXPLAIN_NAME];
    gp_text_clean(command, sizeof(command), recording->command_line[0] ? recording->command_line : recording->comm,
                  SIZE_MAX);
    struct gp_kind_peak managed = {0};
    if (explain->device->kinds_seen & 1u << GP_KIND_MANAGED)
        gp_flow_kind_peak(report->flow, explain->d, GP_KIND_MANAGED, &managed);
    json_t *object = json_pack(
        "{s:s,s:o,s:f,s:o,s:I,s:s,s:I,s:I,s:o,s:f,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:O,s:s,s:o,s:o,s:O}", "schema",
        "gpuprof.explain/1", "command", gp_json_text(command), "seconds",
        (double)(recording->end_ns - recording->begin_ns) / 1e9, "device", gp_report_device_name(report, explain->d),
        "peak_bytes", (json_int_t)peak->bytes, "bound", gp_rec_bound_name(recording->devices[explain->d].bound),
        "end_bytes", (json_int_t)(allocated && allocated->count ? allocated->points[allocated->count - 1].last : 0),
        "reserved_peak_bytes", (json_int_t)reserved, "total_bytes",
        gp_json_known(recording->devices[explain->d].total_bytes), "peak_seconds",
        (double)gp_report_since(report, peak->time_ns) / 1e9, "who", who, "uses", uses, "uses_sure", sures, "libraries",
        explain_libraries(explain), "grows", grows, "may_grow", explain_may_grow(explain), "failed",
        explain_failed(report), "helps", explain->helps, "sure", all ? "yes" : "partly", "sure_of", sure, "not_sure_of",
        not_sure, "doubts", explain->doubts);
    if (managed.bytes)
        json_object_set_new(object, "managed_peak_bytes", json_integer(managed.bytes));
    if (managed.site)
        json_object_set_new(object, "managed_name", explain_name(report, managed.site));
    return object;
}

/* Leaves the smallest rows out until it fits. */
static void explain_fit(json_t *object)
{
    for (unsigned tries = 0; tries < 4 * GP_EXPLAIN_ROWS; tries++) {
        char *text = json_dumps(object, JSON_INDENT(1));
        bool fits = !text || strlen(text) < GP_EXPLAIN_BYTES;
        free(text);
        if (fits)
            return;
        json_t *who = json_object_get(object, "who"), *longest = who;
        static const char *const others[] = {"libraries", "helps", "doubts", "grows", "may_grow"};
        for (size_t i = 0; i < 5 && json_array_size(longest) <= (longest == who ? 2 : 1); i++)
            longest = json_object_get(object, others[i]);
        if (json_array_size(longest) <= 1)
            longest = who;
        json_array_remove(longest, json_array_size(longest) - 1);
    }
}

json_t *gp_explain_json(struct gp_report *report)
{
    struct explain explain = {.report = report, .doubts = json_array()};
    json_t *object = NULL;
    if (gp_report_run(report, GP_REPORT_PEAK | GP_REPORT_LEAKS | GP_REPORT_SERIES | GP_REPORT_FRAGMENTATION,
                      GP_DETAIL_SUMMARY) == 0) {
        if (explain_device(&explain)) {
            object = explain_object(&explain);
        } else {
            explain_doubts(&explain);
            object = json_pack("{s:s,s:I,s:o,s:s,s:O}", "schema", "gpuprof.explain/1", "peak_bytes", (json_int_t)0,
                               "failed", explain_failed(report), "sure",
                               json_array_size(explain.doubts) ? "partly" : "yes", "doubts", explain.doubts);
        }
        if (object)
            explain_fit(object);
    }
    json_decref(explain.helps);
    json_decref(explain.doubts);
    return object;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void print_list(FILE *out, const char *before, const json_t *list)
{
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
        fprintf(out, "%s%s%s", i ? "; " : before, json_string_value(item), i + 1 == json_array_size(list) ? ".\n" : "");
}

/* Nothing, where no use is known. */
static void print_uses(FILE *out, const json_t *explained)
{
    const json_t *uses = json_object_get(explained, "uses"), *sures = json_object_get(explained, "uses_sure");
    char size[GP_SIZE_TEXT], words[GP_USE_WORDS];
    bool known = false, begun = false;
    for (int use = 0; use < GP_USE_UNKNOWN; use++)
        known |= json_object_get(uses, gp_use_name((enum gp_use)use)) != NULL;
    for (int use = 0; known && use < GP_USES; use++) {
        const char *key = gp_use_name((enum gp_use)use);
        const json_t *bytes = json_object_get(uses, key);
        if (!bytes)
            continue;
        fprintf(out, "%s%s %s", begun ? ", " : "For: ",
                gp_use_words(words, (enum gp_use)use, json_number_value(json_object_get(sures, key))),
                gp_size_text(size, json_integer_value(bytes)));
        begun = true;
    }
    fputs(begun ? ".\n" : "", out);
}

/* "of A, B; not of C: why." */
static void print_sure(FILE *out, const json_t *explained)
{
    static const char *const keys[] = {"sure_of", "not_sure_of"}, *const before[] = {"Sure of: ", "Not sure of: "};
    const json_t *item;
    size_t i;
    for (int k = 0; k < 2; k++) {
        const json_t *list = json_object_get(explained, keys[k]);
        json_array_foreach(list, i, item) fprintf(out, "%s%s%s", i ? ", " : before[k], json_string_value(item),
                                                  i + 1 == json_array_size(list) ? ".\n" : "");
    }
    print_list(out, "Because: ", json_object_get(explained, "doubts"));
}

static void print_who(FILE *out, const json_t *explained)
{
    char size[GP_SIZE_TEXT];
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(explained, "who"), i, row)
        fprintf(out, "%s%s %s (%.0f %%)%s", i ? ", " : "Who: ", text_of(row, "name"),
                gp_size_text(size, number(row, "bytes")), 100 * json_number_value(json_object_get(row, "share")),
                i + 1 == json_array_size(json_object_get(explained, "who")) ? ".\n" : "");
    print_uses(out, explained);
    char text[GP_LIBRARY_TEXT];
    json_array_foreach(json_object_get(explained, "libraries"), i, row)
        fprintf(out, "%s%s", i ? "; " : "Libraries: ", gp_library_line(text, row));
    fputs(i ? ".\n" : "", out);
}

static const char *print_bound(const json_t *explained)
{
    uint8_t bound = GP_REC_ABOUT;
    while (bound && strcmp(gp_rec_bound_name(bound), text_of(explained, "bound")) != 0)
        bound--;
    return gp_rec_bound_text(bound);
}

static void print_may_grow(FILE *out, const json_t *explained, size_t grows)
{
    const json_t *row, *list = json_object_get(explained, "may_grow");
    size_t i;
    json_array_foreach(list, i, row)
        fprintf(out, "May grow: %s, %.0f %% sure: %s.\n", text_of(row, "name"),
                100 * json_number_value(json_object_get(row, "confidence")), text_of(row, "because"));
    if (!json_is_array(list) || i || grows)
        return;
    bool sure = false;
    json_array_foreach(json_object_get(explained, "sure_of"), i, row) sure |=
        strcmp(json_string_value(row), "what grows") == 0;
    fputs(sure ? "Grows: nothing that was seen.\n" : "Grows: not known.\n", out);
}

/* "Failed: 2 GiB asked on device 1 after 3 s by NAME, with 1 GiB free." */
static void print_failed(FILE *out, const json_t *failed)
{
    const json_t *device = json_object_get(failed, "device");
    char size[GP_SIZE_TEXT], time[GP_SIZE_TEXT];
    if (!json_is_object(failed))
        return;
    if (number(failed, "asked_bytes") > 0)
        fprintf(out, "Failed: a request for %s", gp_size_text(size, number(failed, "asked_bytes")));
    else
        fprintf(out, "Failed: a call without a size");
    if (json_is_integer(device))
        fprintf(out, " on device %d", (int)json_integer_value(device));
    fprintf(out, " after %s", gp_seconds_text(time, json_number_value(json_object_get(failed, "seconds"))));
    if (text_of(failed, "name")[0])
        fprintf(out, " by %s", text_of(failed, "name"));
    if (number(failed, "free_bytes") >= 0)
        fprintf(out, ", with %s free", gp_size_text(size, number(failed, "free_bytes")));
    if (number(failed, "count") > 1)
        fprintf(out, "; the last of %d", (int)number(failed, "count"));
    fputs(".\n", out);
}

bool gp_explain_print(FILE *out, const json_t *explained)
{
    char size[GP_SIZE_TEXT], other[GP_SIZE_TEXT], time[GP_SIZE_TEXT];
    const json_t *row;
    size_t i;
    if (!explained)
        return false;
    if (number(explained, "peak_bytes") <= 0) {
        fprintf(out, "No memory of a GPU was allocated.\n");
    } else {
        bool total = number(explained, "total_bytes") >= 0;
        fprintf(out, "%s: the peak is %s%s%s%s on device %d after %s; ", text_of(explained, "command"),
                print_bound(explained), gp_size_text(size, number(explained, "peak_bytes")), total ? " of " : "",
                total ? gp_size_text(other, number(explained, "total_bytes")) : "", (int)number(explained, "device"),
                gp_seconds_text(time, json_number_value(json_object_get(explained, "peak_seconds"))));
        fprintf(out, "reserved %s%s; at the end %s.\n", print_bound(explained),
                gp_size_text(size, number(explained, "reserved_peak_bytes")),
                gp_size_text(other, number(explained, "end_bytes")));
    }
    if (number(explained, "managed_peak_bytes") > 0)
        fprintf(out, "Not in it: managed memory of at most %s (virtual size)%s%s.\n",
                gp_size_text(size, number(explained, "managed_peak_bytes")),
                text_of(explained, "managed_name")[0] ? ", most of it by " : "", text_of(explained, "managed_name"));
    print_failed(out, json_object_get(explained, "failed"));
    print_who(out, explained);
    json_array_foreach(json_object_get(explained, "grows"), i, row)
        fprintf(out, "Grows: %s by %s per %s, %.0f %% sure.\n", text_of(row, "name"),
                gp_size_text(size, (int64_t)json_number_value(json_object_get(row, "bytes_per_step"))),
                text_of(row, "step_word"), 100 * json_number_value(json_object_get(row, "confidence")));
    print_may_grow(out, explained, i);
    print_list(out, "Would help: ", json_object_get(explained, "helps"));
    print_sure(out, explained);
    return true;
}
