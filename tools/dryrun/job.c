/* SPDX-License-Identifier: MIT
 * job.c: Runs a program once on the simulated GPU, recorded: see dryrun.h.  Each run has a
 * folder of its own in that of the job: a recording for each process, and the notes of the libraries
 * that stand in for NVIDIA's.
 */
#include <base/clock.h>
#include <base/compiler.h>
#include <common/messages.h>
#include <common/values.h>
#include <dryrun/dryrun.h>
#include <dryrun/job.h>
#include <errno.h>
#include <read/collect/collect.h>
#include <read/collect/watch.h>
#include <read/common/hash.h>
#include <record/recorder.h>
#include <run/recorded.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define GP_JOB_LOOK_NS 20000000ull
/* In the first seconds as often as `run` does: a short program that is killed leaves only its session. */
#define GP_JOB_FIRST_NS  3000000000ull
#define GP_JOB_SOON_NS   2000000ull
#define GP_JOB_PART      64u            /* the looks take that part of a processor at most */
#define GP_JOB_STOP_NS   10000000000ull /* a program that was told to end has that long */
#define GP_JOB_LEFT_NS   1000000000ull  /* and what it leaves has that long */
#define GP_JOB_WRITES_NS 200000000ull   /* between looks at what the processes have written */
#define GP_JOB_WRITTEN   (1ll << 30)    /* that much is said at once */
#define GP_JOB_STANDIN   "GPUPROF_STANDIN_REPORT"
#define GP_JOB_READS     "GPUPROF_SIM_READS"
#define GP_JOB_KERNELS   "GPUPROF_SIM_KERNELS"
#define GP_JOB_CHANGE    "GPUPROF_SIM_TRY"
#define GP_JOB_FOUND     "GPUPROF_SIM_TRY_FOUND"
#define GP_JOB_SHARDS    "GPUPROF_SIM_TRY_RANKS"
#define GP_JOB_IMBALANCE "GPUPROF_SIM_IMBALANCE"
#define GP_JOB_NODE      8 /* GPUs, over which a model is sharded if nothing says how many there are */

/* For the hook of Python programs that makes a change of --try, and for the number of kernels. */
static int job_environment_try(const struct gp_dryrun_job *job, const char *folder)
{
    char path[4300], ranks[24];
    snprintf(ranks, sizeof(ranks), "%lld", (long long)(job->devices > 1 ? job->devices : GP_JOB_NODE));
    snprintf(path, sizeof(path), "%s/" GP_DRYRUN_KERNELS, folder);
    if (setenv(GP_JOB_KERNELS, path, 1) != 0)
        return gp_memory_error("dryrun");
    snprintf(path, sizeof(path), "%s/" GP_DRYRUN_FOUND, folder);
    if (job->change && (setenv(GP_JOB_CHANGE, job->change, 1) != 0 || setenv(GP_JOB_FOUND, path, 1) != 0 ||
                        setenv(GP_JOB_SHARDS, ranks, 1) != 0))
        return gp_memory_error("dryrun");
    return GP_EXIT_OK;
}

/* Files of a job of which some ranks run. */
static bool job_environment_world(const char *folder)
{
    static const char *const names[][2] = {
        {"GPUPROF_SIM_PEERS", "peers"}, {"GPUPROF_SIM_WAITS", "waits"}, {"GPUPROF_SIM_SAYS", "says"}};
    char path[4300];
    bool ok = true;
    for (size_t i = 0; i < GP_COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i][1]);
        ok = ok && setenv(names[i][0], path, 1) == 0;
    }
    return ok;
}

