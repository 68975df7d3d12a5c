/* SPDX-License-Identifier: MIT
 *
 * judge.c: whether a recording is within its budgets, and which line is to blame; see budget.h.
 * Each budget is on the sum of some blocks: of a device, a use, a line.  One walk finds the most
 * that they held, and what went over the budget first; a second one what held them then.
 */
#include <show/gate/budget.h>

#include <analyze/report.h>
#include <fnmatch.h>
#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>

struct judge {
    struct gp_findings *out;
    struct gp_report *report;
    struct gp_report_uses uses; /* count 0: not needed */
};

struct judge_sum {     /* which blocks a budget is on */
    uint32_t device;   /* GP_REC_NONE: of every GPU */
    const bool *sites; /* NULL: all */
    enum gp_use use;   /* GP_USES: all */
};

struct judge_most {
    int64_t bytes, end_bytes;
    uint64_t time_ns;
    size_t change;    /* the number of the change that reached it */
    uint32_t crossed; /* site; GP_REC_NONE none */
};

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static bool sum_has(const struct judge *judge, const struct judge_sum *sum, const struct gp_flow_change *change)
{
    uint32_t device = change->item->device;
    if (!(change->what & GP_FLOW_SUMMED) || device >= judge->report->recording->device_count)
        return false;
    bool host = judge->report->recording->devices[device].index == GP_WIRE_HOST;
    if (sum->device == GP_REC_NONE ? host : sum->device != device)
        return false;
    if (sum->sites && !sum->sites[change->item->site])
        return false;
    if (sum->use == GP_USES)
        return true;
    const struct gp_use_table *table = judge->uses.uses[device];
    uint32_t rule = table ? table->rule[change->id] : GP_USE_RULES;
    return (rule < GP_USE_RULES ? table->rows[rule].use : GP_USE_UNKNOWN) == sum->use;
}

static struct judge_most sum_most(const struct judge *judge, const struct judge_sum *sum, int64_t budget)
{
    struct judge_most most = {.crossed = GP_REC_NONE};
    struct gp_flow_walk walk = gp_flow_begin(judge->report->flow);
    struct gp_flow_change change;
    int64_t held = 0;
    for (size_t i = 0; gp_flow_next(&walk, &change); i++) {
        if (!sum_has(judge, sum, &change))
            continue;
        uint64_t bytes = change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change);
        held = (int64_t)((uint64_t)held + bytes);
        if (most.crossed == GP_REC_NONE && change.add && held > budget)
            most.crossed = change.item->site;
        if (held > most.bytes) {
            most.bytes = held;
            most.time_ns = change.time_ns;
            most.change = i;
        }
    }
    most.end_bytes = held;
    return most;
}

/* The number of the last change until then. */
static size_t sum_until(const struct judge *judge, uint64_t time_ns)
{
    struct gp_flow_walk walk = gp_flow_begin(judge->report->flow);
    struct gp_flow_change change;
    size_t last = 0;
    for (size_t i = 0; gp_flow_next(&walk, &change); i++)
        if (change.event == GP_REC_NONE || change.time_ns <= time_ns)
            last = i;
    return last;
}

struct judge_line { /* sites of one line and one operation, then those of one line */
    const struct gp_frame_text *name;
    const char *operation; /* "" none */
    uint32_t site;
    int64_t bytes;
};

static int line_compare(const void *one, const void *other)
{
    const struct judge_line *a = one, *b = other;
    if (a->name->file != b->name->file)
        return GP_ORDER((uintptr_t)a->name->file, (uintptr_t)b->name->file);
    if (a->name->line != b->name->line)
        return GP_ORDER(a->name->line, b->name->line);
    return GP_ORDER((uintptr_t)a->name->function, (uintptr_t)b->name->function);
}

static int operation_compare(const void *one, const void *other)
{
    const struct judge_line *a = one, *b = other;
    int order = line_compare(one, other);
    return order ? order : strcmp(a->operation, b->operation);
}

/* Adds up the rows [i, end) that compare equal, and sets *next behind them. */
static struct judge_line line_sum(const struct judge_line *lines, uint32_t i, uint32_t end,
                                  int compare(const void *, const void *), uint32_t *next)
{
    struct judge_line sum = lines[i];
    for (*next = i + 1; *next < end && compare(&lines[i], &lines[*next]) == 0; ++*next)
        sum.bytes = gp_gate_minus(sum.bytes, gp_gate_minus(0, lines[*next].bytes));
    return sum;
}

/* The line that holds the most.  Of several operations there, none stands for the line: the largest is named
 * with its own bytes. */
