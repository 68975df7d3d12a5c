/* SPDX-License-Identifier: MIT
 *
 * dryrunjson.c: the answer of `gpuprof dryrun` as JSON, schema gpuprof.dryrun/1; see
 * dryrunformat.h.
 */
#include <analyze/report.h>
#include <jansson.h>
#include <read/recording/recording.h>
#include <show/text/dryrunformat.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <stdio.h>

#include <inttypes.h>
#include <read/common/hash.h>
#include <show/text/stats.h>
#include <show/text/write.h>
#include <string.h>

static const char *const verdicts[] = {
    [GP_DRYRUN_FITS] = "fits", [GP_DRYRUN_TOO_LARGE] = "does_not_fit", [GP_DRYRUN_FAILED] = "failed"};

/* Adds function, file, line and operation, and the words of the text. */
static json_t *json_place(json_t *object, const struct gp_need_place *place)
{
    json_object_set_new(object, "function", gp_json_text(place->function));
    json_object_set_new(object, "file", gp_json_text(place->file));
    json_object_set_new(object, "line", gp_json_known(place->line ? (int64_t)place->line : -1));
    json_object_set_new(object, "operation", gp_json_text(place->operation));
    json_object_set_new(object, "text", gp_json_text(place->text));
    return object;
}

static json_t *json_moment(const struct gp_need_moment *moment)
{
    json_t *object = json_pack("{s:I,s:o,s:I,s:o}", "time_ns", (json_int_t)moment->since_ns, "step",
                               gp_json_known(moment->step ? (int64_t)moment->step : -1), "asked_bytes",
                               (json_int_t)moment->bytes, "free_bytes", gp_json_known(moment->free_bytes));
    return object ? json_place(object, &moment->place) : NULL;
}

static void json_refused_add(json_t *rows, const struct gp_need *need)
{
    for (uint32_t i = 0; i < need->refused_count; i++) {
        const struct gp_need_refused *refused = &need->refused[i];
        json_t *row = json_pack("{s:I,s:I}", "bytes", (json_int_t)refused->bytes, "count", (json_int_t)refused->count);
        json_array_append_new(rows, row ? json_place(row, &refused->place) : NULL);
    }
}

/* Of the whole run.  A context that got no memory has no size and no line. */
static json_t *json_refused(const struct gp_dryrun_run *run)
{
    static const struct gp_need_place nowhere;
    json_t *rows = json_array();
    for (uint32_t i = 0; run && i < run->need_count; i++)
        json_refused_add(rows, &run->needs[i]);
    if (run && run->contextless) {
        json_t *row = json_pack("{s:I,s:I}", "bytes", (json_int_t)0, "count", (json_int_t)run->contextless);
        json_array_append_new(rows, row ? json_place(row, &nowhere) : NULL);
    }
    return rows;
}

static json_t *json_gpu(const struct gp_dryrun_answer *answer, const struct gp_dryrun_gpu *gpu)
{
    const struct gp_need *failed =
        gpu->failed == GP_REC_NONE ? NULL : gp_dryrun_broken(&answer->runs[gpu->failed], false);
    const struct gp_need *over = gp_dryrun_broken(&answer->runs[gpu->run], true);
    const struct gp_dryrun_run *run = &answer->runs[gpu->failed == GP_REC_NONE ? gpu->run : gpu->failed];
    bool used = run->need_count, known = used && gpu->verdict != GP_DRYRUN_FAILED;
    return json_pack("{s:s,s:s,s:s,s:I,s:o,s:o,s:b,s:o,s:o,s:o,s:o,s:o}", "gpu", gpu->key, "name", gpu->name,
                     "capability", gpu->capability, "total_bytes", (json_int_t)gpu->total_bytes, "fits",
                     known ? json_boolean(gpu->verdict == GP_DRYRUN_FITS) : json_null(), "verdict",
                     used || gpu->verdict == GP_DRYRUN_FAILED ? json_string(verdicts[gpu->verdict]) : json_null(),
                     "run", (int)gpu->own, "needed_bytes", gp_json_known(gpu->needed_bytes), "smallest_bytes",
                     gp_json_known(gpu->smallest_bytes), "fails", failed ? json_moment(&failed->failed) : json_null(),
                     "over_budget", over ? json_moment(&over->broke) : json_null(), "refused", json_refused(run));
}

/* The names of the contract; each has a key also where it is 0. */
static const char *json_use(unsigned use)
{
    return use == GP_USE_WORKSPACE ? "workspaces" : gp_use_name((enum gp_use)use);
}

static json_t *json_uses(const struct gp_need *need)
{
    json_t *uses = json_object();
    for (unsigned use = 0; use < GP_USES; use++)
        json_object_set_new(uses, json_use(use), json_integer((json_int_t)need->uses[use]));
    return uses;
}

static json_t *json_uses_sure(const struct gp_need *need)
{
    json_t *uses = json_object();
    for (unsigned use = 0; use < GP_USES; use++)
        json_object_set_new(uses, json_use(use), json_real(need->sure[use]));
    return uses;
}