static int job_environment(const struct gp_dryrun_job *job, const char *folder, const char *gpu, const char *memory)
{
    char spec[512], record[8400], notes[4300], reads[4300], since[32];
    struct timespec now;
    size_t used = 0;
    memory = memory ? memory : job->memory;
    snprintf(spec, sizeof(spec), "gpu=%s,devices=%lld,contents=none,fill=%s,shared=dryrun-%u-%u%s%s", gpu,
             (long long)job->devices, job->fill ? job->fill : "zeros", (unsigned)getpid(), job->runs,
             memory ? ",memory=" : "", memory ? memory : "");
    for (const char *at = folder; *at && used + 32 < sizeof(record); at++) {
        if (*at == '%')
            record[used++] = '%';
        record[used++] = *at;
    }
    snprintf(record + used, sizeof(record) - used, "/%%p" GP_NAME_SUFFIX);
    snprintf(notes, sizeof(notes), "%s/notes", folder);
    snprintf(reads, sizeof(reads), "%s/reads", folder);
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(since, sizeof(since), "%lld%09ld", (long long)now.tv_sec, now.tv_nsec);
    if ((job->imbalance ? setenv(GP_JOB_IMBALANCE, job->imbalance, 1) : unsetenv(GP_JOB_IMBALANCE)) == 0 &&
        setenv("GPUPROF_SIM", spec, 1) == 0 && setenv("GPUPROF_RECORD", record, 1) == 0 &&
        setenv("GPUPROF_RECORD_SINCE", since, 1) == 0 && setenv(GP_JOB_STANDIN, notes, 1) == 0 &&
        setenv(GP_JOB_READS, reads, 1) == 0 && (!job->world || job_environment_world(folder)))
        return GP_EXIT_OK;
    return gp_memory_error("dryrun");
}