static void line_most(struct judge *judge, struct judge_line *lines, uint32_t count, struct gp_gate_place *culprit)
{
    struct judge_line best = {.bytes = 0}, most = {.bytes = 0};
    uint32_t first = 0, end = 0, next = 0, operations = 0;
    if (count)
        qsort(lines, count, sizeof(*lines), operation_compare);
    for (uint32_t i = 0; i < count; i = next) {
        struct judge_line line = line_sum(lines, i, count, line_compare, &next);
        if (line.bytes > best.bytes) {
            best = line;
            first = i;
            end = next;
        }
    }
    for (uint32_t i = first; i < end; i = next, operations++) {
        struct judge_line part = line_sum(lines, i, end, operation_compare, &next);
        if (part.bytes > most.bytes)
            most = part;
    }
    if (best.bytes <= 0)
        return;
    gp_gate_place(judge->out, culprit, judge->report, best.site, best.bytes);
    if (operations < 2)
        return;
    char label[512];
    gp_caller_text(best.name, NULL, NULL, label, sizeof(label));
    free(culprit->label);
    culprit->label = gp_gate_text(judge->out, "%s", label);
    if (most.operation[0]) {
        culprit->operation = gp_gate_text(judge->out, "%s", most.operation);
        culprit->operation_bytes = most.bytes;
    }
}

/* The line that holds the most of the blocks after the change of that number. */
static void sum_culprit(struct judge *judge, const struct judge_sum *sum, size_t last, struct gp_gate_place *culprit)
{
    const struct gp_recording *recording = judge->report->recording;
    int64_t *held = calloc(recording->site_count + 1ul, sizeof(*held));
    struct judge_line *lines = calloc(recording->site_count + 1ul, sizeof(*lines));
    struct gp_flow_walk walk = gp_flow_begin(judge->report->flow);
    struct gp_flow_change change;
    uint32_t count = 0;
    judge->out->failed |= !held || !lines;
    for (size_t i = 0; held && lines && i <= last && gp_flow_next(&walk, &change); i++) {
        if (!sum_has(judge, sum, &change))
            continue;
        uint64_t bytes = change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change);
        held[change.item->site] = (int64_t)((uint64_t)held[change.item->site] + bytes);
    }
    for (uint32_t i = 0; held && lines && i < recording->site_count; i++) {
        const char *operation = gp_symbols_operation(judge->report->symbols, i)->text;
        if (held[i] > 0)
            lines[count++] =
                (struct judge_line){gp_symbols_name(judge->report->symbols, i), operation ? operation : "", i, held[i]};
    }
    line_most(judge, lines, count, culprit);
    free(held);
    free(lines);
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

static struct gp_gate_finding *judge_add(struct judge *judge, const char *kind, int32_t device, int64_t limit)
{
    const struct gp_recording *recording = judge->report->recording;
    struct gp_gate_finding *finding = gp_finding_add(judge->out, kind, judge->report->file);
    if (!finding)
        return NULL;
    finding->rank = recording->has_rank ? recording->rank : -1;
    finding->limit_bytes = limit;
    finding->device = device;
    return finding;
}

static int64_t since(const struct judge *judge, uint64_t time_ns)
{
    uint64_t begin = judge->report->recording->begin_ns;
    return time_ns > begin ? (int64_t)(time_ns - begin) : 0;
}

/* The peak of a whole device that the program's statistics had at the end, where the recording has all of the program's time.
 * It may be above the events' sums: the driver's watermarks show what a graph held between two polls. */
static int64_t judge_said(const struct judge *judge, uint32_t d, enum gp_wire_stat stat)
{
    const struct gp_recording *recording = judge->report->recording;
    if (d >= recording->device_count)
        return -1;
    const struct gp_rec_device *device = &recording->devices[d];
    /* Of a pool that a library took ahead, what is in use counts. */
    bool whole = device->has_last && recording->from_start && device->index != GP_WIRE_HOST &&
                 gp_rec_polled(device).pool_bytes == 0;
    return whole ? device->last.stats[stat][GP_POOL_ALL].peak : -1;
}

/* Raises a finding to that peak, of which the time is not known. */
static void judge_raise(struct gp_gate_finding *finding, int64_t said)
{
    if (said <= finding->bytes)
        return;
    finding->bytes = said;
    finding->at_ns = -1;
}

