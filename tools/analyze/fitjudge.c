/* SPDX-License-Identifier: MIT
 *
 * fitjudge.c: answers for one device whether a recorded program fits, and with which allocator; see
 * fit.h. Called by the command `fit`.
 */
#include <analyze/fit.h>
#include <analyze/flow.h>
#include <analyze/ranges.h>
#include <base/compiler.h>
#include <cache/policy.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An allocator that was asked for. */
struct gp_fit_choice {
    const char *allocator, *conf;
};

#define GP_FIT_EXPANDABLE "expandable_segments:True"

static const struct gp_fit_choice judge_choices[] = {
    {"off", ""},         {"caching", ""},  {"pytorch", ""},     {"pytorch", GP_FIT_EXPANDABLE},
    {"auto_growth", ""}, {"prealloc", ""}, {"passthrough", ""},
};

struct gp_fit_judge {
    const struct gp_flow *flow;
    const struct gp_fit_question *question;
    struct gp_fit_result *result;
    struct gp_fit_trace *trace;    /* the requests */
    struct gp_fit_trace *recorded; /* with a framework's segments as they were; NULL: not needed yet */
    bool explained;                /* result->unexplained_bytes is known */
    uint64_t bare;                 /* an estimated context of a large device, without kernels */
};

static bool judge_same(const struct gp_fit_choice *one, const struct gp_fit_choice *other)
{
    return strcmp(one->allocator, other->allocator) == 0 && strcmp(one->conf, other->conf) == 0;
}

/* ---- one allocator ----------------------------------------------------------------------------------------------- */

/* Of gpuprof's policies the recording has the name, not the settings; but segments that grew are a setting. */
static const char *judge_grown(const struct gp_fit_judge *j)
{
    const struct gp_policy *policy = gp_policy_find(j->flow->recording->allocator);
    return j->trace->growable && !policy->growable ? GP_FIT_EXPANDABLE : "";
}

static struct gp_fit_choice judge_as_recorded(const struct gp_fit_judge *j)
{
    switch (j->trace->requests) {
    case GP_FIT_OF_CACHE:
        if (gp_policy_find(j->flow->recording->allocator))
            return (struct gp_fit_choice){gp_policy_find(j->flow->recording->allocator)->name, judge_grown(j)};
        return (struct gp_fit_choice){"caching", ""};
    case GP_FIT_OF_FRAMEWORK:
        return (struct gp_fit_choice){"pytorch", j->trace->growable ? GP_FIT_EXPANDABLE : ""};
    default:
        return (struct gp_fit_choice){"off", ""};
    }
}

static bool judge_is_foreign(const struct gp_fit_judge *j)
{
    return j->trace->requests == GP_FIT_OF_FRAMEWORK || j->trace->requests == GP_FIT_OF_OTHERS;
}

/* Without an allocator of ours, that of the program stays as it was recorded. */
static const struct gp_fit_trace *judge_trace(struct gp_fit_judge *j, const struct gp_fit_choice *choice)
{
    if (strcmp(choice->allocator, "off") != 0 || !judge_is_foreign(j))
        return j->trace;
    if (!j->recorded)
        j->recorded = gp_fit_trace_new(j->flow, j->trace->device, true);
    return j->recorded;
}

/* policy: where the setup's policy is kept. */
static struct gp_fit_setup judge_setup(const struct gp_fit_judge *j, const struct gp_fit_choice *choice,
                                       struct gp_policy *policy)
{
    const struct gp_policy *found = gp_policy_find(choice->allocator);
    struct gp_fit_setup setup = {.yields = !judge_is_foreign(j), .progress = j->question->progress};
    char why[512];
    if (!found)
        return setup;
    *policy = *found;
    policy->whole_pages = judge_is_foreign(j) && !policy->moves_pages; /* gpuprof's own does not map so */
    if (choice->conf[0])
        gp_policy_configure(policy, choice->conf, why, sizeof(why));
    setup.policy = policy;
    return setup;
}

