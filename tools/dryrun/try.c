/* SPDX-License-Identifier: MIT
 *
 * try.c: `gpuprof dryrun --try`: runs CMD again with one change after the other, and says what each
 * saves; see dryrun.h. The changes are made in the running program by a hook for Python
 * (gpuprof_try.py of the simulator), which says in a file of the run what could be changed and what it
 * has changed. Nothing in that file is believed: it is read as any other input, and a change counts
 * only if its run met something to change.
 */
#include <base/text.h>
#include <common/messages.h>
#include <common/values.h>
#include <dryrun/dryrun.h>
#include <dryrun/job.h>
#include <fcntl.h>
#include <inttypes.h>
#include <read/common/hash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GP_TRY_MOST  24u          /* changes, with the combination */
#define GP_TRY_BYTES (1u << 20)   /* of the file that are read */
#define GP_TRY_ALL   1ll << 62    /* kernels: no run has more */
#define GP_TRY_STACK (512u << 10) /* bytes: no thread has more local memory */

const char *const gp_dryrun_try_names[] = {"allocator", "checkpoint", "loss",  "optimizer", "gradients",
                                           "offload",   "outputs",    "shard", ""};

struct try_work {
    const struct gp_dryrun_job *job;
    struct gp_dryrun_answer *answer;
    const char *names;
    bool torch; /* a process has PyTorch */
};

/* ---- kernels ------------------------------------------------------------------------------------------------------ */