/* The answer of a budget on a sum.  what: taken over. */
static void judge_sum(struct judge *judge, const struct judge_sum *sum, const char *kind, char *what, int32_t device,
                      int64_t budget, bool end)
{
    struct gp_gate_finding *finding = judge_add(judge, kind, device, budget);
    if (!finding) {
        free(what);
        return;
    }
    struct judge_most most = sum_most(judge, sum, budget);
    finding->what = what;
    finding->bytes = end ? most.end_bytes : most.bytes;
    finding->at_ns = end ? since(judge, judge->report->recording->end_ns) : since(judge, most.time_ns);
    if (!end && !sum->sites && sum->use == GP_USES)
        judge_raise(finding, judge_said(judge, sum->device, GP_STAT_ALLOCATED_BYTES));
    finding->ok = finding->bytes <= budget;
    finding->unknown = most.bytes == 0 && sum->use != GP_USES;
    if (finding->ok)
        return;
    sum_culprit(judge, sum, end ? SIZE_MAX : most.change, &finding->culprit);
    if (!end && most.crossed != GP_REC_NONE && !sum->sites)
        gp_gate_place(judge->out, &finding->crossed, judge->report, most.crossed, 0);
}

static int32_t device_number(const struct gp_rec_device *device)
{
    return device->index == GP_WIRE_HOST ? (int32_t)GP_WIRE_HOST
           : device->ordinal >= 0        ? device->ordinal
                                         : (int32_t)device->index;
}

static void judge_reserved(struct judge *judge, uint32_t d, int64_t budget)
{
    struct gp_series *series = gp_flow_reserved(judge->report->flow, d, 400);
    int32_t number = device_number(&judge->report->recording->devices[d]);
    struct gp_gate_finding *finding = series ? judge_add(judge, "reserved", number, budget) : NULL;
    judge->out->failed |= !series;
    if (finding) {
        finding->what = gp_gate_text(judge->out, "the peak of reserved memory of device %d", number);
        finding->bytes = 0;
        for (uint32_t i = 0; i < series->count; i++) {
            if (series->points[i].high > finding->bytes) {
                finding->bytes = series->points[i].high;
                finding->at_ns = since(judge, series->points[i].time_ns);
            }
        }
        judge_raise(finding, judge_said(judge, d, GP_STAT_RESERVED_BYTES));
        finding->ok = finding->bytes <= budget;
    }
    free(series);
}

/* What is still held when blocks have lost their memory: of the worst time. */
static void judge_asleep(struct judge *judge, uint32_t d, int64_t budget)
{
    struct gp_sleeps *sleeps = gp_flow_sleeps(judge->report->flow, d);
    const struct judge_sum sum = {.device = d, .use = GP_USES};
    const struct gp_sleep *worst = NULL;
    int32_t number = device_number(&judge->report->recording->devices[d]);
    struct gp_gate_finding *finding = sleeps ? judge_add(judge, "asleep", number, budget) : NULL;
    judge->out->failed |= !sleeps;
    for (uint32_t i = 0; finding && i < sleeps->count; i++)
        if (!worst || sleeps->rows[i].reserved_bytes > worst->reserved_bytes)
            worst = &sleeps->rows[i];
    if (finding) {
        finding->what = gp_gate_text(judge->out, "what device %d holds asleep", number);
        finding->unknown = !worst;
    }
    if (finding && worst) {
        finding->bytes = worst->reserved_bytes;
        finding->at_ns = since(judge, worst->end_ns);
        finding->ok = finding->bytes <= budget;
        if (!finding->ok)
            sum_culprit(judge, &sum, sum_until(judge, worst->end_ns), &finding->culprit);
    }
    gp_sleeps_free(sleeps);
}

/* What a budget is of a device; -1 not known. */
static int64_t device_budget(const struct gp_budget *budget, const struct gp_rec_device *device)
{
    if (budget->percent <= 0)
        return budget->bytes;
    return device->total_bytes > 0 ? (int64_t)((double)device->total_bytes * budget->percent / 100) : -1;
}

/* A percentage of a device whose memory is not known is not kept. */
static void judge_nothing(struct judge *judge, const struct gp_budget *budget, int32_t number)
{
    struct gp_gate_finding *finding = judge_add(judge, gp_budget_kind_name(budget->kind), number, -1);
    if (!finding)
        return;
    finding->what = gp_gate_text(judge->out, "%g %% of the memory of device %d", budget->percent, number);
    finding->ok = false;
    finding->unknown = true;
}

