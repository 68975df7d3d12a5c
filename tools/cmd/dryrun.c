/* SPDX-License-Identifier: MIT
 * dryrun.c: `gpuprof dryrun`: what a program would need of a GPU that this machine does not have.
 * Decides on which simulated GPUs the program runs and what follows for the others.  Called by
 * dryrunoptions.c; dryrun.h has the parts. */
#include <cmd/cmd.h>
#include <cmd/dryrunoptions.h>
#include <cmd/load.h>
#include <dryrun/dryrun.h>
#include <dryrun/merge.h>
#include <read/common/hash.h>
#include <run/recorded.h>
#include <show/text/dryrunformat.h>

#include <errno.h>
#include <gpuprof/wire.h>
#include <record/recorder.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_DRYRUN_PLENTY "1TiB" /* the most that the simulator takes */

struct dryrun_work {
    struct gp_dryrun_options *o;
    struct gp_dryrun_job job;
    struct gp_dryrun_answer answer;
    struct gp_sim_gpu *table;
    uint32_t table_count;
    bool all;
    struct gp_world world;
    struct gp_dryrun_merge merge;
    char *const *program; /* without the launcher in front of it */
    char **argv;          /* of the batch that runs */
    int ended;            /* --try: the exit status of what ended it; what it had tried is shown */
    struct gp_budgets budgets;
    struct gp_findings gate;
};

/* ---- which GPUs -------------------------------------------------------------------------------------------------- */

/* GP_EXIT_OK with the GPU, or an exit status after a message. */
static int dryrun_find(const struct dryrun_work *w, const char *name, const struct gp_sim_gpu **gpu)
{
    char key[GP_SIM_KEY];
    int rc = gp_launch_gpu_key("dryrun", "--gpu=", name, key);
    for (uint32_t i = 0; !rc && i < w->table_count; i++) {
        *gpu = &w->table[i];
        if (strcmp(w->table[i].key, key) == 0)
            return GP_EXIT_OK;
    }
    return rc ? rc : gp_usage_error("dryrun", "--gpu=%s: no GPU of that name; --list shows the names", name);
}

static void dryrun_add(struct dryrun_work *w, const struct gp_sim_gpu *gpu, int64_t memory)
{
    struct gp_dryrun_gpu *row = &w->answer.gpus[w->answer.gpu_count++];
    *row = (struct gp_dryrun_gpu){.total_bytes = memory > 0 ? memory : gpu->total_bytes,
                                  .threads = gpu->threads,
                                  .verdict = GP_DRYRUN_FAILED, /* until it has run */
                                  .failed = GP_REC_NONE,
                                  .needed_bytes = -1,
                                  .smallest_bytes = -1};
    snprintf(row->key, sizeof(row->key), "%s", gpu->key);
    snprintf(row->name, sizeof(row->name), "%s", gpu->name);
    snprintf(row->capability, sizeof(row->capability), "%s", gpu->capability);
}

/* By capability, and of one capability the largest first: the program runs on that one. */
static int dryrun_compare(const void *one, const void *other)
{
    const struct gp_dryrun_gpu *a = one, *b = other;
    double capability = atof(a->capability) - atof(b->capability);
    if (capability != 0)
        return capability < 0 ? -1 : 1;
    return a->total_bytes != b->total_bytes ? (a->total_bytes < b->total_bytes ? 1 : -1) : strcmp(a->key, b->key);
}

