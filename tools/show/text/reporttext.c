/* SPDX-License-Identifier: MIT
 * reporttext.c: the results of the analyses as text for a terminal; see text.h.  Numbers
 * are in columns on the left.  Names come last on a line and are cut to the width, so wide letters
 * in a name cannot shift a column.
 */
#include <analyze/analyze.h>
#include <analyze/forecast.h>
#include <analyze/libraries.h>
#include <analyze/report.h>
#include <base/text.h>
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <show/text/forecast.h>
#include <show/text/reportparts.h>
#include <show/text/stats.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <show/text/write.h>
#include <stdio.h>
#include <symbol/symbol.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Rows of half a screen.  Tables show twice as many. */
#define GP_PAGE_ROWS 15u
/* Below this width, a line of numbers has no room for a bar and a name. */
#define GP_PAGE_NARROW 80
/* Frames of a stack that the option --callers prints. */
#define GP_PAGE_FRAMES 32u

/* The sites of a table, each with the frames that distinguish it from sites of the same name. */
struct gp_page_names {
    uint32_t count, sites[GP_PAGE_ROWS * 2 + 1];
    const struct gp_frame_text *callers[GP_PAGE_ROWS * 2 + 1], *callees[GP_PAGE_ROWS * 2 + 1];
};

static void page_compare(struct gp_page_names *names, const struct gp_report *report)
{
    gp_symbols_callers(report->symbols, names->sites, names->count, names->callers);
    gp_symbols_callees(report->symbols, names->sites, names->count, names->callees);
}

static void page_site(const struct gp_text_page *page, const struct gp_report *report,
                      const struct gp_page_names *names, uint32_t i, int used)
{
    gp_text_site(page, report, names->sites[i], names->callers[i], names->callees[i], used);
}

static double page_since(const struct gp_report *report, uint64_t time_ns)
{
    uint64_t begin = report->recording->begin_ns;
    return time_ns > begin ? (double)(time_ns - begin) / 1e9 : 0;
}

static void page_device(const struct gp_text_page *page, const struct gp_report *report, uint32_t device, bool blank)
{
    const struct gp_rec_device *row = &report->recording->devices[device];
    char line[256], size[GP_SIZE_TEXT];
    if (row->index == GP_WIRE_HOST)
        snprintf(line, sizeof(line), "%s",
                 report->recording->from_pprof ? "host" : "host (pinned and registered memory)");
    else
        snprintf(line, sizeof(line), "device %d  %s%s%s", row->ordinal >= 0 ? row->ordinal : row->index,
                 row->name[0] ? row->name : "(name unknown)", row->total_bytes >= 0 ? "  " : "",
                 row->total_bytes >= 0 ? gp_size_text(size, row->total_bytes) : "");
    gp_text_heading(page, line, blank);
}

/* Tells why events could not be written, and where the recorded time ends for that. */
static void page_unwritten(const struct gp_text_page *page, const struct gp_report *report, const char *note)
{
    const struct gp_recording *r = report->recording;
    char when[GP_SIZE_TEXT], span[GP_SIZE_TEXT];
    if (!r->write_error || !r->unwritten)
        return;
    gp_seconds_text(when, page_since(report, r->ended_early ? r->end_ns : r->write_error_ns));
    gp_seconds_text(span, page_since(report, r->stopped_ns));
    if (r->ended_early && !r->complete) /* it is unknown how many followed */
        fprintf(page->out, "%sends at %s: the file could not be written: %s; all later events are missing%s\n", note,
                when, strerror(r->write_error), gp_text_on(page, GP_OFF));
    else if (r->ended_early)
        fprintf(page->out,
                "%sends at %s of %s: the file could not be written: %s; the last %" PRIu64 " events are missing%s\n",
                note, when, span, strerror(r->write_error), r->unwritten, gp_text_on(page, GP_OFF));
    else
        fprintf(page->out, "%sfrom %s on, %" PRIu64 " events could not be written: %s%s\n", note, when, r->unwritten,
                strerror(r->write_error), gp_text_on(page, GP_OFF));
}

static bool page_allocates(const struct gp_recording *r)
{
    bool is = r->baseline_count > 0;
    for (size_t i = 0; !is && i < r->event_count; i++)
        is = r->events[i].type == GP_EVENT_ALLOC && r->events[i].kind != GP_KIND_IMPORTED; /* never has a stack */
    return is;
}