static void judge_devices(struct judge *judge, const struct gp_budget *budget)
{
    const struct gp_recording *recording = judge->report->recording;
    for (uint32_t d = 0; d < recording->device_count; d++) {
        bool host = recording->devices[d].index == GP_WIRE_HOST;
        const struct judge_sum sum = {.device = d, .use = GP_USES};
        int32_t number = device_number(&recording->devices[d]);
        if (host != (budget->kind == GP_BUDGET_HOST))
            continue;
        const int64_t bytes = device_budget(budget, &recording->devices[d]);
        if (bytes < 0)
            judge_nothing(judge, budget, number);
        else if (budget->kind == GP_BUDGET_RESERVED)
            judge_reserved(judge, d, bytes);
        else if (budget->kind == GP_BUDGET_ASLEEP)
            judge_asleep(judge, d, bytes);
        else if (host)
            judge_sum(judge, &sum, "host", gp_gate_text(judge->out, "the peak of pinned host memory"), number, bytes,
                      false);
        else if (budget->kind == GP_BUDGET_END)
            judge_sum(judge, &sum, "end", gp_gate_text(judge->out, "what device %d holds at the end", number), number,
                      bytes, true);
        else
            judge_sum(judge, &sum, budget->kind == GP_BUDGET_RANK ? "rank" : "peak",
                      budget->kind == GP_BUDGET_RANK
                          ? gp_gate_text(judge->out, "the peak of rank %d, device %d", (int)budget->number, number)
                          : gp_gate_text(judge->out, "the peak of device %d", number),
                      number, bytes, false);
    }
}

/* "train.py:32", "train.py", "models/net.py:8", "Net.forward" or "forward". */
static bool is_line(const struct gp_frame_text *name, const char *wanted)
{
    const char *colon = strrchr(wanted, ':'), *function = name->plain ? name->plain : name->function;
    size_t length = strlen(wanted), file = strlen(name->file), digits = colon ? strspn(colon + 1, "0123456789") : 0;
    if (digits && !colon[1 + digits]) {
        if (strtoul(colon + 1, NULL, 10) != name->line)
            return false;
        length = (size_t)(colon - wanted);
    } else {
        size_t own = strlen(function);
        if (own >= length && strcmp(function + own - length, wanted) == 0 &&
            (own == length || function[own - length - 1] == '.' || function[own - length - 1] == ':'))
            return true;
    }
    return length && file >= length && strncmp(name->file + file - length, wanted, length) == 0 &&
           (file == length || name->file[file - length - 1] == '/');
}

/* "GPT2LMHeadModel: cross_entropy (log_softmax)" as a whole, or without the names before a colon. */
static bool is_operation(const char *operation, const char *wanted)
{
    for (const char *at = operation; at; at = strstr(at, ": "), at = at ? at + 2 : NULL)
        if (strcmp(wanted, at) == 0 || fnmatch(wanted, at, 0) == 0)
            return true;
    return false;
}

static void judge_sites(struct judge *judge, struct gp_budget *budget)
{
    const struct gp_report *report = judge->report;
    bool found = false;
    bool line = budget->kind == GP_BUDGET_LINE;
    bool *sites = calloc(report->recording->site_count + 1ul, sizeof(*sites));
    const struct judge_sum sum = {.device = GP_REC_NONE, .use = GP_USES, .sites = sites};
    judge->out->failed |= !sites;
    for (uint32_t i = 1; sites && i < report->recording->site_count; i++) {
        const char *operation = gp_symbols_operation(report->symbols, i)->text;
        sites[i] = line ? is_line(gp_symbols_name(report->symbols, i), budget->name)
                        : operation && is_operation(operation, budget->name);
        found |= sites[i];
    }
    budget->matched |= found;
    if (found)
        judge_sum(judge, &sum, line ? "line" : "operation",
                  gp_gate_text(judge->out, "%s %s", line ? "line" : "operation", budget->name), -1, budget->bytes,
                  false);
    free(sites);
}

static void judge_use(struct judge *judge, const struct gp_budget *budget)
{
    enum gp_use use = 0;
    while (use < GP_USES && strcmp(gp_use_name(use), budget->name) != 0)
        use++;
    const struct judge_sum sum = {.device = GP_REC_NONE, .use = use};
    char words[GP_USE_WORDS]; /* the budget says of what, not how sure it is */
    judge_sum(judge, &sum, "use", gp_gate_text(judge->out, "the memory of use %s", gp_use_words(words, use, 1)), -1,
              budget->bytes, false);
}

