/* SPDX-License-Identifier: MIT
 * merge.c: ranks that ran elsewhere as one run: see merge.h.  A scheduler starts the ranks, each by `dryrun --ranks=R`, and keeps
 * their answers (--json) or their recordings (--record).  A file says of which job it is: by the number of ranks, the GPU and the
 * command. */
#include <analyze/fit.h>
#include <base/compiler.h>
#include <base/text.h>
#include <common/loaded.h>
#include <common/messages.h>
#include <common/values.h>
#include <dryrun/merge.h>
#include <read/common/hash.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_MERGE_ANSWER (64ull << 20) /* bytes of an answer */
#define GP_MERGE_NOTES  256u
#define GP_MERGE_READS  1024u

struct merge_work {
    struct gp_dryrun_merge *m;
    struct gp_dryrun_run *run;
    struct merge_name { /* of the files that were read */
        dev_t device;
        ino_t inode;
    } * names;
    uint32_t name_count;
    char *command[2];     /* of the first answer; of the first recording, which has what ran */
    const char *first[2]; /* that file */
    char why[GP_NEED_TEXT];
};

/* ---- what is left out -------------------------------------------------------------------------------------------- */

static int merge_leave(struct merge_work *w, const char *file)
{
    struct gp_dryrun_run *run = w->run;
    struct gp_dryrun_left *grown = realloc(run->left, (run->left_count + 1ul) * sizeof(*grown));
    if (!grown)
        return gp_memory_error("dryrun");
    run->left = grown;
    struct gp_dryrun_left *left = &run->left[run->left_count++];
    gp_text_clean(left->file, sizeof(left->file), file, strlen(file));
    gp_text_clean(left->why, sizeof(left->why), w->why, strlen(w->why));
    gp_error("dryrun", "--merge: %s: left out: %s", file, w->why);
    return GP_EXIT_OK;
}

/* Keeps the reason; false. */
__attribute__((format(printf, 2, 3))) static bool merge_why(struct merge_work *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(w->why, sizeof(w->why), format, list);
    va_end(list);
    return false;
}

/* The first file says of which job the answer is. */
static bool merge_job(struct merge_work *w, const char *file, uint32_t world, const char *gpu, const char *command,
                      bool recording)
{
    struct gp_dryrun_merge *m = w->m;
    for (uint32_t i = 0; i < m->gpu_count && !m->gpu; i++)
        if (strcasecmp(recording ? m->gpus[i].name : m->gpus[i].key, gpu) == 0)
            m->gpu = &m->gpus[i];
    if (!m->gpu)
        return merge_why(w, "it is of a GPU %.60s, which is not in the list of this gpuprof: name one with --gpu", gpu);
    if (w->run->world && world != w->run->world)
        return merge_why(w, "it is of a job of %u ranks, and the files before it of one of %u", world, w->run->world);
    if (!w->command[recording]) {
        w->command[recording] = strdup(command);
        w->first[recording] = file;
    }
    if (w->command[recording] && strcmp(w->command[recording], command) != 0)
        return merge_why(w, "its command is another than that of %.100s: %.100s", w->first[recording], command);
    return true;
}

static bool merge_rank_known(struct merge_work *w, const struct gp_dryrun_run *other)
{
    for (uint32_t i = 0; i < w->run->need_count; i++)
        for (uint32_t k = 0; k < other->need_count; k++)
            if (w->run->needs[i].rank >= 0 && w->run->needs[i].rank == other->needs[k].rank)
                return !merge_why(w, "rank %d is in a file before it", other->needs[k].rank);
    return false;
}

/* ---- parts that are added ---------------------------------------------------------------------------------------- */

static bool merge_needs(struct gp_dryrun_run *run, struct gp_dryrun_run *other)
{
    struct gp_need *grown = realloc(run->needs, (run->need_count + other->need_count + 1ul) * sizeof(*grown));
    if (!grown)
        return false;
    run->needs = grown;
    memcpy(&run->needs[run->need_count], other->needs, other->need_count * sizeof(*grown));
    run->need_count += other->need_count;
    other->need_count = 0; /* they have an owner */
    return true;
}