bool gp_text_warnings(const struct gp_text_page *page, const struct gp_report *report)
{
    const struct gp_recording *r = report->recording;
    const char *off = gp_text_on(page, GP_OFF);
    char note[4352], file[4096] = "";
    if (page->named && report->file)
        gp_text_clean(file, sizeof(file), report->file, strlen(report->file));
    snprintf(note, sizeof(note), "%snote: %s%s", gp_text_on(page, GP_RED), file, file[0] ? ": " : "");
    if (!r->complete && !r->ended_early)
        fprintf(page->out, "%sthe recording is incomplete: it ends where its writer was stopped%s\n", note, off);
    if (r->damaged_blocks)
        fprintf(page->out, "%s%" PRIu64 " damaged part%s of the file %s skipped%s\n", note, r->damaged_blocks,
                gp_text_plural(r->damaged_blocks), r->damaged_blocks == 1 ? "was" : "were", off);
    page_unwritten(page, report, note);
    if (gp_rec_missing(r))
        fprintf(page->out,
                "%s%" PRIu64 " of %" PRIu64 " events were dropped: sums are estimates, and a block whose free is "
                "missing looks live%s\n",
                note, gp_rec_missing(r), r->tried, off);
    gp_text_before(page, report->recording, note);
    bool nameless = r->site_count <= 1 && page_allocates(r);
    if (nameless && r->from_torch)
        fprintf(page->out,
                "%sthe snapshot has no stacks, so call sites have no names: see 'context' and 'stacks' of "
                "torch.cuda.memory._record_memory_history%s\n",
                note, off);
    else if (nameless && r->from_rmm)
        fprintf(page->out, "%sa log of RMM has no stacks, so call sites have no names%s\n", note, off);
    else if (nameless)
        fprintf(page->out,
                "%srecorded without stacks, so call sites have no names: start the program with 'gpuprof run "
                "--stacks=all', or switch them on with 'gpuprof stacks'%s\n",
                note, off);
    return !r->complete || r->damaged_blocks || r->dropped || r->before_blocks || r->unseen_blocks ||
           r->unfreed_blocks || r->torch_unknown || nameless;
}

/* True: no device has anything to show, which a line now says. */
static bool page_empty(const struct gp_text_page *page, const struct gp_report *report)
{
    for (uint32_t d = 0; d < report->recording->device_count; d++)
        if (report->devices[d].used)
            return false;
    fputs("no memory was held or allocated in the recorded time\n", page->out);
    if (!report->recording->from_torch && !report->recording->from_rmm)
        fputs("processes that it started under 'gpuprof run' have their own recordings: NAME.PID.gpuprof\n", page->out);
    return true;
}

/* Prints the notes, then one part under the heading of each device that has something to show. */
static void page_devices(const struct gp_text_page *page, const struct gp_report *report,
                         void part(const struct gp_text_page *page, const struct gp_report *report, uint32_t device))
{
    bool blank = gp_text_warnings(page, report);
    if (page_empty(page, report))
        return;
    for (uint32_t d = 0; d < report->recording->device_count; d++) {
        if (!report->devices[d].used)
            continue;
        page_device(page, report, d, blank);
        part(page, report, d);
        blank = true;
    }
}

/* ---- peak ------------------------------------------------------------------------------------------------------- */

static int page_by_bytes(const void *one, const void *other)
{
    const struct gp_peak_part *a = one, *b = other;
    return a->bytes != b->bytes ? (a->bytes < b->bytes ? 1 : -1) : GP_ORDER(a->site, b->site);
}

/* What makes parts one row: one line, one operation, one kind, one owner and one use. */
static uint64_t page_row_key(const struct gp_report *report, const struct gp_peak_part *part)
{
    char owner[GP_SITE_OWNER];
    uint64_t use = report->used_for ? report->used_for[part->site] : 0;
    gp_bill_site_owner(report->recording, part->site, owner);
    return gp_hash_of_number((uint64_t)gp_symbols_row(report->symbols, part->site) << 16 | use << 8 | part->kind) ^
           gp_hash_of_text(owner);
}