/* What one program holds besides its requests and its context. */
static uint64_t judge_other(const struct gp_fit_judge *j, const struct gp_fit_choice *choice)
{
    bool same = strcmp(choice->allocator, judge_as_recorded(j).allocator) == 0;
    return same ? j->result->unexplained_bytes : 0;
}

/* Of each thread of its kernels, if any ran. */
static uint32_t judge_stack(const struct gp_fit_judge *j)
{
    const uint32_t stack = j->question->stack ? j->question->stack : GP_FIT_THREAD_STACK;
    return j->trace && j->trace->code ? stack : 0;
}

/* The device on which each program has so much for its requests, with contexts that are those of the GPU in question ... */
static uint64_t judge_whole(const struct gp_fit_judge *j, const struct gp_fit_choice *choice, uint64_t bytes)
{
    return (bytes + judge_other(j, choice) + j->result->context_bytes) * j->question->tenants;
}

/* ... or of a GPU of that size. */
static uint64_t judge_smallest(const struct gp_fit_judge *j, const struct gp_fit_choice *choice, uint64_t bytes)
{
    const unsigned tenants = j->question->tenants;
    const uint32_t stack = judge_stack(j);
    if (j->result->context != GP_FIT_ESTIMATED)
        return judge_whole(j, choice, bytes);
    return gp_fit_context_device((bytes + judge_other(j, choice)) * tenants, j->bare, stack ? 0 : tenants,
                                 stack ? tenants : 0, stack);
}

/* What one program gets of the device for its requests. */
static uint64_t judge_room(const struct gp_fit_judge *j, const struct gp_fit_choice *choice)
{
    const uint64_t gpu = j->question->gpu_bytes;
    uint64_t share = gpu / j->question->tenants, context = j->result->context_bytes;
    if (j->result->context == GP_FIT_ESTIMATED)
        context = gp_fit_context_with(gp_fit_context_in(j->bare, gpu), judge_stack(j));
    uint64_t other = judge_other(j, choice) + context;
    return share > other ? share - other : 0;
}

/* Where the replay is that of the recorded program, what it held and the replay does not hold counts
 * in addition: memory of other streams, private pools, blocks that waited for work. */
static void judge_beyond(struct gp_fit_judge *j, const struct gp_fit_choice *choice, const struct gp_fit_sizes *fit)
{
    const struct gp_fit_choice own = judge_as_recorded(j);
    const struct gp_policy *policy = gp_policy_find(choice->allocator);
    uint64_t held = j->trace->reserved_bytes;
    bool relative = policy && policy->first_fraction > 0;
    if (j->trace->requests == GP_FIT_OF_CACHE && judge_same(choice, &own) && !relative && held > fit->enough_bytes)
        j->result->unexplained_bytes = held - fit->enough_bytes;
}

/* The recorded segments of one stream cannot serve another one, but the events of a framework do not
 * tell the streams of its blocks.  So more may have been held than the replay needs.  fit: of the choice. */
static int judge_unexplained(struct gp_fit_judge *j, const struct gp_fit_choice *choice, const struct gp_fit_sizes *fit)
{
    const struct gp_fit_choice own = judge_as_recorded(j);
    struct gp_policy policy;
    struct gp_fit_setup setup = judge_setup(j, &own, &policy);
    struct gp_fit_end end = {.failed = j->trace->count, .peak = fit->plenty_bytes};
    setup.recorded = true;
    if (j->trace->requests != GP_FIT_OF_FRAMEWORK || j->explained)
        return 0;
    j->explained = true;
    bool known = judge_same(choice, &own) && fit->plenty_bytes && !j->trace->refused;
    int rc = known ? 0 : gp_fit_play(j->trace, &setup, j->trace->load_bytes * 4 + (1ull << 30), &end);
    if (!rc && end.failed == j->trace->count && j->trace->reserved_bytes > end.peak)
        j->result->unexplained_bytes = j->trace->reserved_bytes - end.peak;
    return rc;
}

