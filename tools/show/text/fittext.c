/* SPDX-License-Identifier: MIT
 * fittext.c: the answers of `gpuprof fit` as text and as JSON; see fittext.h. */
#include <analyze/analyze.h>
#include <analyze/fit.h>
#include <analyze/report.h>
#include <gpuprof/wire.h>
#include <jansson.h>
#include <read/recording/recording.h>
#include <show/text/fittext.h>
#include <show/text/reportparts.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <show/text/write.h>
#include <stdio.h>
#include <symbol/symbol.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GP_FIT_HELD 10u /* call sites of the text */

static const char *const fit_contexts[] = {[GP_FIT_ASSUMED] = "assumed",
                                           [GP_FIT_GIVEN] = "given",
                                           [GP_FIT_MEASURED] = "measured",
                                           [GP_FIT_ESTIMATED] = "estimated",
                                           [GP_FIT_SCALED] = "scaled"};
static const char *const fit_because[] = {
    [GP_FIT_ASSUMED] = "; --context sets it",
    [GP_FIT_GIVEN] = "",
    [GP_FIT_MEASURED] = "",
    [GP_FIT_ESTIMATED] = ": 2 KiB for each thread that the GPU can hold; --context sets it",
    [GP_FIT_SCALED] = ": as measured, and 2 KiB for each thread more or less that this GPU can hold"};
static const char *const fit_requests[] = {[GP_FIT_OF_DRIVER] = "driver",
                                           [GP_FIT_OF_CACHE] = "cache",
                                           [GP_FIT_OF_FRAMEWORK] = "framework",
                                           [GP_FIT_OF_OTHERS] = "segments"};

bool gp_fit_answer_fits(const struct gp_fit_answer *answer)
{
    for (uint32_t i = 0; i < answer->count; i++) {
        if (!answer->results[i].rows[0].fits)
            return false;
    }
    return true;
}

/* The device that needs the largest GPU: the sizes of the whole answer are its. */
static const struct gp_fit_result *fit_worst(const struct gp_fit_answer *answer)
{
    const struct gp_fit_result *worst = &answer->results[0];
    for (uint32_t i = 1; i < answer->count; i++) {
        if (answer->results[i].rows[0].smallest_bytes > worst->rows[0].smallest_bytes)
            worst = &answer->results[i];
    }
    return worst;
}

/* The device that fails first; NULL: all fit. */
static const struct gp_fit_result *fit_first(const struct gp_fit_answer *answer)
{
    const struct gp_fit_result *first = NULL;
    for (uint32_t i = 0; i < answer->count; i++) {
        const struct gp_fit_result *result = &answer->results[i];
        if (!result->rows[0].fits && (!first || result->fails_ns < first->fails_ns))
            first = result;
    }
    return first;
}

/* ---- where in the program ---------------------------------------------------------------------------------------- */

/* The number of the step, from 1; 0: outside of the steps. */
static uint32_t fit_step(const struct gp_report *report, uint64_t time_ns)
{
    const struct gp_steps *steps = report->steps;
    if (!steps || steps->source == GP_STEPS_TIME) /* not looked for: the program fits */
        return 0;
    for (uint32_t i = 0; i < steps->count; i++) {
        if (time_ns >= steps->bounds_ns[i] && time_ns < steps->bounds_ns[i + 1])
            return i + 1;
    }
    return 0;
}

/* The last mark before the event; NULL: none. */
static const char *fit_mark(const struct gp_report *report, uint32_t event)
{
    const struct gp_recording *recording = report->recording;
    for (size_t i = event == GP_REC_NONE ? 0 : event; i-- > 0;) {
        if (recording->events[i].type == GP_EVENT_MARK)
            return recording->strings + recording->events[i].bytes;
    }
    return NULL;
}

static uint32_t fit_event_site(const struct gp_report *report, uint32_t event)
{
    return event == GP_REC_NONE ? 0 : report->recording->events[event].site;
}