/* The parts, those of one row added up, the largest first; free() it. NULL: out of memory. */
static struct gp_peak *page_rows(const struct gp_report *report, const struct gp_peak *peak)
{
    struct gp_peak *merged = calloc(1, sizeof(*merged) + (peak->count + 1ul) * sizeof(merged->parts[0]));
    struct gp_hash known = {0};
    for (uint32_t i = 0; merged && i < peak->count; i++) {
        const struct gp_peak_part *part = &peak->parts[i];
        bool added = true;
        const uint32_t *at =
            gp_hash_add(&known, gp_hash_of_number(page_row_key(report, part)), NULL, NULL, merged->count, &added);
        if (!at || added) {
            merged->parts[merged->count++] = *part;
            continue;
        }
        merged->parts[*at].bytes += part->bytes;
        merged->parts[*at].count += part->count;
    }
    gp_hash_free(&known);
    if (merged)
        qsort(merged->parts, merged->count, sizeof(merged->parts[0]), page_by_bytes);
    return merged;
}

void gp_text_parts(const struct gp_text_page *page, const struct gp_report *report, const struct gp_peak *peak,
                   uint32_t rows)
{
    rows = rows < GP_PAGE_ROWS * 2 ? rows : GP_PAGE_ROWS * 2;
    struct gp_peak *merged = page_rows(report, peak);
    if (!merged)
        return;
    uint32_t shown = merged->count <= rows + 1 ? merged->count : rows; /* a line "1 more" would be no shorter */
    bool narrow = gp_text_width(page) < GP_PAGE_NARROW;
    int64_t rest = peak->bytes;
    char size[GP_SIZE_TEXT], words[GP_USE_WORDS];
    struct gp_page_names names = {.count = shown};
    int what = 10; /* columns */
    for (uint32_t i = 0; i < shown; i++) {
        names.sites[i] = merged->parts[i].site;
        GP_RAISE(what, (int)strlen(gp_report_what(words, report, names.sites[i], merged->parts[i].kind)));
    }
    page_compare(&names, report);
    for (uint32_t i = 0; i < shown; i++) {
        const struct gp_peak_part *part = &merged->parts[i];
        double share = peak->bytes > 0 ? (double)part->bytes / (double)peak->bytes : 0;
        fprintf(page->out, "  %10s %5.1f %%  ", gp_size_text(size, part->bytes), share * 100);
        if (!narrow)
            gp_text_bar(page, share);
        fprintf(page->out, " %7" PRId64 " x %-*s ", part->count, what,
                gp_report_what(words, report, part->site, part->kind));
        page_site(page, report, &names, i, (narrow ? 35 : 47) + what);
        fputc('\n', page->out);
        rest -= part->bytes;
    }
    if (shown < merged->count)
        fprintf(page->out, "  %10s %5.1f %%  %s%u more sites: use --json to list them%s\n", gp_size_text(size, rest),
                peak->bytes > 0 ? 100.0 * (double)rest / (double)peak->bytes : 0, gp_text_on(page, GP_DIM),
                merged->count - shown, gp_text_on(page, GP_OFF));
    free(merged);
}

/* Prints nothing where no stack says who asked for the memory. */
static void page_owner_rows(const struct gp_text_page *page, const struct gp_bill_peak_owners *owners, int64_t bytes)
{
    char size[GP_SIZE_TEXT];
    if (owners->count == 0 || (owners->count == 1 && strcmp(owners->rows[0].owner, "unknown") == 0))
        return;
    fprintf(page->out, "  By owner\n");
    for (uint32_t i = 0; i < owners->count && i < GP_PAGE_ROWS * 2; i++) {
        const struct gp_peak_owner *row = &owners->rows[i];
        fprintf(page->out, "  %10s %5.1f %%   %s\n", gp_size_text(size, row->bytes),
                bytes > 0 ? 100.0 * (double)row->bytes / (double)bytes : 0, row->owner);
    }
}

static void page_owners(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    page_owner_rows(page, report->devices[device].owners, report->devices[device].peak->bytes);
}

/* What libraries that hold some of the peak do with memory. */
static void page_libraries(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    int64_t bytes[GP_LIBRARIES];
    char text[GP_LIBRARY_TEXT];
    size_t i;
    json_t *row;
    gp_library_bytes(report->recording, report->devices[device].peak, bytes);
    json_t *rows = gp_libraries_json(bytes);
    json_array_foreach(rows, i, row)
    {
        fputs("  ", page->out);
        gp_text_phrases(page, gp_library_line(text, row), 4);
        fputc('\n', page->out);
    }
    json_decref(rows);
}