static int judge_row(struct gp_fit_judge *j, const struct gp_fit_choice *choice, struct gp_fit_row *row)
{
    const struct gp_fit_trace *trace = judge_trace(j, choice);
    struct gp_policy policy;
    struct gp_fit_setup setup = judge_setup(j, choice, &policy);
    struct gp_fit_sizes fit;
    int rc = trace ? gp_fit_find(trace, &setup, &fit) : -ENOMEM;
    rc = rc ? rc : judge_unexplained(j, choice, &fit);
    if (rc)
        return rc;
    judge_beyond(j, choice, &fit);
    if (row == j->result->rows) {
        j->result->spare_bytes = fit.spare_bytes;
        j->result->least_bytes = fit.smallest_bytes + judge_other(j, choice);
    }
    uint64_t room = judge_room(j, choice);
    *row = (struct gp_fit_row){.allocator = choice->allocator,
                               .conf = choice->conf,
                               .fits = room >= fit.enough_bytes,
                               .step_bytes = fit.step_bytes * j->question->tenants};
    /* Below what is enough nothing is certain: a cache may fit a size and not a larger one. */
    const bool below = room < fit.smallest_bytes;
    if (!row->fits && (!below || ((setup.policy || trace->pools) && room > trace->load_bytes + fit.spare_bytes)))
        rc = gp_fit_fits(trace, &setup, room - fit.spare_bytes, &row->fits, NULL, &fit);
    row->by_chance = below && row->fits;
    row->replays = fit.replays;
    row->peak_bytes = judge_whole(j, choice, fit.enough_bytes);
    row->smallest_bytes = judge_smallest(j, choice, fit.smallest_bytes);
    if (row == j->result->rows)
        j->result->small_context_bytes = row->smallest_bytes / j->question->tenants - j->result->least_bytes;
    return rc;
}

/* ---- the failure ------------------------------------------------------------------------------------------------- */

static int judge_failure(struct gp_fit_judge *j, const struct gp_fit_choice *choice)
{
    struct gp_fit_result *result = j->result;
    const struct gp_recording *recording = j->flow->recording;
    const struct gp_fit_trace *trace = judge_trace(j, choice);
    struct gp_policy policy;
    struct gp_fit_setup setup = judge_setup(j, choice, &policy);
    struct gp_fit_end end;
    uint64_t room = judge_room(j, choice), spare = j->result->spare_bytes;
    int rc = trace ? gp_fit_play(trace, &setup, room, &end) : -ENOMEM;
    /* It may fail with falling addresses only, or without what the search leaves over. */
    for (unsigned i = 1; !rc && i < 4 && end.failed == trace->count; i++) {
        setup.downward = i & 1;
        room -= i == 2 && room > spare ? spare : 0;
        rc = gp_fit_play(trace, &setup, room, &end);
    }
    result->event = GP_REC_NONE;
    result->fails_ns = recording->begin_ns;
    if (rc || !room || end.failed == trace->count)
        return rc;
    const struct gp_fit_op *op = &trace->ops[end.failed];
    result->event = op->event;
    result->asked_bytes = op->bytes;
    result->free_bytes = room - end.used;
    if (op->event != GP_REC_NONE)
        result->fails_ns = recording->events[op->event].time_ns;
    return 0;
}

/* ---- what was refused -------------------------------------------------------------------------------------------- */

static bool judge_is_here(const struct gp_fit_judge *j, uint32_t event)
{
    uint8_t device = j->flow->recording->events[event].device;
    return device == j->result->device || device == GP_REC_NO_DEVICE;
}