void gp_dryrun_kernels_begin(const char *folder)
{
    char path[4300];
    const struct gp_dryrun_kernels none = {0};
    snprintf(path, sizeof(path), "%s/" GP_DRYRUN_KERNELS, folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    bool whole = write(fd, &none, sizeof(none)) == sizeof(none);
    close(fd);
    if (!whole)
        unlink(path);
}

void gp_dryrun_kernels(struct gp_dryrun_run *run, const char *folder)
{
    char path[4300];
    struct gp_dryrun_kernels kernels;
    snprintf(path, sizeof(path), "%s/" GP_DRYRUN_KERNELS, folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool whole = fd >= 0 && read(fd, &kernels, sizeof(kernels)) == sizeof(kernels);
    if (fd >= 0)
        close(fd);
    run->kernels = whole && kernels.launches < (uint64_t)GP_TRY_ALL ? (int64_t)kernels.launches : -1;
    run->stack = whole && kernels.stack <= GP_TRY_STACK ? (uint32_t)kernels.stack : 0;
}

/* ---- names -------------------------------------------------------------------------------------------------------- */

static bool try_is_name(const char *word, size_t length)
{
    for (size_t i = 0; gp_dryrun_try_names[i][0]; i++)
        if (strlen(gp_dryrun_try_names[i]) == length && strncmp(gp_dryrun_try_names[i], word, length) == 0)
            return true;
    return false;
}

const char *gp_dryrun_try_unknown(const char *names, char *word, size_t bytes)
{
    for (const char *at = names; *at;) {
        size_t length = strcspn(at, ",");
        if (!try_is_name(at, length)) {
            snprintf(word, bytes, "%.*s", (int)length, at);
            return word;
        }
        at += length + (at[length] == ',');
    }
    return NULL;
}

static bool try_wants(const struct try_work *w, const char *name)
{
    bool wants = !w->names[0];
    for (const char *at = w->names; *at && !wants;) {
        size_t length = strcspn(at, ",");
        wants = strlen(name) == length && strncmp(at, name, length) == 0;
        at += length + (at[length] == ',');
    }
    return wants;
}

/* ---- what a run has met ------------------------------------------------------------------------------------------- */

struct try_line { /* "KIND<TAB>NAME<TAB>SPEC<TAB>TEXT" */
    char kind[12];
    struct gp_dryrun_change change;
};

static bool try_line_read(char *text, struct try_line *line)
{
    char *fields[4];
    *line = (struct try_line){0};
    for (unsigned i = 0; i < 4; i++)
        if (!(fields[i] = strsep(&text, "\t")))
            return false;
    /* The hook gets it back as it was, so it must be whole. */
    if (text || strlen(fields[2]) >= sizeof(line->change.spec))
        return false;
    gp_text_clean(line->kind, sizeof(line->kind), fields[0], strlen(fields[0]));
    gp_text_clean(line->change.name, sizeof(line->change.name), fields[1], strlen(fields[1]));
    gp_text_clean(line->change.spec, sizeof(line->change.spec), fields[2], strlen(fields[2]));
    gp_text_clean(line->change.text, sizeof(line->change.text), fields[3], strlen(fields[3]));
    return strcmp(line->change.spec, fields[2]) == 0;
}

static void try_found(const struct try_work *w, uint32_t run, char **text)
{
    char folder[4200], path[4300];
    gp_dryrun_folder(w->job, run, folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/" GP_DRYRUN_FOUND, folder);
    gp_dryrun_text(path, GP_TRY_BYTES, text);
}

static struct gp_dryrun_change *try_add(struct try_work *w, const struct gp_dryrun_change *change)
{
    struct gp_dryrun_answer *answer = w->answer;
    for (uint32_t i = 0; i < answer->change_count; i++) /* several processes say the same */
        if (strcmp(answer->changes[i].name, change->name) == 0 && strcmp(answer->changes[i].spec, change->spec) == 0)
            return NULL;
    if (answer->change_count + 1 >= GP_TRY_MOST)
        return NULL;
    struct gp_dryrun_change *added = &answer->changes[answer->change_count++];
    *added = *change;
    added->status = GP_CHANGE_NONE;
    added->needed_bytes = added->allocated_bytes = -1;
    added->kernels = 0;
    return added;
}

/* The changes that the first run has shown, and those that are not possible with the reason. */
static void try_plan(struct try_work *w, uint32_t run)
{
    char *text = NULL, *line;
    struct try_line one;
    try_found(w, run, &text);
    for (char *rest = text; rest && (line = strsep(&rest, "\n"));) {
        if (!try_line_read(line, &one))
            continue;
        w->torch |= strcmp(one.kind, "torch") == 0;
        bool can = strcmp(one.kind, "can") == 0, cannot = strcmp(one.kind, "cannot") == 0;
        if ((!can && !cannot) || !try_is_name(one.change.name, strlen(one.change.name)) ||
            !try_wants(w, one.change.name) || (can && !one.change.spec[0]))
            continue;
        if (cannot) {
            snprintf(one.change.why, sizeof(one.change.why), "%s", one.change.text);
            snprintf(one.change.text, sizeof(one.change.text), "%s", one.change.name);
            one.change.spec[0] = '\0';
        }
        try_add(w, &one.change);
    }
    free(text);
}

/* Whether the run of a change met each of its parts; else why it did not. */
static bool try_did(const struct try_work *w, uint32_t run, struct gp_dryrun_change *change)
{
    char *text = NULL, *line;
    struct try_line one;
    unsigned parts = 1, did = 0;
    for (const char *at = change->spec; *at; at++)
        parts += *at == ';';
    try_found(w, run, &text);
    for (char *rest = text; rest && (line = strsep(&rest, "\n"));) {
        if (!try_line_read(line, &one))
            continue;
        /* Each process says each part once; one process is enough. */
        const char *at = strcmp(one.kind, "did") == 0 ? strstr(change->spec, one.change.spec) : NULL;
        size_t length = strlen(one.change.spec);
        if (at && length && (at == change->spec || at[-1] == ';') && (!at[length] || at[length] == ';'))
            did |= 1u << (at == change->spec ? 0 : 1);
        if (strcmp(one.kind, "note") == 0 && strcmp(one.change.spec, change->spec) == 0)
            snprintf(change->note, sizeof(change->note), "%s", one.change.text);
        if (strcmp(one.kind, "cannot") == 0 && try_is_name(one.change.name, strlen(one.change.name)))
            snprintf(change->why, sizeof(change->why), "%s", one.change.text);
    }
    free(text);
    if (did == (1u << parts) - 1)
        return true;
    if (!change->why[0])
        snprintf(change->why, sizeof(change->why), "CMD did nothing in that run that the change applies to");
    return false;
}

/* ---- runs --------------------------------------------------------------------------------------------------------- */

static double try_kernels(const struct gp_dryrun_run *before, const struct gp_dryrun_run *after)
{
    if (before->kernels <= 0 || after->kernels <= 0 || before->ended || after->ended)
        return 0; /* ended by --steps: how far the last step was is not known */
    return (double)after->kernels / (double)before->kernels;
}

/* Runs CMD with the change, and once more if a signal ended it: PyTorch's threads may do so at its exit, when they come
 * late. */
static int try_run(struct try_work *w, struct gp_dryrun_change *change, struct gp_dryrun_gpu *gpu,
                   gp_dryrun_try_run *run, void *data)
{
    const uint32_t base = gpu->run;
    gpu->verdict = GP_DRYRUN_FAILED;
    gpu->needed_bytes = gpu->smallest_bytes = -1;
    gpu->failed = GP_REC_NONE;
    int rc = run(data, change->spec, gpu);
    const struct gp_dryrun_run *before = &w->answer->runs[base], *after = &w->answer->runs[gpu->run];
    if (rc || after->status <= 128 || before->status || after->ended)
        return rc;
    const int number = after->status - 128;
    fprintf(stderr,
            "gpuprof: dryrun: signal %d ended CMD with this change, and not without it: it runs once more with it\n",
            number);
    rc = run(data, change->spec, gpu);
    if (!rc && !w->answer->runs[gpu->run].status)
        snprintf(change->note, sizeof(change->note), "signal %d ended the first run with it; this is of the second",
                 number);
    return rc;
}

static int try_one(struct try_work *w, struct gp_dryrun_change *change, gp_dryrun_try_run *run, void *data)
{
    struct gp_dryrun_gpu gpu = w->answer->gpus[0];
    const uint32_t base = gpu.run;
    int rc = try_run(w, change, &gpu, run, data);
    if (rc)
        return rc;
    const struct gp_dryrun_run *before = &w->answer->runs[base], *after = &w->answer->runs[gpu.run];
    const struct gp_need *need = gp_dryrun_worst(after);
    bool failed = gp_dryrun_failed(after) && !(before->status && before->status == after->status);
    change->verdict = gpu.verdict;
    if (!try_did(w, gpu.run, change) && !failed)
        return GP_EXIT_OK;
    change->status = failed || !need ? GP_CHANGE_FAILED : GP_CHANGE_RAN;
    if (change->status == GP_CHANGE_FAILED) {
        bool killed = after->status > 128;
        if (!need)
            snprintf(change->why, sizeof(change->why), "CMD used no GPU with this change");
        else
            snprintf(change->why, sizeof(change->why), "CMD %s %d with this change",
                     killed ? "was ended twice by signal" : "failed with status", after->status - 128 * killed);
        return GP_EXIT_OK;
    }
    change->needed_bytes = gpu.needed_bytes;
    change->allocated_bytes = need->allocated_peak_bytes;
    change->kernels = try_kernels(before, after);
    /* The program is the same with another setting of its allocator: more is not needed at least. */
    if (strcmp(change->name, "allocator") == 0 && gpu.smallest_bytes >= 0)
        GP_LOWER(w->answer->gpus[0].smallest_bytes, gpu.smallest_bytes);
    return GP_EXIT_OK;
}

static int64_t try_saved(const struct try_work *w, const struct gp_dryrun_change *change)
{
    return change->status == GP_CHANGE_RAN ? w->answer->gpus[0].needed_bytes - change->needed_bytes : 0;
}

/* Those of one kind spare the same bytes: together they save little more than the better one. */
static unsigned try_kind(const struct gp_dryrun_change *change)
{
    static const char *const kinds[][3] = {
        {"checkpoint", "offload", ""}, {"optimizer", "gradients", "shard"}, {"loss", "", ""}, {"outputs", "", ""}};
    for (unsigned i = 0; i < GP_COUNT(kinds); i++)
        for (unsigned k = 0; k < GP_COUNT(kinds[i]); k++)
            if (strcmp(change->name, kinds[i][k]) == 0)
                return i;
    return GP_COUNT(kinds);
}

/* The two changes of different kinds that save most, as one; false: there are no two that save anything. */
static bool try_combine(struct try_work *w, struct gp_dryrun_change *both)
{
    const struct gp_dryrun_answer *answer = w->answer;
    const struct gp_dryrun_change *best = NULL, *next = NULL;
    for (unsigned turn = 0; turn < 2; turn++)
        for (uint32_t i = 0; i < answer->change_count; i++) {
            const struct gp_dryrun_change *one = &answer->changes[i], **at = turn ? &next : &best;
            if (try_saved(w, one) <= 0 || (turn && (!best || try_kind(one) == try_kind(best))))
                continue;
            if (!*at || try_saved(w, one) > try_saved(w, *at))
                *at = one;
        }
    if (!best || !next || strlen(best->spec) + strlen(next->spec) + 2 > sizeof(both->spec))
        return false;
    *both = (struct gp_dryrun_change){.status = GP_CHANGE_NONE, .needed_bytes = -1, .allocated_bytes = -1};
    snprintf(both->name, sizeof(both->name), "combination");
    snprintf(both->spec, sizeof(both->spec), "%s;%s", best->spec, next->spec);
    snprintf(both->text, sizeof(both->text), "%.96s + %.96s", best->text, next->text);
    return true;
}

/* What fits comes first, then what saves most; then what failed, then what was not possible. */
static int try_compare(const void *one, const void *other)
{
    const struct gp_dryrun_change *a = one, *b = other;
    int order = GP_ORDER((int)a->status, (int)b->status);
    if (!order && a->status == GP_CHANGE_RAN)
        order = GP_ORDER(a->verdict != GP_DRYRUN_FITS, b->verdict != GP_DRYRUN_FITS);
    if (!order && a->status == GP_CHANGE_RAN)
        order = GP_ORDER(a->needed_bytes, b->needed_bytes);
    return order ? order : strcmp(a->text, b->text);
}

int gp_dryrun_try(const struct gp_dryrun_job *job, struct gp_dryrun_answer *answer, const char *names,
                  gp_dryrun_try_run *run, void *data)
{
    struct try_work w = {.job = job, .answer = answer, .names = names};
    int rc = GP_EXIT_OK;
    answer->tries = true;
    answer->changes = calloc(GP_TRY_MOST, sizeof(*answer->changes));
    if (!answer->changes)
        return gp_memory_error("dryrun");
    try_plan(&w, answer->gpus[0].run);
    answer->tries_torch = w.torch;
    uint32_t total = 0, number = 0;
    for (uint32_t i = 0; i < answer->change_count; i++)
        total += answer->changes[i].spec[0] != '\0';
    for (uint32_t i = 0; !rc && i < answer->change_count; i++) {
        if (!answer->changes[i].spec[0])
            continue;
        fprintf(stderr, "gpuprof: dryrun: trying %" PRIu32 " of %" PRIu32 ": %s\n", ++number, total,
                answer->changes[i].text);
        rc = try_one(&w, &answer->changes[i], run, data);
        if (rc) /* not run to its end: not said */
            answer->change_count = i;
    }
    struct gp_dryrun_change both;
    if (!rc && try_combine(&w, &both)) {
        fprintf(stderr, "gpuprof: dryrun: trying the two that save most together: %s\n", both.text);
        rc = try_one(&w, &both, run, data);
        if (!rc)
            answer->changes[answer->change_count++] = both;
    }
    qsort(answer->changes, answer->change_count, sizeof(*answer->changes), try_compare);
    return rc;
}