/* The largest time of sleep with its table, the others with a line. */
static void page_sleeps(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    const struct gp_sleeps *sleeps = report->devices[device].sleeps;
    const struct gp_sleep *most = NULL;
    char size[GP_SIZE_TEXT], when[GP_SIZE_TEXT], took[GP_SIZE_TEXT];
    for (uint32_t i = 0; i < sleeps->count; i++) {
        const struct gp_sleep *sleep = &sleeps->rows[i];
        most = !most || sleep->fell_bytes > most->fell_bytes ? sleep : most;
        if (i >= GP_PAGE_ROWS)
            continue;
        fprintf(page->out, "%s  asleep  %s at %s, within %s", i ? "" : "\n", gp_size_text(size, sleep->fell_bytes),
                gp_seconds_text(when, page_since(report, sleep->begin_ns)),
                gp_seconds_text(took, (double)(sleep->end_ns - sleep->begin_ns) / 1e9));
        if (sleep->wake_ns)
            fprintf(page->out, "; %s awake at %s, within %s", gp_size_text(size, sleep->woke_bytes),
                    gp_seconds_text(when, page_since(report, sleep->wake_ns)),
                    gp_seconds_text(took, (double)(sleep->woken_ns - sleep->wake_ns) / 1e9));
        if (sleep->ended_bytes)
            fprintf(page->out, "; %s freed asleep", gp_size_text(size, sleep->ended_bytes));
        fputc('\n', page->out);
        if (sleep->late_bytes)
            fprintf(page->out, "          %s came back to the device late: up to %s after that\n",
                    gp_size_text(size, sleep->late_bytes),
                    gp_seconds_text(took, (double)(sleep->late_ns - sleep->end_ns) / 1e9));
    }
    if (!most)
        return;
    fprintf(page->out, "\n  released at %s\n", gp_seconds_text(when, page_since(report, most->begin_ns)));
    gp_text_parts(page, report, most->released, 8);
    fprintf(page->out, "  what stayed: %s\n", gp_size_text(size, most->stayed->bytes));
    gp_text_parts(page, report, most->stayed, 8);
    struct gp_bill_peak_owners *owners = gp_bill_peak_owners(report->recording, most->stayed);
    if (owners)
        page_owner_rows(page, owners, most->stayed->bytes);
    free(owners);
}

/* Memory from before an attach, as of the end of the recording. */
static void page_before_attach(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    const struct gp_recording *r = report->recording;
    const struct gp_wire_before_device before = gp_rec_before_at(r, device, r->end_ns);
    const char *source = gp_before_source(&before);
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
    if (r->attached != GP_REC_ATTACHED_YES || r->devices[device].index == GP_WIRE_HOST)
        return;
    if (!source) {
        fprintf(page->out, "  before attach  not known\n");
        return;
    }
    fprintf(page->out, "  before attach  %s at the end", gp_size_text(a, before.bytes));
    if (before.at_attach_bytes >= 0)
        fprintf(page->out, ", %s at the attach", gp_size_text(b, before.at_attach_bytes));
    fprintf(page->out, " (source: %s); in no other figure\n", source);
}

static void page_peak(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    const struct gp_peak *peak = report->devices[device].peak;
    char size[GP_SIZE_TEXT], when[GP_SIZE_TEXT];
    fprintf(page->out, "  %s%s at %s, held by\n", gp_rec_bound_text(report->recording->devices[device].bound),
            gp_size_text(size, peak->bytes), gp_seconds_text(when, page_since(report, peak->time_ns)));
    gp_text_parts(page, report, peak, GP_PAGE_ROWS * 2);
    page_owners(page, report, device);
    gp_text_managed(page, report, device);
    page_before_attach(page, report, device);
}

void gp_text_peak(const struct gp_text_page *page, const struct gp_report *report)
{
    page_devices(page, report, page_peak);
}

/* ---- leaks ------------------------------------------------------------------------------------------------------ */

void gp_text_leaks(const struct gp_text_page *page, const struct gp_report *report)
{
    const struct gp_leaks *leaks = report->leaks;
    gp_text_warnings(page, report);
    if (page_empty(page, report))
        return;
    gp_text_growth(page, report, GP_PAGE_ROWS, 8);
    if (leaks->count > GP_PAGE_ROWS)
        fprintf(page->out, "\n%u more suspects: use --json to list them\n", leaks->count - GP_PAGE_ROWS);
    const char *missing = leaks->count || leaks->candidates ? gp_report_missing(report) : NULL;
    if (missing) { /* a line for each sentence */
        size_t sentence = strcspn(missing, ".") + 1;
        char text[160];
        snprintf(text, sizeof(text), "Missing: %.*s", (int)sentence, missing);
        fputc('\n', page->out);
        gp_text_phrases(page, text, 0);
        fputc('\n', page->out);
        gp_text_phrases(page, missing + sentence + 1, 0);
        fputc('\n', page->out);
    }
}