static int judge_refused(struct gp_fit_judge *j)
{
    const struct gp_recording *recording = j->flow->recording;
    struct gp_fit_result *result = j->result;
    struct gp_refused *refused = gp_refused_find(recording);
    size_t failed = 0;
    for (uint32_t i = 0; refused && i < recording->event_count; i++)
        failed += recording->events[i].type == GP_EVENT_OOM && judge_is_here(j, i);
    for (size_t i = 0; refused && i < refused->count; i++) {
        const struct gp_rec_event *event = &recording->events[refused->events[i]];
        if (!judge_is_here(j, refused->events[i]))
            continue;
        if (!result->refused_requests++ || event->bytes > result->refused_bytes) {
            result->refused_bytes = event->bytes;
            result->refused_event = refused->events[i];
        }
        result->refused_context |= !event->bytes;
    }
    result->retried_requests = failed - result->refused_requests;
    free(refused);
    return refused ? 0 : -ENOMEM;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int judge_rows(struct gp_fit_judge *j)
{
    struct gp_fit_result *result = j->result;
    const struct gp_fit_question *question = j->question;
    struct gp_fit_choice first = judge_as_recorded(j);
    if (question->allocator)
        first = (struct gp_fit_choice){question->allocator, ""};
    if (question->conf)
        first.conf = question->conf;
    int rc = judge_row(j, &first, &result->rows[result->count++]);
    for (size_t i = 0; !rc && question->all && i < GP_COUNT(judge_choices); i++) {
        if (!judge_same(&judge_choices[i], &first))
            rc = judge_row(j, &judge_choices[i], &result->rows[result->count++]);
    }
    if (!rc && !result->rows[0].fits)
        rc = judge_failure(j, &first);
    return rc;
}

int gp_fit_judge_levels(const struct gp_flow *flow, uint32_t device, gp_fit_held_fn *held, void *arg)
{
    struct gp_fit_trace *trace = gp_fit_trace_new(flow, device, true);
    const struct gp_fit_setup setup = {.recorded = true, .held = held, .held_arg = arg};
    struct gp_fit_end end;
    int rc = trace ? gp_fit_play(trace, &setup, INT64_MAX, &end) : -ENOMEM;
    gp_fit_trace_free(trace);
    return rc;
}

int gp_fit_judge_held(const struct gp_flow *flow, struct gp_fit_result *result)
{
    uint64_t at = 0;
    /* Before the request: a moment of 0 would ask for the peak. */
    if (!result->rows[0].fits)
        at = result->fails_ns > 1 ? result->fails_ns - 1 : 1;
    result->held = gp_flow_peak(flow, result->device, at);
    return result->held ? 0 : -ENOMEM;
}

int gp_fit_judge(const struct gp_flow *flow, uint32_t device, const struct gp_fit_question *question,
                 struct gp_fit_result *result)
{
    const struct gp_recording *recording = flow->recording;
    *result = (struct gp_fit_result){.device = device, .event = GP_REC_NONE};
    struct gp_fit_judge judge = {.flow = flow, .question = question, .result = result};
    const bool off = question->all || !question->allocator || strcmp(question->allocator, "off") == 0;
    judge.trace = off ? gp_fit_trace_new(flow, device, false) : gp_fit_trace_cached(flow, device);
    const uint64_t own = recording->devices[device].last.flags >> GP_DEVICE_THREADS_SHIFT;
    judge.bare = gp_fit_context_of(question->threads ? question->threads : own * GP_DEVICE_THREADS_UNIT);
    result->context =
        gp_fit_context_find(recording, device, question->threads, judge_stack(&judge), &result->context_bytes);
    if (question->context_bytes >= 0) {
        result->context = GP_FIT_GIVEN;
        result->context_bytes = (uint64_t)question->context_bytes;
    }
    int rc = judge.trace ? 0 : -ENOMEM;
    if (!rc) {
        result->requests = judge.trace->requests;
        result->kernels = judge.trace->code;
        result->requested_bytes = judge.trace->load_bytes;
        rc = judge_refused(&judge);
        rc = rc ? rc : judge_rows(&judge);
    }
    gp_fit_trace_free(judge.trace);
    gp_fit_trace_free(judge.recorded);
    return rc;
}

void gp_fit_result_fini(struct gp_fit_result *result)
{
    free(result->held);
    *result = (struct gp_fit_result){0};
}