static void merge_note(struct gp_dryrun_run *run, const struct gp_dryrun_note *note)
{
    for (uint32_t i = 0; i < run->note_count; i++) {
        struct gp_dryrun_note *its = &run->notes[i];
        if (strcmp(its->library, note->library) == 0 && strcmp(its->kind, note->kind) == 0 &&
            strcmp(its->text, note->text) == 0) {
            its->count += note->count;
            return;
        }
    }
    if (run->note_count < GP_MERGE_NOTES)
        run->notes[run->note_count++] = *note;
}

static void merge_read(struct gp_dryrun_run *run, const struct gp_dryrun_read *read)
{
    for (uint32_t i = 0; i < run->read_count; i++)
        if (strcmp(run->reads[i].place.text, read->place.text) == 0) {
            run->reads[i].count += read->count;
            run->reads[i].bytes += read->bytes;
            return;
        }
    if (run->read_count < GP_MERGE_READS)
        run->reads[run->read_count++] = *read;
}

static int merge_run(struct merge_work *w, struct gp_dryrun_run *other)
{
    struct gp_dryrun_run *run = w->run;
    const bool failed = gp_dryrun_failed(other);
    if (!merge_needs(run, other))
        return gp_memory_error("dryrun");
    for (uint32_t i = 0; i < other->note_count; i++)
        merge_note(run, &other->notes[i]);
    for (uint32_t i = 0; i < other->cache_count; i++)
        if (!gp_dryrun_cache_add(run, &other->caches[i]))
            return gp_memory_error("dryrun");
    for (uint32_t i = 0; i < other->read_count; i++)
        merge_read(run, &other->reads[i]);
    if (failed ? !gp_dryrun_failed(run) : !run->status)
        run->status = other->status;
    run->ended = (run->ended || other->ended) && !failed && !gp_dryrun_failed(run);
    run->world = other->world;
    run->plenty |= other->plenty;
    run->cut += other->cut;
    run->written_bytes += other->written_bytes;
    return GP_EXIT_OK;
}

/* ---- an answer --------------------------------------------------------------------------------------------------- */

/* Its command line, until NULL; NULL: out of memory. */
static char **merge_words(const json_t *top)
{
    const json_t *words = json_object_get(top, "command");
    char **list = calloc(json_array_size(words) + 1, sizeof(*list));
    for (size_t i = 0; list && i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        list[i] = strdup(word ? word : ""); /* null: it was no UTF-8 */
        if (!list[i]) {
            gp_dryrun_batch_free(list);
            return NULL;
        }
    }
    return list;
}

/* The same as one text; free it. */
static char *merge_command(const json_t *top)
{
    return json_dumps(json_object_get(top, "command"), JSON_COMPACT | JSON_ENCODE_ANY);
}

/* What an answer does not have: the memory without the context, of which that on another GPU is made.  It is the reverse of what
 * made the answer. */
static void merge_memory(struct gp_need *need, int64_t threads)
{
    const uint64_t bare = gp_fit_context_of((uint64_t)threads);
    const int64_t context = need->context_bytes - need->code_bytes;
    if (context <= (int64_t)bare) /* no kernel ran */
        need->stack = 0;
    else if (!need->stack) /* an answer of a build that did not say it */
        need->stack = GP_FIT_THREAD_STACK;
    const uint64_t small = gp_fit_context_in(bare, (uint64_t)need->smallest_bytes);
    need->memory_bytes = need->needed_bytes - context;
    need->least_bytes = need->smallest_bytes - (int64_t)gp_fit_context_with(small, need->stack);
    GP_RAISE(need->memory_bytes, 0);
    GP_RAISE(need->least_bytes, 0);
}