static void judge_phase(struct judge *judge, struct gp_budget *budget)
{
    const struct gp_phase *found = NULL;
    for (uint32_t d = 0; d < judge->uses.count; d++) {
        const struct gp_phases *phases = judge->uses.phases[d];
        bool host = judge->report->recording->devices[d].index == GP_WIRE_HOST;
        for (uint32_t i = 0; phases && !host && i < phases->count; i++)
            if (strcmp(phases->phases[i].name, budget->name) == 0 &&
                (!found || phases->phases[i].peak_bytes > found->peak_bytes))
                found = &phases->phases[i];
    }
    budget->matched |= found != NULL;
    struct gp_gate_finding *finding = found ? judge_add(judge, "phase", -1, budget->bytes) : NULL;
    if (!finding)
        return;
    finding->what = gp_gate_text(judge->out, "the peak in phase %s", budget->name);
    finding->bytes = found->peak_bytes;
    finding->at_ns = since(judge, found->peak_ns);
    finding->ok = finding->bytes <= budget->bytes;
    if (!finding->ok && found->part_count)
        gp_gate_place(judge->out, &finding->culprit, judge->report, found->parts[0].site, found->parts[0].added_bytes);
}

static void judge_leak(struct judge *judge, const struct gp_budget *budget)
{
    const struct gp_leaks *leaks = judge->report->leaks;
    struct gp_gate_finding *finding = judge_add(judge, "leak", -1, budget->bytes);
    if (!finding)
        return;
    double sum = 0;
    for (uint32_t i = 0; i < leaks->count; i++)
        sum += leaks->suspects[i].bytes_per_step;
    finding->what = gp_gate_text(judge->out, "the growth of memory per step");
    finding->unknown =
        !leaks->count && (leaks->steps < 4 || leaks->candidates > 0 || judge->report->steps->source == GP_STEPS_TIME);
    finding->bytes = sum < 9e18 ? (int64_t)(sum + 0.5) : INT64_MAX;
    finding->ok = finding->bytes <= budget->bytes;
    if (!finding->ok)
        gp_gate_place(judge->out, &finding->culprit, judge->report, leaks->suspects[0].site,
                      (int64_t)leaks->suspects[0].bytes_per_step);
}

bool gp_budgets_judge(struct gp_findings *out, struct gp_report *report, struct gp_budgets *budgets)
{
    struct judge judge = {.out = out, .report = report};
    const struct gp_recording *recording = report->recording;
    bool ok = true, uses = false, leaks = false;
    for (uint32_t i = 0; i < budgets->count; i++) {
        uses |= budgets->rows[i].kind == GP_BUDGET_USE || budgets->rows[i].kind == GP_BUDGET_PHASE;
        leaks |= budgets->rows[i].kind == GP_BUDGET_LEAK;
    }
    if (uses)
        ok = gp_report_uses_find(report, &judge.uses);
    else if (leaks)
        ok = gp_report_run(report, GP_REPORT_LEAKS, GP_DETAIL_SUMMARY) == 0;
    budgets->judged = true;
    for (uint32_t i = 0; ok && i < budgets->count; i++) {
        struct gp_budget *budget = &budgets->rows[i];
        switch (budget->kind) {
        case GP_BUDGET_RANK:
            /* A rank that the job has may be in another recording. */
            budget->matched |= recording->has_rank && budget->number < recording->world_size;
            if (recording->has_rank && recording->rank == budget->number)
                judge_devices(&judge, budget);
            break;
        case GP_BUDGET_USE:
            judge_use(&judge, budget);
            break;
        case GP_BUDGET_LINE:
        case GP_BUDGET_OPERATION:
            judge_sites(&judge, budget);
            break;
        case GP_BUDGET_PHASE:
            judge_phase(&judge, budget);
            break;
        case GP_BUDGET_LEAK:
            judge_leak(&judge, budget);
            break;
        default:
            judge_devices(&judge, budget);
        }
    }
    gp_report_uses_free(&judge.uses);
    return ok && !out->failed;
}

void gp_budgets_unmatched(struct gp_findings *out, const struct gp_budgets *budgets)
{
    for (uint32_t i = 0; budgets->judged && i < budgets->count; i++) {
        const struct gp_budget *budget = &budgets->rows[i];
        bool named = budget->kind == GP_BUDGET_RANK || budget->kind == GP_BUDGET_LINE ||
                     budget->kind == GP_BUDGET_OPERATION || budget->kind == GP_BUDGET_PHASE;
        struct gp_gate_finding *finding =
            named && !budget->matched ? gp_finding_add(out, gp_budget_kind_name(budget->kind), NULL) : NULL;
        if (!finding)
            continue;
        finding->what = gp_gate_text(out, "%s %s", gp_budget_kind_name(budget->kind), budget->name);
        finding->limit_bytes = budget->bytes;
        finding->ok = false;
        finding->unknown = true;
    }
}