static json_t *json_holders(const struct gp_need *need)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < need->line_count; i++) {
        const struct gp_need_line *line = &need->lines[i];
        json_t *row = json_pack("{s:I,s:I,s:s,s:I,s:I}", "bytes", (json_int_t)line->bytes, "blocks",
                                (json_int_t)line->count, "use", gp_use_name(line->use), "life_ns",
                                (json_int_t)line->life_ns, "spared_bytes", (json_int_t)line->spared_bytes);
        json_array_append_new(rows, row ? json_place(row, &line->place) : NULL);
    }
    return rows;
}

/* Whether a process of another run of the program is the one that has this place among the processes: its rank says
 * so, or its turn. */
static bool json_is_same(const struct gp_dryrun_run *run, uint32_t at, const struct gp_dryrun_run *other, uint32_t turn)
{
    const struct gp_need *need = &run->needs[at], *its = &other->needs[turn];
    if (need->rank >= 0 || its->rank >= 0)
        return need->rank == its->rank && need->device == its->device;
    return at == turn || (at + 1 == run->need_count && turn >= run->need_count);
}

/* What the process was refused on the GPU, also where the run that is shown had plenty. */
static json_t *json_rank_refused(const struct gp_dryrun_run *run, uint32_t at, const struct gp_dryrun_run *failed)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < failed->need_count; i++)
        if (run == failed ? i == at : json_is_same(run, at, failed, i))
            json_refused_add(rows, &failed->needs[i]);
    return rows;
}

static json_t *json_stands_for(const struct gp_need *need)
{
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < need->stands_count; i++)
        json_array_append_new(ranks, json_integer(need->stands_for[i]));
    return ranks;
}

static json_t *json_rank(const struct gp_dryrun_run *run, uint32_t at, const struct gp_dryrun_run *failed)
{
    const struct gp_need *need = &run->needs[at];
    int64_t rounding, idle = gp_need_idle(need, &rounding);
    return json_pack(
        "{s:o,s:o,s:o,s:s,s:b,s:o,s:I,s:s,s:i,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:I,s:o,s:o,s:b,s:I,s:o,"
        "s:o,s:o,s:o,s:o,s:o,s:I}",
        "steps_found", gp_json_text(need->steps_found), "repeats",
        gp_json_known(need->repeats ? (int64_t)need->repeats : -1), "repeats_sure",
        need->repeats ? json_real(need->repeats_sure) : json_null(), "gpu", run->gpu, "plenty", (int)run->plenty,
        "rank", gp_json_known(need->rank), "pid", (json_int_t)need->pid, "comm", need->comm, "device",
        (int)need->device, "uuid", gp_json_text(need->uuid), "allocated_peak_bytes",
        (json_int_t)need->allocated_peak_bytes, "reserved_peak_bytes", (json_int_t)need->reserved_peak_bytes,
        "needed_bytes", (json_int_t)need->needed_bytes, "smallest_bytes", (json_int_t)need->smallest_bytes,
        "context_bytes", (json_int_t)need->context_bytes, "code_bytes", (json_int_t)need->code_bytes, "assumed_bytes",
        (json_int_t)need->assumed_bytes, "assumed_reserved_bytes", (json_int_t)need->assumed_reserved_bytes,
        "idle_bytes", (json_int_t)(idle + rounding), "rounding_bytes", (json_int_t)rounding,
        "expandable_segments_bytes", gp_json_known(need->growable_bytes), "peak_ns", (json_int_t)need->peak_ns,
        "peak_step", gp_json_known(need->peak_step ? (int64_t)need->peak_step : -1), "steps",
        gp_json_known(need->steps ? (int64_t)need->steps : -1), "complete", (int)need->complete, "missing_events",
        (json_int_t)need->missing, "uses", json_uses(need), "uses_sure", json_uses_sure(need), "holders",
        json_holders(need), "polled_pool", need->ahead_told ? gp_polled_json(&need->ahead) : json_null(), "refused",
        json_rank_refused(run, at, failed), "stands_for", run->job_ranks ? json_stands_for(need) : json_null(),
        "thread_stack_bytes", (json_int_t)need->stack);
}

/* The program has run on some GPUs twice: the ranks are those of the run that tells what it needs. */
static json_t *json_ranks(const struct gp_dryrun_answer *answer)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < answer->gpu_count; i++) {
        const struct gp_dryrun_gpu *gpu = &answer->gpus[i];
        const struct gp_dryrun_run *run = &answer->runs[gpu->run];
        const struct gp_dryrun_run *failed = gpu->failed == GP_REC_NONE ? run : &answer->runs[gpu->failed];
        for (uint32_t k = 0; gpu->own && k < run->need_count; k++)
            if (!run->job_ranks || run->needs[k].stands_count || run->needs[k].rank < 0)
                json_array_append_new(rows, json_rank(run, k, failed));
    }
    return rows;
}