static int dryrun_gpus(struct dryrun_work *w)
{
    const char *text = w->o->gpu ? w->o->gpu : GP_DRYRUN_GPU;
    int64_t memory = 0;
    int rc = gp_launch_gpu_table("dryrun", &w->table, &w->table_count);
    if (!rc && w->o->memory)
        gp_text_size_parse(w->o->memory, &memory);
    char *copy = strdup(text), *rest = copy, *name;
    size_t names = 1;
    for (const char *at = text; *at; at++)
        names += *at == ',';
    w->all = strcmp(text, "all") == 0;
    w->answer.gpus = calloc(names + w->table_count, sizeof(*w->answer.gpus));
    if (!rc && (!copy || !w->answer.gpus))
        rc = gp_memory_error("dryrun");
    for (uint32_t i = 0; !rc && w->all && i < w->table_count; i++)
        dryrun_add(w, &w->table[i], memory);
    while (!rc && !w->all && (name = strsep(&rest, ","))) {
        const struct gp_sim_gpu *gpu = NULL;
        rc = dryrun_find(w, name, &gpu);
        if (!rc)
            dryrun_add(w, gpu, memory);
    }
    if (!rc && w->all)
        qsort(w->answer.gpus, w->answer.gpu_count, sizeof(*w->answer.gpus), dryrun_compare);
    free(copy);
    return rc;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* A signal that ends commands has arrived; they are blocked since the first run. */
static int dryrun_interrupted(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t pending;
    sigpending(&pending);
    for (size_t i = 0; i < GP_COUNT(ends); i++)
        if (sigismember(&pending, ends[i]))
            return 128 + ends[i];
    return 0;
}

/* The number of the run, or an exit status after a message in *rc. */
static uint32_t dryrun_once(struct dryrun_work *w, const struct gp_dryrun_gpu *gpu, bool plenty, int *rc)
{
    struct gp_dryrun_run *grown = realloc(w->answer.runs, (w->answer.run_count + 1ul) * sizeof(*grown));
    *rc = grown ? dryrun_interrupted() : gp_memory_error("dryrun");
    if (grown)
        w->answer.runs = grown;
    if (*rc)
        return 0;
    *rc = gp_dryrun_run(&w->job, gpu, plenty ? GP_DRYRUN_PLENTY : NULL, &grown[w->answer.run_count]);
    grown[w->answer.run_count].total_bytes = plenty ? 1ll << 40 : gpu->total_bytes;
    return w->answer.run_count++;
}

/* A request that nothing served counts whatever the status: shells, pools of workers and loops that halve a batch
 * hide it.  If events are missing, the last failure may be one. */
static bool dryrun_no_memory(const struct gp_dryrun_run *run)
{
    return gp_dryrun_refused(run) || (gp_dryrun_failed(run) && gp_dryrun_broken(run, false));
}

/* The bytes of the fullest device, of all processes that use it, with their contexts on this GPU. */
static int dryrun_sizes(struct gp_dryrun_gpu *gpu, const struct gp_dryrun_run *run)
{
    bool ok = gp_dryrun_sum(run, gpu->threads, &gpu->needed_bytes, &gpu->smallest_bytes);
    return ok ? GP_EXIT_OK : gp_memory_error("dryrun");
}

/* Another GPU with the same capability, on which the program ran. */
static const struct gp_dryrun_gpu *dryrun_like(const struct dryrun_work *w, const struct gp_dryrun_gpu *gpu)
{
    for (const struct gp_dryrun_gpu *other = w->answer.gpus; other < gpu; other++)
        if (other->own && strcmp(other->capability, gpu->capability) == 0)
            return other;
    return NULL;
}

/* A pool that was taken ahead fails without asking the driver: whether it was too small shows where there is plenty. */
static int dryrun_pool(struct dryrun_work *w, struct gp_dryrun_gpu *gpu)
{
    const struct gp_need *need = gp_dryrun_worst(&w->answer.runs[gpu->run]);
    int rc = GP_EXIT_OK;
    if (!need || !need->ahead.pool_bytes)
        return rc;
    fprintf(stderr,
            "gpuprof: dryrun: CMD failed on %s, where it has taken its memory ahead: it runs once more on a device of "
            "%s, which shows whether that was too little\n",
            gpu->key, GP_DRYRUN_PLENTY);
    uint32_t run = dryrun_once(w, gpu, true, &rc);
    if (rc || gp_dryrun_failed(&w->answer.runs[run]))
        return rc;
    gpu->verdict = GP_DRYRUN_TOO_LARGE;
    gpu->failed = gpu->run;
    gpu->run = run;
    return rc;
}

/* Runs the program on the GPU. */
static int dryrun_first(struct dryrun_work *w, struct gp_dryrun_gpu *gpu)
{
    int rc;
    gpu->own = true;
    gpu->run = dryrun_once(w, gpu, false, &rc);
    if (rc)
        return rc;
    const struct gp_dryrun_run *run = &w->answer.runs[gpu->run];
    if (run->status == GP_EXIT_CANNOT_RUN || run->status == GP_EXIT_NOT_FOUND)
        return run->status;
    if (dryrun_no_memory(run)) {
        gpu->verdict = GP_DRYRUN_TOO_LARGE;
        gpu->failed = gpu->run;
        return GP_EXIT_OK;
    }
    gpu->verdict = gp_dryrun_failed(run) ? GP_DRYRUN_FAILED : GP_DRYRUN_FITS;
    if (gpu->verdict == GP_DRYRUN_FAILED)
        rc = dryrun_pool(w, gpu);
    if (!rc)
        rc = dryrun_sizes(gpu, &w->answer.runs[gpu->run]);
    if (!rc && gpu->verdict == GP_DRYRUN_FITS && gpu->smallest_bytes > gpu->total_bytes)
        gpu->smallest_bytes = gpu->total_bytes; /* it has just run with that */
    return rc;
}

/* ... and once more if its memory was not enough. */
static int dryrun_own(struct dryrun_work *w, struct gp_dryrun_gpu *gpu)
{
    int rc = dryrun_first(w, gpu);
    if (rc || gpu->verdict != GP_DRYRUN_TOO_LARGE || gpu->run != gpu->failed)
        return rc;
    fprintf(stderr,
            "gpuprof: dryrun: CMD ran out of memory on %s: it runs once more on a device of %s, which shows what it "
            "needs\n",
            gpu->key, GP_DRYRUN_PLENTY);
    gpu->run = dryrun_once(w, gpu, true, &rc);
    if (!rc)
        rc = dryrun_sizes(gpu, &w->answer.runs[gpu->run]);
    return rc;
}

static void dryrun_judge(struct gp_dryrun_gpu *gpu)
{
    /* What a context takes is an estimate, here and in the simulator: a run that fits by a hair is no proof. */
    bool small = gpu->needed_bytes > gpu->total_bytes && gpu->smallest_bytes > gpu->total_bytes;
    if (gpu->verdict == GP_DRYRUN_FITS && small)
        gpu->verdict = GP_DRYRUN_TOO_LARGE;
}

static int dryrun_all(struct dryrun_work *w)
{
    int rc = GP_EXIT_OK;
    for (uint32_t i = 0; !rc && i < w->answer.gpu_count; i++) {
        struct gp_dryrun_gpu *gpu = &w->answer.gpus[i];
        const struct gp_dryrun_gpu *like = w->all ? dryrun_like(w, gpu) : NULL;
        if (like) {
            gpu->run = like->run;
            gpu->verdict = like->verdict;
            gpu->failed = like->failed;
            rc = dryrun_sizes(gpu, &w->answer.runs[like->run]);
        } else {
            if (w->answer.gpu_count > 1)
                fprintf(stderr, "gpuprof: dryrun: running on %s\n", gpu->key);
            rc = dryrun_own(w, gpu);
        }
        if (!rc)
            dryrun_judge(gpu);
        if (gpu->verdict == GP_DRYRUN_FAILED || gpu->needed_bytes < 0)
            break; /* on the next GPU it would fail too, or not use it */
    }
    return rc;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static int dryrun_batch_set(struct dryrun_work *w, int64_t size)
{
    gp_dryrun_batch_free(w->argv);
    w->argv = gp_dryrun_batch_argv(w->program, size);
    w->job.launch.argv = w->argv;
    w->world.argv = w->argv;
    return w->argv ? GP_EXIT_OK : gp_memory_error("dryrun");
}

/* Whether the program fits with that batch is seen by running it on the GPU itself. */
static int dryrun_batch_try(struct dryrun_work *w, int64_t size)
{
    int rc = dryrun_batch_set(w, size);
    if (rc)
        return rc;
    struct gp_dryrun_gpu gpu = w->answer.gpus[0];
    gpu.needed_bytes = gpu.smallest_bytes = -1; /* of the batch before */
    fprintf(stderr, "gpuprof: dryrun: running with a batch of %lld\n", (long long)size);
    rc = dryrun_first(w, &gpu);
    if (rc)
        return rc;
    if (gpu.verdict == GP_DRYRUN_FITS && !w->answer.runs[gpu.run].need_count)
        gpu.verdict = GP_DRYRUN_FAILED;
    dryrun_judge(&gpu);
    if (gpu.verdict == GP_DRYRUN_FITS && w->o->budget && gpu.needed_bytes > w->o->budget)
        gpu.verdict = GP_DRYRUN_TOO_LARGE;
    if (gpu.verdict == GP_DRYRUN_FITS) /* the search tries no smaller one after it */
        w->answer.gpus[0] = gpu;
    gp_dryrun_batch_add(&w->answer, (struct gp_dryrun_batch){
                                        .size = size,
                                        .verdict = gpu.verdict,
                                        .run = gpu.run,
                                        .needed_bytes = gpu.verdict == GP_DRYRUN_FAILED ? -1 : gpu.needed_bytes,
                                    });
    return GP_EXIT_OK;
}

/* The largest batch that fits is the run that is shown; if none does, the smallest. */
static int dryrun_batches(struct dryrun_work *w)
{
    int64_t total = w->answer.gpus[0].total_bytes, size;
    int rc = GP_EXIT_OK;
    if (w->o->budget && w->o->budget < total)
        total = w->o->budget;
    w->answer.batches = calloc(GP_DRYRUN_BATCHES, sizeof(*w->answer.batches));
    if (!w->answer.batches)
        return gp_memory_error("dryrun");
    while (!rc && (size = gp_dryrun_batch_next(&w->answer, total)) > 0)
        rc = dryrun_batch_try(w, size);
    if (rc || w->answer.gpus[0].verdict == GP_DRYRUN_FITS)
        return rc;
    rc = dryrun_batch_set(w, w->answer.batches[0].size);
    return rc ? rc : dryrun_own(w, &w->answer.gpus[0]);
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

static int dryrun_change(void *data, const char *change, struct gp_dryrun_gpu *gpu)
{
    struct dryrun_work *w = data;
    w->job.change = change;
    int rc = dryrun_own(w, gpu);
    if (!rc)
        dryrun_judge(gpu);
    return rc;
}

/* The run that only looks is the one that is shown. */
static int dryrun_tries(struct dryrun_work *w)
{
    int rc = dryrun_all(w);
    if (!rc && w->answer.gpus[0].verdict != GP_DRYRUN_FAILED && w->answer.gpus[0].needed_bytes >= 0)
        w->ended = gp_dryrun_try(&w->job, &w->answer, w->o->change, dryrun_change, w);
    return rc;
}

/* ---- ranks that ran elsewhere ------------------------------------------------------------------------------------ */

/* On the GPU of the first file, or on that which is named. */
static int dryrun_merged(struct dryrun_work *w)
{
    struct gp_dryrun_gpu *gpu = &w->answer.gpus[0];
    struct gp_dryrun_merge *merge = &w->merge;
    *merge = (struct gp_dryrun_merge){.files = w->o->launch.argv,
                                      .gpus = w->table,
                                      .gpu_count = w->table_count,
                                      .local = w->o->local_world,
                                      .budget_bytes = w->o->budget};
    for (uint32_t i = 0; i < w->table_count && w->o->gpu; i++)
        if (strcmp(w->table[i].key, gpu->key) == 0)
            merge->gpu = &w->table[i];
    w->answer.runs = calloc(1, sizeof(*w->answer.runs));
    if (!w->answer.runs)
        return gp_memory_error("dryrun");
    w->answer.run_count = 1;
    struct gp_dryrun_run *run = &w->answer.runs[0];
    const bool asked = merge->gpu;
    int rc = gp_dryrun_merge(merge, run);
    if (rc)
        return rc;
    if (merge->command)
        w->answer.command = merge->command;
    w->answer.gpu_count = 0;
    dryrun_add(w, merge->gpu, asked ? 0 : merge->total_bytes);
    run->total_bytes = gpu->total_bytes;
    gpu->own = true;
    rc = dryrun_sizes(gpu, run);
    if (merge->needed_bytes >= gpu->needed_bytes)
        gpu->smallest_bytes = merge->smallest_bytes;
    GP_RAISE(gpu->needed_bytes, merge->needed_bytes);
    const bool large = gpu->needed_bytes > gpu->total_bytes && gpu->smallest_bytes > gpu->total_bytes;
    gpu->verdict = merge->too_large || dryrun_no_memory(run) || large ? GP_DRYRUN_TOO_LARGE
                   : gp_dryrun_failed(run)                            ? GP_DRYRUN_FAILED
                                                                      : GP_DRYRUN_FITS;
    return rc;
}

/* The recordings of the run, to be freed with their list; NULL: out of memory. */
static char **dryrun_files(const struct dryrun_work *w)
{
    size_t count = 0;
    if (!w->o->merge)
        return gp_dryrun_files(&w->job, w->answer.shown);
    count = w->merge.recording_count;
    char **files = calloc(count + 1, sizeof(*files));
    for (size_t i = 0; files && i < count; i++)
        files[i] = strdup(w->merge.recordings[i]);
    return files;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

/* A pool that is taken ahead is the same part of another GPU. */
static bool dryrun_is_enough(const struct dryrun_work *w, const struct gp_dryrun_gpu *one,
                             const struct gp_sim_gpu *other)
{
    const struct gp_dryrun_run *run = &w->answer.runs[one->run];
    const struct gp_need *need = gp_dryrun_worst(run);
    struct gp_dryrun_gpu there = {.threads = other->threads, .needed_bytes = -1}, here = {.threads = one->threads};
    int64_t total = other->total_bytes;
    if (dryrun_sizes(&there, run) != GP_EXIT_OK || dryrun_sizes(&here, run) != GP_EXIT_OK)
        return false;
    /* A merged answer knows what processes of one device need together, and not when each had what. */
    if (one->needed_bytes > here.needed_bytes)
        there.needed_bytes += one->needed_bytes - here.needed_bytes;
    if (!need || !need->ahead.pool_bytes)
        return total >= there.needed_bytes;
    double part = run->total_bytes > 0 ? (double)need->ahead.limit_bytes / (double)run->total_bytes : 1;
    return total >= there.smallest_bytes && (double)total * part >= (double)need->ahead.peak_bytes;
}

/* The smallest GPU that is enough: of those tried, or, if there was only one, of the whole table by its size. */
static void dryrun_enough(struct dryrun_work *w)
{
    struct gp_dryrun_answer *answer = &w->answer;
    const struct gp_dryrun_gpu *one = &answer->gpus[0];
    for (uint32_t i = 0; i < answer->gpu_count; i++) {
        const struct gp_dryrun_gpu *gpu = &answer->gpus[i];
        bool is = gpu->verdict == GP_DRYRUN_FITS && gpu->needed_bytes >= 0;
        if (is && (!answer->enough || gpu->total_bytes < answer->enough->total_bytes))
            answer->enough = gpu;
    }
    if (answer->gpu_count != 1 || w->o->memory || one->verdict == GP_DRYRUN_FAILED || one->needed_bytes < 0)
        return;
    const struct gp_sim_gpu *found = NULL;
    for (uint32_t i = 0; i < w->table_count; i++)
        if (dryrun_is_enough(w, one, &w->table[i]) && (!found || w->table[i].total_bytes < found->total_bytes))
            found = &w->table[i];
    if (!found || (answer->enough && found->total_bytes >= answer->enough->total_bytes))
        return;
    /* The row behind the last is not one that was asked for. */
    dryrun_add(w, found, 0);
    answer->enough = &answer->gpus[--answer->gpu_count];
    answer->enough_by_size = true;
}

static int dryrun_by_size(const void *one, const void *other)
{
    const struct gp_dryrun_gpu *a = one, *b = other;
    return a->total_bytes != b->total_bytes ? GP_ORDER(a->total_bytes, b->total_bytes) : strcmp(a->key, b->key);
}

/* A launcher's ranks take a GPU each; one that finds none fails, and its own message does not say where GPUs come from.
 * A rank without a recording would be missing in the answer unsaid. */
static void dryrun_places(const struct dryrun_work *w)
{
    const struct gp_dryrun_run *fewest = NULL;
    uint32_t places = 0;
    for (uint32_t i = 0; i < w->answer.run_count; i++) {
        const struct gp_dryrun_run *run = &w->answer.runs[i];
        if (gp_dryrun_failed(run))
            GP_RAISE(places, run->places);
        if (run->ranks < run->world && (!fewest || run->ranks < fewest->ranks))
            fewest = run;
    }
    if (w->o->world || w->o->merge) /* the answer says which ranks it is of */
        return;
    if (places > (uint64_t)w->job.devices)
        fprintf(stderr,
                "gpuprof: dryrun: %u ranks of CMD ran on a machine with %lld GPU%s: --devices=%u gives each its own\n",
                places, (long long)w->job.devices, w->job.devices == 1 ? "" : "s", places);
    else if (fewest)
        fprintf(
            stderr,
            "gpuprof: dryrun: only %u of the %u ranks of CMD %s in the answer: the others used no GPU, or could not be "
            "recorded\n",
            fewest->ranks, fewest->world, fewest->ranks == 1 ? "is" : "are");
}

/* ---- budgets ----------------------------------------------------------------------------------------------------- */

/* What each GPU must have, for --budget. */
static void dryrun_gate_gpu(struct dryrun_work *w, const struct gp_dryrun_gpu *gpu)
{
    const struct gp_need *need = gp_dryrun_worst(&w->answer.runs[gpu->run]);
    struct gp_gate_finding *finding =
        need && gpu->needed_bytes >= 0 ? gp_finding_add(&w->gate, "need", gpu->key) : NULL;
    if (!finding)
        return;
    finding->what = gp_gate_text(&w->gate, "what the program needs of a GPU (%s)", gpu->key);
    finding->limit_bytes = w->answer.budget_bytes;
    finding->bytes = gpu->needed_bytes;
    finding->at_ns = (int64_t)need->peak_ns;
    finding->ok = finding->bytes <= finding->limit_bytes;
    if (finding->ok || !need->line_count)
        return;
    const struct gp_need_line *most = &need->lines[0];
    finding->culprit = (struct gp_gate_place){.line = most->place.line, .bytes = most->bytes};
    finding->culprit.function = gp_gate_text(&w->gate, "%s", most->place.function);
    finding->culprit.file = most->place.file[0] ? gp_gate_text(&w->gate, "%s", most->place.file) : NULL;
    finding->culprit.label = gp_gate_text(&w->gate, "%s", most->place.text);
}

/* --budgets are of the run that is shown. */
static int dryrun_gate(struct dryrun_work *w)
{
    int rc = GP_EXIT_OK;
    for (uint32_t i = 0; w->answer.budget_bytes && i < w->answer.gpu_count; i++)
        dryrun_gate_gpu(w, &w->answer.gpus[i]);
    char **files = w->budgets.count ? dryrun_files(w) : NULL;
    if (w->budgets.count && !files)
        return gp_memory_error("dryrun");
    for (size_t i = 0; files && files[i]; i++) {
        if (!rc)
            rc = gp_check_file("dryrun", files[i], &w->budgets, &w->gate);
        free(files[i]);
    }
    free(files);
    gp_budgets_unmatched(&w->gate, &w->budgets);
    return rc;
}

static int dryrun_finish(struct dryrun_work *w)
{
    struct gp_dryrun_answer *answer = &w->answer;
    bool fits = true, failed = false, used = false;
    if (w->all)
        qsort(answer->gpus, answer->gpu_count, sizeof(*answer->gpus), dryrun_by_size);
    answer->shown = answer->gpus[0].run;
    for (uint32_t i = answer->gpu_count; i-- > 0;) {
        const struct gp_dryrun_gpu *gpu = &answer->gpus[i];
        fits &= gpu->verdict != GP_DRYRUN_TOO_LARGE;
        failed |= gpu->verdict == GP_DRYRUN_FAILED;
        if (gpu->own && gpu->verdict == GP_DRYRUN_FITS)
            answer->shown = gpu->run;
    }
    for (uint32_t i = 0; i < answer->run_count; i++)
        used |= answer->runs[i].need_count > 0;
    for (uint32_t i = 0; i < answer->gpu_count; i++)
        answer->over |= answer->budget_bytes && answer->gpus[i].needed_bytes > answer->budget_bytes;
    dryrun_enough(w);
    fits |= w->all && answer->enough;
    dryrun_places(w);
    if (!used) {
        gp_error("dryrun", "no process used a GPU%s",
                 answer->runs[0].status ? ": CMD failed before"
                                        : ": does CMD use CUDA, and does it find the simulated driver?");
        if (w->o->json)
            gp_load_json("dryrun", gp_dryrun_json(answer));
        return GP_EXIT_FAILED;
    }
    int rc = dryrun_gate(w);
    if (rc)
        return rc;
    struct gp_text_page page = gp_load_page();
    json_t *object = w->o->json ? gp_dryrun_json(answer) : NULL;
    if (object && w->gate.count)
        json_object_set_new(object, "verdict", gp_gate_json(&w->gate, "gpuprof.check/1"));
    if (w->o->json)
        rc = gp_load_json("dryrun", object);
    else
        gp_text_dryrun(&page, answer);
    if (w->budgets.count && !w->o->json)
        fputc('\n', stdout);
    int gate = gp_gate_end("dryrun", &w->gate, w->budgets.count && !w->o->json ? stdout : NULL, w->o->gate.junit,
                           GP_EXIT_OVER);
    rc = rc ? rc : failed ? GP_EXIT_FAILED : gate;
    if (rc || !fits || answer->over)
        return rc ? rc : GP_EXIT_OVER;
    return answer->runs[answer->shown].left_count ? GP_EXIT_FAILED
                                                  : GP_EXIT_OK; /* --merge: of a part it is not known */
}

/* ---- what stays -------------------------------------------------------------------------------------------------- */

/* The page of the run that the text shows. */
static int dryrun_page(const struct dryrun_work *w)
{
    if (w->o->merge && !w->merge.recording_count) {
        gp_error("dryrun",
                 "-o %s: answers have no events to draw a page of: name the recordings too, which "
                 "'gpuprof dryrun --record=FILE' keeps",
                 w->o->output);
        return GP_EXIT_FAILED;
    }
    if (w->merge.answer_count)
        fprintf(stderr, "gpuprof: dryrun: -o %s: the page shows the %u recordings; the %u answers have no events\n",
                w->o->output, w->merge.recording_count, w->merge.answer_count);
    char **files = dryrun_files(w);
    struct gp_load_options options = {
        .target = GP_TARGET_INIT("dryrun"), .file_count = 1, .output = w->o->output, .force = w->o->force};
    int rc = files && files[0] ? GP_EXIT_OK : GP_EXIT_FAILED;
    options.dryrun = gp_helps_json(&w->answer);
    if (!rc && !options.dryrun)
        rc = gp_memory_error("dryrun");
    if (!rc) {
        options.files[0] = files[0];
        options.more = files + 1;
        rc = gp_report_write(&options);
    }
    json_decref(options.dryrun);
    for (size_t i = 0; files && files[i]; i++)
        free(files[i]);
    free(files);
    return rc;
}

/* The name of --record. */
static void dryrun_record(const struct gp_dryrun_options *o, char *record, size_t bytes)
{
    const char *base = strrchr(o->launch.argv[0], '/');
    if (o->record[0])
        snprintf(record, bytes, "%s", o->record);
    else
        snprintf(record, bytes, "%s" GP_NAME_SUFFIX, base ? base + 1 : o->launch.argv[0]);
}

/* A name that has been taken meanwhile, or that only the end shows, is not worth a run that took hours. */
#define GP_DRYRUN_NAMES 1000u

/* Gives the recordings of the run that the text shows their name: of several each one has what tells it apart. */
static int dryrun_keep(const struct dryrun_work *w)
{
    char **files = gp_dryrun_files(&w->job, w->answer.shown), path[8192], record[4096], number[16];
    int rc = files ? GP_EXIT_OK : gp_memory_error("dryrun");
    dryrun_record(w->o, record, sizeof(record));
    size_t stem = gp_record_stem(record), count = 0;
    while (files && files[count])
        count++;
    for (size_t i = 0; i < count; i++) {
        const char *name = strrchr(files[i], '/') + 1;
        int error = -EEXIST;
        for (unsigned more = 1; error == -EEXIST && more <= GP_DRYRUN_NAMES; more++) {
            snprintf(number, sizeof(number), more > 1 ? ".%u" : "", more);
            snprintf(path, sizeof(path), "%.*s%s%.*s%s%s", (int)stem, record, count > 1 ? "." : "",
                     count > 1 ? (int)gp_record_stem(name) : 0, name, number, record + stem);
            error = gp_recorded_rename(files[i], path, w->o->force);
        }
        if (error == 0) {
            fprintf(stderr, "gpuprof: dryrun: recorded in %s\n", path);
        } else {
            gp_error("dryrun", "%s: cannot be written: %s", path, strerror(-error));
            rc = GP_EXIT_FAILED;
        }
        free(files[i]);
    }
    free(files);
    return rc;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* A percentage is of one GPU. */
static int dryrun_budget(struct dryrun_work *w, struct gp_dryrun_options *o)
{
    o->budget = o->share.given ? o->share.bytes : 0;
    if (o->share.given && o->share.bytes == 0)
        return gp_usage_error("dryrun", "--budget=0: every program needs memory: give a size above 0");
    if (o->share.percent > 0 && w->answer.gpu_count != 1)
        return gp_usage_error("dryrun", "--budget=%g%%: of which GPU? Name one with --gpu", o->share.percent);
    if (o->share.percent > 0)
        o->budget = (int64_t)((double)w->answer.gpus[0].total_bytes * o->share.percent / 100);
    w->job.budget_bytes = w->answer.budget_bytes = o->budget;
    return GP_EXIT_OK;
}

/* A job of which only some ranks run. */
static int dryrun_world(struct dryrun_work *w)
{
    const struct gp_dryrun_options *o = w->o;
    int rc = gp_world_begin(&w->world, o->world, o->local_world, o->ranks, o->jobs, o->launch.argv);
    if (!rc && w->world.local > GP_WIRE_GPUS)
        rc = gp_usage_error("dryrun", "--local-world=%lld: a simulated node has at most %u GPUs",
                            (long long)w->world.local, GP_WIRE_GPUS);
    if (!rc && o->steps && w->world.jobs && w->world.jobs < w->world.count)
        rc =
            gp_usage_error("dryrun",
                           "--steps: with --jobs=%lld the %u ranks run in turns, and it would end the run in its first "
                           "turn: let CMD take fewer steps, or give --jobs=%u",
                           (long long)w->world.jobs, w->world.count, w->world.count);
    w->program = w->world.argv;
    w->job.launch.argv = (char **)w->world.argv;
    w->job.launch.instead = gp_world_run;
    w->job.launch.data = &w->world;
    w->job.world = &w->world;
    w->job.devices = w->world.local;
    return rc;
}

static int dryrun_prepare(struct dryrun_work *w)
{
    char record[4096];
    bool old;
    struct gp_dryrun_options *o = w->o;
    w->job = (struct gp_dryrun_job){.launch = o->launch,
                                    .memory = o->memory,
                                    .devices = o->devices ? o->devices : 1,
                                    .steps = o->steps,
                                    .fill = o->fill,
                                    .imbalance = o->imbalance,
                                    .change = o->change ? "" : NULL,
                                    .json = o->json};
    w->answer.command = o->launch.argv;
    if (o->batch)
        gp_dryrun_batch_parse(o->batch, w->answer.batch_sizes);
    w->answer.random = o->fill && strcmp(o->fill, "random") == 0;
    w->answer.imbalance = o->imbalance ? strtod(o->imbalance, NULL) : 1;
    w->program = o->launch.argv;
    int rc = gp_budget_options_read("dryrun", &o->gate, &w->budgets);
    if (!rc && o->world)
        rc = dryrun_world(w);
    if (!rc)
        rc = gp_output_check("dryrun", "-o ", o->output, o->force);
    if (!rc)
        rc = gp_output_check("dryrun", "--junit=", o->gate.junit, o->force);
    if (!rc && o->record) {
        const struct gp_rank none = {-1, -1, -1};
        dryrun_record(o, record, sizeof(record));
        rc = gp_recorded_names_free("dryrun", record, record, &none, o->force, &old);
    }
    if (!rc)
        rc = dryrun_gpus(w);
    if (!rc)
        rc = dryrun_budget(w, o);
    return rc || o->merge ? rc : gp_dryrun_begin(&w->job, o->record);
}

static int dryrun_runs(struct dryrun_work *w)
{
    if (w->o->merge)
        return dryrun_merged(w);
    if (w->o->batch)
        return dryrun_batches(w);
    return w->o->change ? dryrun_tries(w) : dryrun_all(w);
}

int gp_dryrun_command(void *options)
{
    struct gp_dryrun_options *o = options;
    struct dryrun_work w = {.o = o};
    if (o->list)
        return gp_launch_gpus("dryrun");
    int rc = dryrun_prepare(&w), kept = GP_EXIT_OK;
    if (!rc)
        rc = dryrun_runs(&w);
    if (!rc) {
        rc = dryrun_finish(&w);
        bool shown = w.answer.runs[w.answer.shown].need_count > 0;
        if (shown && o->output)
            kept = dryrun_page(&w);
        if (shown && o->record && !kept)
            kept = dryrun_keep(&w);
    }
    gp_dryrun_end(&w.job);
    gp_world_end(&w.world);
    gp_dryrun_merge_end(&w.merge);
    gp_gate_free(&w.gate);
    gp_budgets_free(&w.budgets);
    for (uint32_t i = 0; i < w.answer.run_count; i++)
        gp_dryrun_run_free(&w.answer.runs[i]);
    free(w.answer.runs);
    free(w.answer.batches);
    free(w.answer.changes);
    gp_dryrun_batch_free(w.argv);
    free(w.answer.gpus);
    free(w.table);
    rc = w.ended ? w.ended : rc;
    return kept && !rc ? kept : rc;
}