/* ---- churn ------------------------------------------------------------------------------------------------------ */

void gp_text_churn(const struct gp_text_page *page, const struct gp_report *report)
{
    char took[GP_SIZE_TEXT];
    const struct gp_churn *churn = report->churn;
    gp_text_warnings(page, report);
    gp_text_step_line(page, report);
    fprintf(page->out, "%.1f allocations per %s were freed within it, %" PRIu64 " of %" PRIu64 " in all\n\n",
            churn->pairs_per_step, gp_steps_word(report->steps), churn->pairs, churn->allocations);
    if (churn->driver_ns)
        fprintf(page->out, "the driver calls of these pairs took %s\n\n",
                gp_seconds_text(took, (double)churn->driver_ns / 1e9));
    if (churn->count)
        fprintf(page->out, "%s  %10s %10s %10s %10s  SITE%s\n", gp_text_on(page, GP_BOLD), "PAIRS/STEP", "MEAN SIZE",
                "MEAN LIFE", "IN DRIVER", gp_text_on(page, GP_OFF));
    struct gp_page_names names = {.count = churn->count < GP_PAGE_ROWS * 2 ? churn->count : GP_PAGE_ROWS * 2};
    for (uint32_t i = 0; i < names.count; i++)
        names.sites[i] = churn->sites[i].site;
    page_compare(&names, report);
    for (uint32_t i = 0; i < names.count; i++) {
        const struct gp_churn_site *site = &churn->sites[i];
        char size[GP_SIZE_TEXT], life[GP_SIZE_TEXT];
        fprintf(page->out, "  %10.1f %10s %10s %10s  ", site->pairs_per_step,
                gp_size_text(size, (int64_t)(site->bytes / site->pairs)),
                gp_seconds_text(life, (double)site->mean_life_ns / 1e9),
                site->driver_ns ? gp_seconds_text(took, (double)site->driver_ns / 1e9) : "-");
        page_site(page, report, &names, i, 48);
        fputc('\n', page->out);
    }
    if (churn->count > GP_PAGE_ROWS * 2)
        fprintf(page->out, "  %u more sites: use --json to list them\n", churn->count - GP_PAGE_ROWS * 2);
}

/* ---- fragmentation ----------------------------------------------------------------------------------------------- */

static void page_fragments(const struct gp_text_page *page, const struct gp_fragmentation *f)
{
    static const struct {
        const char *name, *means;
    } rows[] = {{"in use", "share of reserved memory that was allocated, at the peak of reserved"},
                {"external", "share of free memory outside the largest free piece, at the end"},
                {"internal", "share of allocated memory that was not requested (rounding), at the peak"}};
    const double values[] = {f->utilisation, f->external, f->internal};
    for (int i = 0; i < 3; i++) {
        if (i == 1 && !f->has_segments) {
            fprintf(page->out, "  %-10s     -    %-*s unknown: the recording has no segments of a cache\n",
                    rows[i].name, (int)GP_PAGE_BAR, "");
            continue;
        }
        fprintf(page->out, "  %-10s %5.1f %%  ", rows[i].name, values[i] * 100);
        gp_text_bar(page, values[i]);
        fprintf(page->out, " %s\n", rows[i].means);
    }
}

/* A row for each moment: the values at it, and the extremes since the row above. */
static void page_fragmentation(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    const struct gp_report_device *row = &report->devices[device];
    const struct gp_fragmentation *f = row->fragmentation;
    page_fragments(page, f);
    fprintf(page->out, "\n%s  %8s  %s%s\n", gp_text_on(page, GP_BOLD), "",
            "--- RESERVED ---  -------- ALLOCATED ---------   REQUESTED      LARGEST", gp_text_on(page, GP_OFF));
    fprintf(page->out, "%s  %8s %10s %10s %10s %10s %11s %12s%s\n", gp_text_on(page, GP_BOLD), "AT", "HIGHEST",
            "LOWEST", "HIGHEST", "THEN", "THEN", "FREE, THEN", gp_text_on(page, GP_OFF));
    for (uint32_t i = 0; i < f->count; i++) {
        const struct gp_fragment_point *p = &f->points[i];
        char at[GP_SIZE_TEXT], a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], c[GP_SIZE_TEXT], d[GP_SIZE_TEXT], e[GP_SIZE_TEXT],
            g[GP_SIZE_TEXT];
        uint64_t from = i ? f->points[i - 1].time_ns : p->time_ns;
        struct gp_series_point reserved = gp_series_range(row->reserved, from, p->time_ns + 1);
        struct gp_series_point allocated = gp_series_range(row->allocated, from, p->time_ns + 1);
        fprintf(page->out, "  %8s %10s %10s %10s %10s %11s %12s\n", gp_seconds_text(at, page_since(report, p->time_ns)),
                gp_size_text(a, reserved.high), gp_size_text(b, allocated.low), gp_size_text(c, allocated.high),
                gp_size_text(d, p->allocated_bytes), gp_size_text(e, p->requested_bytes),
                gp_size_text(g, p->largest_free_bytes));
    }
}