/* Starts the program; with --json its standard output is our standard error. */
static int job_start(const struct gp_dryrun_job *job, struct gp_child *child)
{
    int out = job->json ? dup(STDOUT_FILENO) : -1;
    fflush(stdout);
    if (job->json)
        dup2(STDERR_FILENO, STDOUT_FILENO);
    int rc = gp_launch_child_start(child, &job->launch);
    if (out >= 0) {
        dup2(out, STDOUT_FILENO);
        close(out);
    }
    if (rc)
        gp_error("dryrun", "cannot start a process: %s", strerror(-rc));
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* By rank; processes without one stay in the order in which they started. */
static int job_by_rank(const void *one, const void *other)
{
    const struct gp_need *a = one, *b = other;
    int order = GP_ORDER(a->rank, b->rank);
    order = order ? order : GP_ORDER(a->pid, b->pid);
    return order ? order : GP_ORDER(a->device, b->device);
}

static int job_read(struct gp_dryrun_job *job, struct gp_dryrun_run *run, unsigned number)
{
    char **files = gp_dryrun_files(job, number);
    int rc = files ? GP_EXIT_OK : gp_memory_error("dryrun");
    for (size_t i = 0; files && files[i]; i++) {
        if (!rc)
            rc = gp_dryrun_read(run, files[i], job->budget_bytes, number == 0 && i == 0);
        free(files[i]);
    }
    free(files);
    if (run->need_count)
        qsort(run->needs, run->need_count, sizeof(*run->needs), job_by_rank);
    return rc;
}

struct job_ends { /* the processes that were seen: a pid may have another owner by now */
    int fds[GP_WATCH_MOST];
    struct gp_dryrun_life lives[GP_WATCH_MOST];
    int count;
};

/* The kernel says when a process started in ticks since the boot, so it was at the end of that tick at the latest. */
static uint64_t ends_start(uint64_t ticks)
{
    struct timespec now, boot;
    const int64_t second = 1000000000, tick = second / sysconf(_SC_CLK_TCK);
    clock_gettime(CLOCK_MONOTONIC, &now); /* stands still while the machine sleeps */
    clock_gettime(CLOCK_BOOTTIME, &boot);
    const int64_t asleep = (boot.tv_sec - now.tv_sec) * second + boot.tv_nsec - now.tv_nsec;
    const int64_t start = ((int64_t)ticks + 1) * tick - asleep;
    return start > 0 ? (uint64_t)start : 0;
}

static void ends_add(struct job_ends *ends, const struct gp_watch *watch)
{
    for (; ends->count < watch->count; ends->count++) {
        const struct gp_process *process = &watch->watched[ends->count]->process;
        ends->fds[ends->count] = (int)syscall(SYS_pidfd_open, process->pid, 0);
        const uint64_t exec_ns = watch->watched[ends->count]->exec_ns;
        ends->lives[ends->count] = (struct gp_dryrun_life){
            .pid = (uint32_t)process->pid, .start_ns = exec_ns ? exec_ns : ends_start(process->start_time)};
    }
    const uint64_t now = gp_clock_ns();
    for (int i = 0; i < ends->count; i++)
        if (ends->fds[i] >= 0 && syscall(SYS_pidfd_send_signal, ends->fds[i], 0, NULL, 0) == 0)
            ends->lives[i].alive_ns = now;
}

/* Sends the signal to those that are still there; 0 only asks.  How many there were. */
static int ends_signal(const struct job_ends *ends, int number)
{
    int count = 0;
    for (int i = 0; i < ends->count; i++)
        count += ends->fds[i] >= 0 && syscall(SYS_pidfd_send_signal, ends->fds[i], number, NULL, 0) == 0;
    return count;
}

/* Ends the program.  A launcher of ranks ends them; a shell leaves its child, which is killed. */
static void job_stop(struct gp_child *child, const struct job_ends *ends)
{
    uint64_t until_ns = gp_clock_ns() + GP_JOB_STOP_NS;
    kill(child->pid, SIGTERM);
    while (!child->ended && gp_clock_ns() < until_ns)
        gp_launch_child_wait(child, GP_JOB_LOOK_NS);
    until_ns = gp_clock_ns() + GP_JOB_LEFT_NS;
    while (ends_signal(ends, 0) && gp_clock_ns() < until_ns)
        gp_launch_child_wait(child, GP_JOB_LOOK_NS);
    ends_signal(ends, SIGKILL);
    if (!child->ended)
        kill(child->pid, SIGKILL);
    /* The sessions are read when their processes are gone. */
    while (!child->ended || ends_signal(ends, 0))
        gp_launch_child_wait(child, GP_JOB_LOOK_NS);
}

struct job_writes { /* what each process has written to files */
    int64_t bytes[GP_WATCH_MOST];
    uint64_t next_ns;
    bool said;
};

/* A checkpoint takes as much of the disk as on a GPU, and what it holds are zeros. */
static void job_written(struct job_writes *writes, const struct gp_watch *watch, struct gp_dryrun_run *run)
{
    char path[64], size[GP_SIZE_TEXT], *text;
    uint64_t now = gp_clock_ns();
    if (now < writes->next_ns)
        return;
    writes->next_ns = now + GP_JOB_WRITES_NS;
    run->written_bytes = 0;
    for (int i = 0; i < watch->count; i++) {
        snprintf(path, sizeof(path), "/proc/%d/io", (int)watch->watched[i]->process.pid);
        const char *line = gp_dryrun_text(path, 4096, &text) ? strstr(text, "\nwrite_bytes: ") : NULL;
        if (line)
            GP_RAISE(writes->bytes[i], strtoll(line + strlen("\nwrite_bytes: "), NULL, 10));
        free(text);
        run->written_bytes += writes->bytes[i];
    }
    if (run->written_bytes < GP_JOB_WRITTEN || writes->said)
        return;
    writes->said = true;
    fprintf(stderr, "gpuprof: dryrun: CMD has written %s to files: a checkpoint of a dry run holds zeros\n",
            gp_size_text(size, run->written_bytes));
}

/* Until the next look.  One at a program with many descriptors and threads, which PyTorch has before it has a context, takes
 * as long as a hundred at a small one. */
static uint64_t job_pause(uint64_t since_begin_ns, uint64_t cost_ns)
{
    const uint64_t soon_ns = cost_ns * GP_JOB_PART > GP_JOB_SOON_NS ? cost_ns * GP_JOB_PART : GP_JOB_SOON_NS;
    return since_begin_ns < GP_JOB_FIRST_NS && soon_ns < GP_JOB_LOOK_NS ? soon_ns : GP_JOB_LOOK_NS;
}

static uint64_t job_used(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000ull + (uint64_t)used.tv_nsec;
}

/* Until the program has ended. */
static void job_watch(struct gp_dryrun_job *job, struct gp_dryrun_run *run, struct gp_child *child,
                      struct gp_watch *watch, struct job_ends *ends)
{
    struct gp_dryrun_follow follow = {.job = job, .number = job->runs - 1, .gpu = run->gpu};
    struct job_writes writes = {0};
    const uint64_t begin_ns = gp_clock_ns();
    while (!child->ended) {
        const uint64_t used_ns = job_used();
        gp_watch_look(watch, child->pid, true);
        ends_add(ends, watch);
        job_written(&writes, watch, run);
        gp_launch_child_wait(child, job_pause(gp_clock_ns() - begin_ns, job_used() - used_ns));
        if (!child->ended && gp_dryrun_look(&follow)) {
            run->ended = true;
            job_stop(child, ends);
        }
    }
    run->unended = job->steps && !run->ended;
    run->status = child->status;
    for (int i = 0; i < ends->count; i++)
        if (ends->fds[i] >= 0)
            close(ends->fds[i]);
}

/* Whether a run has shown that more ranks are needed: then nothing of it is read. */
static bool job_grown(struct gp_dryrun_job *job, const char *folder)
{
    char peers[4300];
    snprintf(peers, sizeof(peers), "%s/peers", folder);
    if (!job->world || !gp_world_grow(job->world, peers))
        return false;
    char *ranks = gp_world_list(job->world->ranks, job->world->count);
    fprintf(stderr,
            "gpuprof: dryrun: a rank that runs sends to one that is absent: the run begins again with %u ranks "
            "(--ranks=%s begins with them)\n",
            job->world->count, ranks ? ranks : "LIST");
    free(ranks);
    gp_dryrun_folder_remove(folder);
    job->runs--;
    return true;
}

/* *again: it is to be made once more, with more ranks. */
static int job_once(struct gp_dryrun_job *job, const struct gp_dryrun_gpu *gpu, const char *memory,
                    struct gp_dryrun_run *run, bool *again)
{
    char folder[4200], notes[4300];
    struct gp_watch watch = {0};
    struct job_ends ends = {0};
    struct gp_child child;
    unsigned number = job->runs;
    *again = false;
    *run = (struct gp_dryrun_run){.plenty = memory, .threads = gpu->threads};
    snprintf(run->gpu, sizeof(run->gpu), "%s", gpu->key);
    gp_dryrun_folder(job, number, folder, sizeof(folder));
    int rc = job_environment(job, folder, gpu->key, memory);
    if (!rc && mkdir(folder, 0700) != 0) {
        gp_error("dryrun", "%s: cannot be made: %s", folder, strerror(errno));
        rc = GP_EXIT_FAILED;
    }
    job->runs++;
    if (!rc)
        rc = job_environment_try(job, folder);
    gp_dryrun_kernels_begin(folder);
    if (!rc)
        rc = job_start(job, &child);
    if (rc)
        return rc;
    job_watch(job, run, &child, &watch, &ends);
    *again = job_grown(job, folder);
    if (*again) {
        gp_watch_free(&watch);
        return GP_EXIT_OK;
    }
    for (int i = 0; !rc && i < watch.count; i++)
        if (gp_watch_read(watch.watched[i]) != 0)
            rc = gp_memory_error("dryrun");
    if (!rc)
        gp_recorded_finish(&watch, getenv("GPUPROF_RECORD"));
    gp_watch_free(&watch);
    snprintf(notes, sizeof(notes), "%s/notes", folder);
    if (!rc)
        rc = gp_dryrun_notes(run, notes);
    snprintf(notes, sizeof(notes), "%s/reads", folder);
    if (!rc)
        rc = gp_dryrun_readback(run, notes);
    snprintf(notes, sizeof(notes), "%s/says", folder);
    if (!rc)
        rc = gp_dryrun_messages(run, notes);
    gp_dryrun_kernels(run, folder);
    if (!rc)
        rc = job_read(job, run, number);
    gp_dryrun_lives(run, ends.lives, (uint32_t)ends.count);
    if (!rc && job->world && !gp_world_kinds(job->world, run))
        rc = gp_memory_error("dryrun");
    return rc;
}

int gp_dryrun_run(struct gp_dryrun_job *job, const struct gp_dryrun_gpu *gpu, const char *memory,
                  struct gp_dryrun_run *run)
{
    bool again = false;
    int rc;
    do
        rc = job_once(job, gpu, memory, run, &again);
    while (!rc && again);
    return rc;
}

void gp_dryrun_run_free(struct gp_dryrun_run *run)
{
    for (uint32_t i = 0; i < run->need_count; i++) {
        free(run->needs[i].lines);
        free(run->needs[i].levels);
        free(run->needs[i].refused);
        free(run->needs[i].stands_for);
    }
    free(run->needs);
    free(run->notes);
    free(run->caches);
    free(run->reads);
    free(run->left);
    free(run->messages);
}