static int merge_answer(struct merge_work *w, const char *file, const json_t *top)
{
    struct gp_dryrun_merge *m = w->m;
    struct gp_dryrun_said said = {0};
    const char *gpu = gp_dryrun_said_gpu(top, w->why);
    char *command = merge_command(top);
    int rc = GP_EXIT_OK;
    bool ok = gpu && command;
    if (ok && m->gpu)
        gpu = m->gpu->key;
    if (ok)
        ok = gp_dryrun_said(&said, top, gpu, w->why) == 0 && merge_job(w, file, said.run.world, gpu, command, false) &&
             !merge_rank_known(w, &said.run);
    if (ok) {
        m->total_bytes = m->total_bytes ? m->total_bytes : said.total_bytes;
        if (said.needed_bytes > m->needed_bytes)
            m->smallest_bytes = said.smallest_bytes;
        GP_RAISE(m->needed_bytes, said.needed_bytes);
        m->too_large |= said.too_large;
        m->answer_count++;
        m->command = m->command ? m->command : merge_words(top);
        for (uint32_t i = 0; i < said.run.need_count; i++)
            merge_memory(&said.run.needs[i], m->gpu->threads);
        rc = merge_run(w, &said.run);
    }
    gp_dryrun_run_free(&said.run);
    free(command);
    return rc || ok ? rc : merge_leave(w, file);
}

/* ---- a recording ------------------------------------------------------------------------------------------------- */

static int merge_recording(struct merge_work *w, char *file)
{
    struct gp_dryrun_merge *m = w->m;
    struct gp_recording *r = NULL;
    struct gp_dryrun_run own = {0};
    const char *gpu = "";
    int64_t total = 0;
    char why[GP_NEED_TEXT - 8] = "";
    int rc = gp_recording_open(&r, file, why, sizeof(why), NULL, NULL);
    if (rc) {
        merge_why(w, "%s", rc == -EPROTO ? why : strerror(-rc));
        return merge_leave(w, file);
    }
    for (uint32_t d = 0; d < r->device_count && !*gpu; d++)
        if (r->devices[d].index != GP_WIRE_HOST) {
            gpu = r->devices[d].name;
            total = r->devices[d].total_bytes;
        }
    bool ok = *gpu ? r->has_rank && r->world_size > 0 : false;
    if (!ok)
        merge_why(w, "%s", *gpu ? "it is of no rank of a job" : "it is of no GPU");
    const bool asked = m->gpu;
    ok = ok && merge_job(w, file, (uint32_t)r->world_size, gpu, r->command_line, true);
    if (ok && !asked && strcasecmp(m->gpu->name, gpu) != 0)
        ok = merge_why(w, "it is of a GPU %.60s, and the files before it of one %.60s", gpu, m->gpu->name);
    if (!ok) {
        gp_recording_free(r);
        return merge_leave(w, file);
    }
    m->total_bytes = m->total_bytes ? m->total_bytes : total;
    own.threads = m->gpu->threads;
    rc = gp_dryrun_read_opened(&own, r, file, m->budget_bytes, m->recording_count == 0);
    ok = !rc && own.need_count && !merge_rank_known(w, &own);
    if (!rc && !own.need_count)
        merge_why(w, "its process used no GPU");
    if (ok) {
        w->run->contextless += own.contextless;
        m->recordings[m->recording_count++] = file;
        rc = merge_run(w, &own);
    }
    gp_dryrun_run_free(&own);
    return rc || ok ? rc : merge_leave(w, file);
}

/* ---- the files --------------------------------------------------------------------------------------------------- */

/* Of the file, if it is not another name of one that was read. */
static bool merge_new(struct merge_work *w, const struct stat *its)
{
    for (uint32_t i = 0; i < w->name_count; i++)
        if (w->names[i].device == its->st_dev && w->names[i].inode == its->st_ino)
            return false;
    w->names[w->name_count++] = (struct merge_name){its->st_dev, its->st_ino};
    return true;
}

/* JSON begins with a brace, which no recording does. */
static bool merge_is_json(int fd)
{
    char text[64];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return text[strspn(text, " \t\r\n")] == '{';
}