void gp_text_fragmentation(const struct gp_text_page *page, const struct gp_report *report)
{
    page_devices(page, report, page_fragmentation);
}

/* ---- bill ------------------------------------------------------------------------------------------------------- */

static void page_bill(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    const struct gp_bill *bill = report->devices[device].bill;
    char size[GP_SIZE_TEXT], when[GP_SIZE_TEXT];
    gp_seconds_text(when, page_since(report, bill->time_ns));
    for (uint32_t i = 0; i < bill->count; i++) {
        const struct gp_bill_row *row = &bill->rows[i];
        bool below = row->bytes < -1;
        fprintf(page->out, "  %s%10s  %s%s\n", below ? "-" : " ", gp_size_text(size, below ? -row->bytes : row->bytes),
                row->what, row->estimated ? "  (estimate)" : "");
    }
    if (bill->process_bytes >= 0)
        fprintf(page->out, "   %10s  %sheld by the process according to NVML, at %s%s\n",
                gp_size_text(size, bill->process_bytes), gp_text_on(page, GP_BOLD), when, gp_text_on(page, GP_OFF));
    else
        fprintf(page->out, "   %10s  held by the process according to NVML: unknown; the rows above are as of %s\n",
                "-", when);
}

void gp_text_reconcile(const struct gp_text_page *page, const struct gp_report *report)
{
    page_devices(page, report, page_bill);
}

/* ---- summary ---------------------------------------------------------------------------------------------------- */

static void page_levels(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    const struct gp_peak *peak = report->devices[device].peak;
    const struct gp_series *series = report->devices[device].allocated, *reserved = report->devices[device].reserved;
    int64_t values[64], high = 0, end = 0;
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], when[GP_SIZE_TEXT];
    uint64_t begin = report->recording->begin_ns, span = report->recording->end_ns - begin + 1;
    for (uint32_t i = 0; i < reserved->count; i++)
        high = reserved->points[i].high > high ? reserved->points[i].high : high;
    /* The highest value in each 64th of the time. */
    for (uint32_t k = 0, i = 0; k < 64; k++) {
        uint64_t until = begin + span * (k + 1) / 64;
        values[k] = end;
        for (; i < series->count && series->points[i].time_ns < until; i++) {
            values[k] = series->points[i].high > values[k] ? series->points[i].high : values[k];
            end = series->points[i].last;
        }
    }
    const char *bound = gp_rec_bound_text(report->recording->devices[device].bound);
    fprintf(page->out, "  allocated  peak %s%s at %s; %s at the end\n", bound, gp_size_text(a, peak->bytes),
            gp_seconds_text(when, page_since(report, peak->time_ns)), gp_size_text(b, end));
    fprintf(page->out, "  reserved   peak %s%s\n", bound, gp_size_text(a, high));
    const struct gp_wire_polled said = gp_rec_polled(&report->recording->devices[device]);
    if (said.pool_bytes)
        fprintf(page->out, "  in use     of XLA's pool of %s at most %s, by XLA's own count\n",
                gp_size_text(a, said.pool_bytes), gp_size_text(b, said.peak_bytes));
    page_before_attach(page, report, device);
    fprintf(page->out, "  %s", gp_text_on(page, GP_BLUE));
    gp_text_spark(page, values, 64, gp_text_width(page) < 66 ? (unsigned)gp_text_width(page) - 2 : 64);
    fprintf(page->out, "%s\n", gp_text_on(page, GP_OFF));
}

/* After two steps: how soon the peak could have been known. */
static void page_forecast(const struct gp_text_page *page, const struct gp_report *report, uint32_t device)
{
    const struct gp_forecast_run *run = report->devices[device].forecast;
    char line[GP_FORECAST_TEXT], size[GP_SIZE_TEXT];
    if (!run || run->now.verdict < GP_FORECAST_STEADY)
        return;
    fprintf(page->out, "  forecast   %s\n", gp_forecast_line(&run->now, gp_steps_word(report->steps), line));
    if (run->early.peak_bytes >= 0)
        fprintf(page->out, "             after two %s it was %s\n", gp_steps_words(report->steps, 2),
                gp_size_text(size, run->early.peak_bytes));
}