static uint32_t fit_site(const struct gp_report *report, const struct gp_fit_result *result)
{
    return fit_event_site(report, result->event);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static const char *fit_name(const struct gp_fit_row *row, char text[96])
{
    snprintf(text, 96, "%s%s%s", row->allocator, row->conf[0] ? " " : "", row->conf);
    return text;
}

static void text_failure(const struct gp_text_page *page, const struct gp_fit_answer *answer,
                         const struct gp_fit_result *result)
{
    const struct gp_report *report = answer->report;
    char asked[GP_SIZE_TEXT], left[GP_SIZE_TEXT], when[GP_SIZE_TEXT], label[256];
    uint32_t step = fit_step(report, result->fails_ns);
    const char *mark = fit_mark(report, result->event);
    if (!result->asked_bytes) {
        fprintf(page->out, "  no room is left for the program: %s\n",
                result->unexplained_bytes ? "contexts and memory that the replay cannot explain take all"
                                          : "the context takes all");
        return;
    }
    gp_symbols_line(report->symbols, fit_site(report, result), NULL, NULL, label, sizeof(label));
    fprintf(page->out, "  fails at %s", gp_seconds_text(when, (double)gp_report_since(report, result->fails_ns) / 1e9));
    if (step)
        fprintf(page->out, ", in %s %u of %u", gp_steps_word(report->steps), step, report->steps->count);
    if (mark)
        fprintf(page->out, ", after mark \"%s\"", mark);
    fprintf(page->out, "\n  asked: %s by %s; free: %s\n", gp_size_text(asked, (int64_t)result->asked_bytes), label,
            gp_size_text(left, (int64_t)result->free_bytes));
}

static void text_rows(const struct gp_text_page *page, const struct gp_fit_result *result)
{
    char peak[GP_SIZE_TEXT], smallest[GP_SIZE_TEXT], name[96];
    fprintf(page->out, "  %-36s %-4s %11s %11s\n", "allocator", "fits", "smallest", "peak");
    for (uint32_t i = 0; i < result->count; i++) {
        const struct gp_fit_row *row = &result->rows[i];
        fprintf(page->out, "  %-36s %-4s %11s %11s\n", fit_name(row, name), row->fits ? "yes" : "no",
                gp_size_text(smallest, (int64_t)row->smallest_bytes), gp_size_text(peak, (int64_t)row->peak_bytes));
    }
}

/* A program that gets what it was refused may go on to ask for more. */
static void text_refused(const struct gp_text_page *page, const struct gp_fit_answer *answer,
                         const struct gp_fit_result *result)
{
    char size[GP_SIZE_TEXT], label[256];
    if (!result->refused_requests)
        return;
    fprintf(page->out, "  %" PRIu32 " request%s of the recording got no memory, and nothing served %s later",
            result->refused_requests, result->refused_requests == 1 ? "" : "s",
            result->refused_requests == 1 ? "it" : "them");
    if (result->refused_bytes) {
        gp_symbols_line(answer->report->symbols, fit_event_site(answer->report, result->refused_event), NULL, NULL,
                        label, sizeof(label));
        fprintf(page->out, "%s %s by %s", result->refused_requests == 1 ? ":" : ". The largest:",
                gp_size_text(size, (int64_t)result->refused_bytes), label);
    }
    fputs("\n  The sizes are the least: what the program does when it gets memory is not in the recording\n",
          page->out);
    if (result->refused_context)
        fputs("  Among them was a context or the code of a kernel, whose size is not known\n", page->out);
}

static void text_assumed(const struct gp_text_page *page, const struct gp_fit_answer *answer,
                         const struct gp_fit_result *result)
{
    char size[GP_SIZE_TEXT];
    fprintf(page->out, "  includes a context of %s (%s%s)%s\n", gp_size_text(size, (int64_t)result->context_bytes),
            fit_contexts[result->context], fit_because[result->context],
            answer->question->tenants > 1 ? " for each tenant, and the peaks of all at once" : "");
    if (result->small_context_bytes < result->context_bytes)
        fprintf(page->out, "  of the smallest size it is %s: an eighth of so small a GPU\n",
                gp_size_text(size, (int64_t)result->small_context_bytes));
    if (result->unexplained_bytes)
        fprintf(page->out, "  and %s that the recorded program held beyond its replay (other streams, private pools)\n",
                gp_size_text(size, (int64_t)result->unexplained_bytes));
    if (result->requests == GP_FIT_OF_OTHERS)
        fprintf(page->out, "  the rules of its own allocator are not known: its segments stay as they were recorded\n");
    if (result->retried_requests)
        fprintf(page->out, "  %zu failed request%s of the recording had success when repeated: left out\n",
                result->retried_requests, result->retried_requests == 1 ? "" : "s");
    text_refused(page, answer, result);
}

static void text_device(const struct gp_text_page *page, const struct gp_fit_answer *answer,
                        const struct gp_fit_result *result)
{
    const struct gp_rec_device *device = &answer->report->recording->devices[result->device];
    const struct gp_fit_row *row = &result->rows[0];
    char gpu[GP_SIZE_TEXT], smallest[GP_SIZE_TEXT], step[GP_SIZE_TEXT], peak[GP_SIZE_TEXT], name[96], copies[32] = "";
    if (answer->question->tenants > 1)
        snprintf(copies, sizeof(copies), ", %u programs", answer->question->tenants);
    fprintf(page->out, "device %d: %s%s%s in %s%s%s (allocator %s%s)\n",
            device->ordinal >= 0 ? device->ordinal : device->index, gp_text_on(page, row->fits ? GP_GREEN : GP_RED),
            row->fits ? result->refused_requests ? "fits, as far as it was recorded," : "fits" : "does not fit",
            gp_text_on(page, GP_OFF), gp_size_text(gpu, (int64_t)answer->question->gpu_bytes),
            answer->question->gpu ? " of " : "", answer->question->gpu ? answer->question->gpu : "",
            fit_name(row, name), copies);
    if (!row->fits)
        text_failure(page, answer, result);
    const bool most = result->unexplained_bytes && result->requests == GP_FIT_OF_FRAMEWORK;
    fprintf(page->out, "  smallest size that fits: %s%s (in steps of %s); peak with plenty: %s\n",
            gp_rec_bound_text(device->bound | (most ? GP_REC_AT_MOST : 0) |
                              (result->refused_requests ? GP_REC_AT_LEAST : 0)),
            gp_size_text(smallest, (int64_t)row->smallest_bytes), gp_size_text(step, (int64_t)row->step_bytes),
            gp_size_text(peak, (int64_t)row->peak_bytes));
    if (row->by_chance)
        fputs("  it fits by chance: of the sizes below that one, some fit and larger ones do not\n", page->out);
    text_assumed(page, answer, result);
    if (result->count > 1)
        text_rows(page, result);
    fprintf(page->out, "  %s, %s:\n", row->fits ? "held at the peak" : "held then",
            gp_size_text(peak, result->held->bytes));
    gp_text_parts(page, answer->report, result->held, GP_FIT_HELD);
    struct gp_bill_peak_owners *owners = gp_bill_peak_owners(answer->report->recording, result->held);
    for (uint32_t i = 0; owners && owners->count > 1 && i < owners->count; i++)
        fprintf(page->out, "  %10s  %s\n", gp_size_text(peak, owners->rows[i].bytes), owners->rows[i].owner);
    free(owners);
    if (answer->report->devices[result->device].kinds_seen & 1u << GP_KIND_MANAGED)
        fputs("  not counted, because its pages may lie in the host's memory:\n", page->out);
    gp_text_managed(page, answer->report, result->device);
}

void gp_text_fit(const struct gp_text_page *page, const struct gp_fit_answer *answer)
{
    gp_text_warnings(page, answer->report);
    for (uint32_t i = 0; i < answer->count; i++) {
        if (i)
            fputc('\n', page->out);
        text_device(page, answer, &answer->results[i]);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *json_rows(const struct gp_fit_result *result)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < result->count; i++) {
        const struct gp_fit_row *row = &result->rows[i];
        json_array_append_new(
            rows, json_pack("{s:s,s:o,s:b,s:I,s:I,s:I}", "allocator", row->allocator, "conf", gp_json_text(row->conf),
                            "fits", (int)row->fits, "peak_bytes", (json_int_t)row->peak_bytes, "smallest_bytes",
                            (json_int_t)row->smallest_bytes, "step_bytes", (json_int_t)row->step_bytes));
    }
    return rows;
}

static json_t *json_failure(const struct gp_report *report, const struct gp_fit_result *result)
{
    uint32_t step = fit_step(report, result->fails_ns);
    if (result->rows[0].fits)
        return json_null();
    json_t *failure =
        json_pack("{s:I,s:I,s:I,s:I,s:o,s:o}", "time_ns", gp_report_since(report, result->fails_ns), "asked_bytes",
                  (json_int_t)result->asked_bytes, "free_bytes", (json_int_t)result->free_bytes, "site",
                  (json_int_t)fit_site(report, result), "step", gp_json_known(step ? (int64_t)step : -1), "mark",
                  gp_json_text(fit_mark(report, result->event)));
    if (failure)
        gp_report_add_place(report, failure, fit_site(report, result));
    return failure;
}

static json_t *json_device(const struct gp_fit_answer *answer, const struct gp_fit_result *result)
{
    const struct gp_report *report = answer->report;
    const struct gp_fit_row *row = &result->rows[0];
    return json_pack("{s:o,s:b,s:s,s:I,s:I,s:I,s:s,s:I,s:I,s:I,s:s,s:s,s:o,s:o,s:I,s:o,s:b,s:I,s:I,s:b}", "device",
                     gp_report_device_name(report, result->device), "fits", (int)row->fits, "bound",
                     gp_rec_bound_name(report->recording->devices[result->device].bound), "peak_bytes",
                     (json_int_t)row->peak_bytes, "smallest_bytes", (json_int_t)row->smallest_bytes, "step_bytes",
                     (json_int_t)row->step_bytes, "allocator", row->allocator, "requested_bytes",
                     (json_int_t)result->requested_bytes, "unexplained_bytes", (json_int_t)result->unexplained_bytes,
                     "context_bytes", (json_int_t)result->context_bytes, "context", fit_contexts[result->context],
                     "requests", fit_requests[result->requests], "fails", json_failure(report, result), "allocators",
                     json_rows(result), "held_ns", gp_report_since(report, result->held->time_ns), "held",
                     gp_report_parts(report, result->held), "at_least", (int)(result->refused_requests > 0),
                     "refused_requests", (json_int_t)result->refused_requests, "refused_bytes",
                     (json_int_t)result->refused_bytes, "by_chance", (int)row->by_chance);
}

json_t *gp_fit_json(const struct gp_fit_answer *answer)
{
    const struct gp_report *report = answer->report;
    const struct gp_fit_result *worst = fit_worst(answer), *first = fit_first(answer);
    const struct gp_fit_result *shown = first ? first : worst;
    json_t *devices = json_array();
    bool at_least = false;
    for (uint32_t i = 0; i < answer->count; i++) {
        at_least |= answer->results[i].refused_requests > 0;
        json_t *device = json_device(answer, &answer->results[i]);
        if (!device || json_array_append_new(devices, device) != 0) {
            json_decref(devices);
            return NULL;
        }
    }
    return json_pack("{s:s,s:b,s:s?,s:I,s:I,s:I,s:I,s:s,s:o,s:o,s:o,s:b}", "schema", "gpuprof.fit/1", "fits",
                     (int)gp_fit_answer_fits(answer), "gpu", answer->question->gpu, "gpu_bytes",
                     (json_int_t)answer->question->gpu_bytes, "tenants", (json_int_t)answer->question->tenants,
                     "peak_bytes", (json_int_t)worst->rows[0].peak_bytes, "smallest_bytes",
                     (json_int_t)worst->rows[0].smallest_bytes, "allocator", worst->rows[0].allocator, "fails_at_ns",
                     first ? json_integer(gp_report_since(report, first->fails_ns)) : json_null(), "held",
                     gp_report_parts(report, shown->held), "devices", devices, "at_least", (int)at_least);
}