static int merge_json(struct merge_work *w, const char *file, int fd, int64_t bytes)
{
    json_error_t error;
    if ((uint64_t)bytes > GP_MERGE_ANSWER) {
        merge_why(w, "an answer has at most %llu MiB", GP_MERGE_ANSWER >> 20);
        return merge_leave(w, file);
    }
    json_t *top = json_loadfd(fd, 0, &error);
    if (!top)
        merge_why(w, "it begins as JSON and is damaged: line %d: %.100s", error.line, error.text);
    int rc = top ? merge_answer(w, file, top) : merge_leave(w, file);
    json_decref(top);
    return rc;
}

static int merge_file(struct merge_work *w, char *file)
{
    struct stat its;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool ok = fd >= 0 && fstat(fd, &its) == 0;
    if (!ok)
        merge_why(w, "%s", strerror(errno));
    else if (!S_ISREG(its.st_mode))
        ok = merge_why(w, "it is no file: of a folder name the files in it");
    else if (its.st_size == 0)
        ok = merge_why(w, "it is empty: did its rank end?");
    else if (!merge_new(w, &its))
        ok = merge_why(w, "it is named twice");
    int rc = !ok                 ? merge_leave(w, file)
             : merge_is_json(fd) ? merge_json(w, file, fd, its.st_size)
                                 : merge_recording(w, file);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* By rank. */
static int merge_order(const void *one, const void *other)
{
    const struct gp_need *a = one, *b = other;
    int order = GP_ORDER(a->rank, b->rank);
    return order ? order : GP_ORDER(a->pid, b->pid);
}

int gp_dryrun_merge(struct gp_dryrun_merge *m, struct gp_dryrun_run *run)
{
    struct merge_work w = {.m = m, .run = run};
    size_t count = 0;
    while (m->files[count])
        count++;
    m->needed_bytes = m->smallest_bytes = -1;
    w.names = calloc(count + 1, sizeof(*w.names));
    m->recordings = calloc(count + 1, sizeof(*m->recordings));
    run->notes = calloc(GP_MERGE_NOTES, sizeof(*run->notes));
    run->reads = calloc(GP_MERGE_READS, sizeof(*run->reads));
    int rc = w.names && m->recordings && run->notes && run->reads ? GP_EXIT_OK : gp_memory_error("dryrun");
    for (size_t i = 0; i < count && !rc; i++)
        rc = merge_file(&w, m->files[i]);
    free(w.names);
    free(w.command[0]);
    free(w.command[1]);
    if (!rc && !run->need_count) {
        gp_error("dryrun", "--merge: no file is an answer or a recording of a rank: name those that "
                           "'gpuprof dryrun --world=N --ranks=R' keeps with --json or --record=FILE");
        rc = GP_EXIT_FAILED;
    }
    if (rc)
        return rc;
    qsort(run->needs, run->need_count, sizeof(*run->needs), merge_order);
    run->threads = m->gpu->threads;
    run->total_bytes = m->total_bytes;
    snprintf(run->gpu, sizeof(run->gpu), "%s", m->gpu->key);
    struct gp_world world = {.size = run->world, .local = m->local ? m->local : GP_WORLD_LOCAL};
    return gp_world_kinds(&world, run) ? GP_EXIT_OK : gp_memory_error("dryrun");
}

void gp_dryrun_merge_end(struct gp_dryrun_merge *m)
{
    free(m->recordings);
    gp_dryrun_batch_free(m->command);
    m->recordings = m->command = NULL;
}

int gp_dryrun_merge_words(char **argv, const char **output, bool *json, bool *force)
{
    size_t kept = 0;
    for (size_t i = 0; argv[i]; i++) {
        if (strcmp(argv[i], "--json") == 0)
            *json = true;
        else if (strcmp(argv[i], "--force") == 0)
            *force = true;
        else if (strncmp(argv[i], "--output=", 9) == 0)
            *output = argv[i] + 9;
        else if (strcmp(argv[i], "-o") == 0 && argv[i + 1])
            *output = argv[++i];
        else if (argv[i][0] == '-' && argv[i][1])
            return gp_usage_error("dryrun", "--merge: %s: after the files only -o PAGE, --json and --force may follow",
                                  argv[i]);
        else
            argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    return kept ? GP_EXIT_OK : gp_usage_error("dryrun", "--merge: no answer or recording is named");
}