/* "rank 3 of 8 (local rank 1), " */
static void page_rank(const struct gp_text_page *page, const struct gp_recording *r)
{
    if (!r->has_rank)
        return;
    fprintf(page->out, "rank %" PRId32, r->rank);
    if (r->world_size > 0)
        fprintf(page->out, " of %" PRId32, r->world_size);
    if (r->local_rank >= 0)
        fprintf(page->out, " (local rank %" PRId32 ")", r->local_rank);
    fputs(", ", page->out);
}

/* The last failed request: it is why the reader came. */
static void page_oom(const struct gp_text_page *page, const struct gp_report *report)
{
    const struct gp_report_failure failure = gp_report_failure(report->recording);
    char size[GP_SIZE_TEXT], when[GP_SIZE_TEXT], label[256];
    if (!failure.count)
        return;
    fprintf(page->out, "\n%sout of memory%s ", gp_text_on(page, GP_RED), gp_text_on(page, GP_OFF));
    if (failure.device != GP_REC_NONE) {
        const struct gp_rec_device *row = &report->recording->devices[failure.device];
        fprintf(page->out, row->index == GP_WIRE_HOST ? "of the host " : "on device %d ",
                row->ordinal >= 0 ? row->ordinal : row->index);
    }
    fprintf(page->out, "at %s", gp_seconds_text(when, page_since(report, failure.time_ns)));
    if (failure.asked_bytes || !failure.api[0])
        fprintf(page->out, ": %s asked for",
                gp_size_text(size, failure.asked_bytes > INT64_MAX ? INT64_MAX : (int64_t)failure.asked_bytes));
    else
        fprintf(page->out, ": %s failed", failure.api);
    if (failure.site) {
        size_t large = gp_symbols_line(report->symbols, failure.site, NULL, NULL, label, sizeof(label));
        fprintf(page->out, " by %s%.*s%s%s%s%s", gp_text_on(page, GP_BOLD), (int)large, label, gp_text_on(page, GP_OFF),
                gp_text_on(page, GP_DIM), label + large, gp_text_on(page, GP_OFF));
    }
    if (failure.count > 1)
        fprintf(page->out, ", the last of %" PRIu32 " times", failure.count);
    fputc('\n', page->out);
}

void gp_text_summary(const struct gp_text_page *page, const struct gp_report *report)
{
    const struct gp_recording *r = report->recording;
    char span[GP_SIZE_TEXT];
    gp_text_cut(page,
                r->command_line[0] ? r->command_line
                : r->comm[0]       ? r->comm
                                   : "(unknown program)",
                gp_text_width(page));
    fprintf(page->out, "\n%s", gp_text_on(page, GP_DIM));
    if (!r->from_torch && !r->from_rmm && !r->from_pprof) /* these do not say whose they are */
        fprintf(page->out, "pid %u%s%s, ", r->pid, r->host[0] ? " on " : "", r->host);
    page_rank(page, r);
    fprintf(page->out, "%s, %zu event%s", gp_seconds_text(span, page_since(report, r->end_ns)), r->event_count,
            gp_text_plural(r->event_count));
    if (r->recorded != r->event_count && !r->part_of_ns)
        fprintf(page->out, " (%zu as recorded)", r->recorded);
    fprintf(page->out, "%s\n", gp_text_on(page, GP_OFF));
    gp_text_warnings(page, report);
    if (page_empty(page, report))
        return;
    page_oom(page, report);
    for (uint32_t d = 0; d < r->device_count; d++) {
        const struct gp_report_device *device = &report->devices[d];
        const struct gp_fragmentation *f = device->fragmentation;
        if (!device->used)
            continue;
        page_device(page, report, d, true);
        page_levels(page, report, d);
        gp_text_imported(page, report, d);
        gp_text_managed(page, report, d);
        page_forecast(page, report, d);
        if (device->peak->bytes)
            fprintf(page->out, "\n  held at the peak by\n");
        gp_text_parts(page, report, device->peak, 8);
        page_owners(page, report, d);
        page_libraries(page, report, d);
        page_sleeps(page, report, d);
        if (f->has_segments || f->internal > 0 || f->utilisation < 0.999) {
            fprintf(page->out, "\n");
            page_fragments(page, f);
        }
    }
    if (r->from_pprof) /* one moment */
        return;
    gp_text_heading(page, "growth", true);
    gp_text_growth(page, report, 5, 0);
    if (report->leaks->count > 5)
        fprintf(page->out, "%u more suspects: run 'gpuprof leaks' to list them\n", report->leaks->count - 5);
}