static json_t *json_notes(const struct gp_dryrun_answer *answer)
{
    const struct gp_dryrun_run *run = &answer->runs[answer->shown];
    json_t *rows = json_array();
    for (uint32_t i = 0; i < run->note_count; i++)
        json_array_append_new(rows, json_pack("{s:s,s:s,s:s,s:I,s:n}", "library", run->notes[i].library, "kind",
                                              run->notes[i].kind, "what", run->notes[i].text, "count",
                                              (json_int_t)run->notes[i].count, "bytes"));
    return rows;
}

static json_t *json_caches(const struct gp_dryrun_answer *answer)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < answer->gpu_count; i++) {
        const struct gp_dryrun_run *run = &answer->runs[answer->gpus[i].run];
        for (uint32_t k = 0; answer->gpus[i].own && k < run->cache_count; k++)
            json_array_append_new(rows, json_pack("{s:s,s:b,s:s,s:I,s:I,s:f,s:I}", "gpu", run->gpu, "plenty",
                                                  (int)run->plenty, "server", run->caches[k].server, "tokens",
                                                  (json_int_t)run->caches[k].tokens, "request_tokens",
                                                  (json_int_t)run->caches[k].request_tokens, "requests",
                                                  (double)run->caches[k].hundredths / 100, "processes",
                                                  (json_int_t)run->caches[k].count));
    }
    return rows;
}

static json_t *json_reads(const struct gp_dryrun_run *run)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < run->read_count; i++) {
        const struct gp_dryrun_read *read = &run->reads[i];
        json_t *row = json_pack("{s:I,s:I}", "count", (json_int_t)read->count, "bytes", (json_int_t)read->bytes);
        json_array_append_new(rows, row ? json_place(row, &read->place) : NULL);
    }
    return rows;
}

static json_t *json_batches(const struct gp_dryrun_answer *answer)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < answer->batch_count; i++) {
        const struct gp_dryrun_batch *batch = &answer->batches[i];
        json_array_append_new(rows,
                              json_pack("{s:I,s:s,s:o}", "batch", (json_int_t)batch->size, "verdict",
                                        verdicts[batch->verdict], "needed_bytes", gp_json_known(batch->needed_bytes)));
    }
    return rows;
}

static json_t *json_messages(const struct gp_dryrun_run *run)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < run->message_count; i++)
        json_array_append_new(rows, gp_json_text(run->messages[i].text));
    return rows;
}

/* Files of --merge. */
static json_t *json_left(const struct gp_dryrun_run *run)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < run->left_count; i++)
        json_array_append_new(rows, json_pack("{s:o,s:o}", "file", gp_json_text(run->left[i].file), "why",
                                              gp_json_text(run->left[i].why)));
    return rows;
}

json_t *gp_dryrun_json(const struct gp_dryrun_answer *answer)
{
    const struct gp_dryrun_run *run = &answer->runs[answer->shown];
    const struct gp_need *worst = gp_dryrun_worst(run);
    json_t *command = json_array(), *gpus = json_array();
    for (char *const *word = answer->command; *word; word++) {
        json_t *text = json_string(*word); /* NULL: not UTF-8 */
        json_array_append_new(command, text ? text : json_null());
    }
    for (uint32_t i = 0; i < answer->gpu_count; i++)
        json_array_append_new(gpus, json_gpu(answer, &answer->gpus[i]));
    return json_pack(
        "{s:o,s:I,s:o,s:o,s:o,s:s,s:o,s:o,s:i,s:b,s:o,s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:I,s:s,s:o,s:o,s:o,s:I,s:o,s:o,s:o,"
        "s:o}",
        "world", gp_json_known(run->job_ranks ? (int64_t)run->job_ranks : -1), "world_unanswered",
        (json_int_t)run->unanswered, "steps_found", gp_json_text(worst ? worst->steps_found : NULL), "repeats",
        gp_json_known(worst && worst->repeats ? (int64_t)worst->repeats : -1), "repeats_sure",
        worst && worst->repeats ? json_real(worst->repeats_sure) : json_null(), "schema", "gpuprof.dryrun/1", "tried",
        gp_changes_json(answer), "command", command, "status", run->status, "ended", (int)run->ended, "steps",
        gp_json_known(worst && worst->steps ? (int64_t)worst->steps : -1), "budget_bytes",
        gp_json_known(answer->budget_bytes ? answer->budget_bytes : -1), "over_budget", (int)answer->over, "enough",
        gp_json_text(answer->enough ? answer->enough->key : NULL), "gpus", gpus, "ranks", json_ranks(answer),
        "assumptions", json_notes(answer), "read_back", json_reads(run), "written_bytes",
        (json_int_t)run->written_bytes, "fill", answer->random ? "random" : "zeros", "batches", json_batches(answer),
        "batch_more_bytes",
        gp_json_known(gp_dryrun_batch_more(answer) > 0 ? (int64_t)gp_dryrun_batch_more(answer) : -1), "batch_largest",
        gp_json_known(gp_dryrun_batch_largest(answer) ? gp_dryrun_batch_largest(answer)->size : -1), "cut_recordings",
        (json_int_t)run->cut, "left_out", json_left(run), "messages", json_messages(run), "kv_caches",
        json_caches(answer), "imbalance", answer->imbalance > 0 ? json_real(answer->imbalance) : json_null());
}