/* ---- diff ------------------------------------------------------------------------------------------------------- */

static const char *page_change(char text[GP_SIZE_TEXT + 1], int64_t by)
{
    char size[GP_SIZE_TEXT];
    snprintf(text, GP_SIZE_TEXT + 1, "%s%s",
             by > 0   ? "+"
             : by < 0 ? "-"
                      : "",
             by ? gp_size_text(size, by < 0 ? -by : by) : "same");
    return text;
}

static bool page_differs(const struct gp_diff_row *row)
{
    return row->peak_bytes[0] != row->peak_bytes[1] || row->live_bytes[0] != row->live_bytes[1];
}

/* The name of a row as of the newer recording that has it, and its stack. */
static void page_diff_site(const struct gp_text_page *page, const struct gp_report *report, uint32_t site,
                           const struct gp_frame_text *caller, uint32_t frames)
{
    char label[1024];
    size_t room = page->whole ? sizeof(label) : (size_t)gp_text_room(page, 50) + 1;
    gp_symbols_line(report->symbols, site, caller, NULL, label, room < sizeof(label) ? room : sizeof(label));
    fprintf(page->out, "%s\n", label);
    if (frames)
        gp_text_stack(page, report, site, frames);
}

static void page_diff_row(const struct gp_text_page *page, const struct gp_diff_row *row)
{
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], by[GP_SIZE_TEXT + 1];
    int64_t change = row->peak_bytes[1] - row->peak_bytes[0];
    fprintf(page->out, "  %s%11s%s", gp_text_on(page, change > 0 ? GP_RED : GP_OFF), page_change(by, change),
            gp_text_on(page, GP_OFF));
    fprintf(page->out, " %10s %10s", gp_size_text(a, row->peak_bytes[0]), gp_size_text(b, row->peak_bytes[1]));
    fprintf(page->out, " %11s  ", page_change(by, row->live_bytes[1] - row->live_bytes[0]));
}

void gp_text_diff(const struct gp_text_page *page, const struct gp_diff *diff, const struct gp_report *const reports[2],
                  bool callers)
{
    int64_t before = 0, after = 0;
    uint32_t differ = 0, shown = 0;
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], by[GP_SIZE_TEXT + 1];
    const struct gp_frame_text **distinct[2] = {gp_report_callers(reports[0]), gp_report_callers(reports[1])};
    for (uint32_t i = 0; i < diff->count; i++) {
        before += diff->rows[i].peak_bytes[0];
        after += diff->rows[i].peak_bytes[1];
        differ += page_differs(&diff->rows[i]);
    }
    fprintf(page->out, "at the peak: %s, then %s (%s); %u of %u sites differ%s\n", gp_size_text(a, before),
            gp_size_text(b, after), page_change(by, after - before), differ, diff->count, differ ? "\n" : "");
    if (differ)
        fprintf(page->out, "%s  %11s %10s %10s %11s  SITE%s\n", gp_text_on(page, GP_BOLD), "AT PEAK", "BEFORE", "AFTER",
                "AT THE END", gp_text_on(page, GP_OFF));
    /* Rows are sorted by growth: the first ones grew most, and the last ones shrank most. */
    for (uint32_t i = 0; i < diff->count; i++) {
        const struct gp_diff_row *row = &diff->rows[i];
        int side = row->site[1] != GP_REC_NONE;
        bool grew = row->peak_bytes[1] > row->peak_bytes[0] || row->live_bytes[1] > row->live_bytes[0];
        bool show = grew ? shown < GP_PAGE_ROWS * 2 : i + GP_PAGE_ROWS >= diff->count;
        if (!page_differs(row) || !show)
            continue;
        shown++;
        page_diff_row(page, row);
        page_diff_site(page, reports[side], row->site[side], distinct[side] ? distinct[side][row->site[side]] : NULL,
                       callers ? GP_PAGE_FRAMES : 0);
    }
    if (shown < differ)
        fprintf(page->out, "  %u more sites: use --json to list them\n", differ - shown);
    free(distinct[0]);
    free(distinct[1]);
}
