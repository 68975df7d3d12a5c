/* SPDX-License-Identifier: MIT
 * worldrun.c: starts the ranks of a job that run on this machine, waits for them, and ends them if one
 * fails or none moves.  It is the whole work of a process that the dry run starts (world.h). */
#include <base/clock.h>
#include <base/text.h>
#include <common/messages.h>
#include <common/values.h>
#include <dryrun/world.h>

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GP_RANKS_LOOK_NS   100000000ull
#define GP_RANKS_IDLE_NS   40000000000ull /* no rank moves: some wait for what never comes */
#define GP_RANKS_IDLE_ONE  0.2            /* seconds of processor time of a rank in that time: polling */
#define GP_RANKS_IDLE_TASK 0.004          /* the same of each thread: PyTorch 2.7 has two of each group that look */
#define GP_RANKS_SCAN_NS   4000000000ull
#define GP_RANKS_END_NS    10000000000ull /* a rank that was told to end has that long */
#define GP_RANKS_AFTER_NS  3000000000ull  /* the others may still say why, after one has failed */
#define GP_RANKS_SAID      4              /* ranks that are named */

struct ranks_work {
    struct gp_world *world;
    const int32_t *ranks; /* of this wave */
    uint32_t count, left;
    pid_t *pids; /* 0: ended */
    int status;
    bool told;
    uint64_t told_ns, failed_ns;
    uint64_t idle_ns, scan_ns;
    double used;
};

/* On standard error, and in the file of messages, from which the JSON has them. */
__attribute__((format(printf, 1, 2))) static void ranks_say(const char *format, ...)
{
    const char *path = getenv("GPUPROF_SIM_SAYS");
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    gp_error("dryrun", "%s", text);
    FILE *file = path ? fopen(path, "ae") : NULL;
    if (!file)
        return;
    fprintf(file, "%s\n", text);
    fclose(file);
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

static void rank_set(const char *name, const char *format, long long value)
{
    char text[64];
    snprintf(text, sizeof(text), format, value);
    setenv(name, text, 1);
}

/* Each node is a machine of its own, with its own GPUs, and it is the same one in another dry run of the job, whose
 * answer may be merged with this one's. */
static void rank_machine(const struct gp_world *world, int64_t node)
{
    const char *spec = getenv("GPUPROF_SIM"), *shared = spec ? strstr(spec, "shared=") : NULL;
    char text[1024];
    size_t length = shared ? (size_t)(shared - spec) + strcspn(shared, ",") : 0;
    if (shared)
        snprintf(text, sizeof(text), "%.*s-%lld%s,node=%lld", (int)length, spec, (long long)node, spec + length,
                 (long long)world->local);
    if (shared)
        setenv("GPUPROF_SIM", text, 1);
    snprintf(text, sizeof(text), "world %lld node %lld", (long long)world->size, (long long)node);
    setenv("GPUPROF_SIM_MACHINE", text, 1);
}

/* What torchrun sets, mpirun and srun. */
static void rank_environment(const struct gp_world *world, int64_t rank)
{
    const int64_t local = world->local, node = rank / local, nodes = (world->size + local - 1) / local;
    const int64_t there = node == nodes - 1 ? world->size - node * local : local;
    rank_set("RANK", "%lld", rank);
    rank_set("LOCAL_RANK", "%lld", rank % local);
    rank_set("GROUP_RANK", "%lld", node);
    rank_set("WORLD_SIZE", "%lld", world->size);
    rank_set("LOCAL_WORLD_SIZE", "%lld", there);
    rank_set("GROUP_WORLD_SIZE", "%lld", nodes);
    rank_set("ROLE_RANK", "%lld", rank);
    rank_set("ROLE_WORLD_SIZE", "%lld", world->size);
    setenv("ROLE_NAME", "default", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    rank_set("TORCHELASTIC_RESTART_COUNT", "%lld", 0);
    rank_set("TORCHELASTIC_MAX_RESTARTS", "%lld", 0);
    if (world->local > 1)
        setenv("OMP_NUM_THREADS", "1", 0);
    if (world->launcher.kind == GP_LAUNCHER_MPI) {
        rank_set("OMPI_COMM_WORLD_RANK", "%lld", rank);
        rank_set("OMPI_COMM_WORLD_SIZE", "%lld", world->size);
        rank_set("OMPI_COMM_WORLD_LOCAL_RANK", "%lld", rank % local);
        rank_set("OMPI_COMM_WORLD_LOCAL_SIZE", "%lld", there);
    }
    if (world->launcher.kind == GP_LAUNCHER_SLURM) {
        rank_set("SLURM_PROCID", "%lld", rank);
        rank_set("SLURM_LOCALID", "%lld", rank % local);
        rank_set("SLURM_NODEID", "%lld", node);
        rank_set("SLURM_NTASKS", "%lld", world->size);
        rank_set("SLURM_STEP_NUM_TASKS", "%lld", world->size);
        rank_set("SLURM_NNODES", "%lld", nodes);
    }
    for (char *const *set = world->launcher.set; set && *set; set++) {
        char *equals = strchr(*set, '=');
        *equals = '\0';
        setenv(*set, equals + 1, 1);
        *equals = '=';
    }
}

static int rank_exec(const struct gp_world *world, int64_t rank)
{
    char *const *argv = world->argv;
    char local[48], **own = (char **)argv;
    rank_environment(world, rank);
    rank_machine(world, rank / world->local);
    if (world->launcher.local_rank_at) {
        snprintf(local, sizeof(local), "--local_rank=%lld", (long long)(rank % world->local));
        own[world->launcher.local_rank_at] = local; /* of this process alone; --batch has a copy of the launcher's */
    }
    execvp(argv[0], argv);
    int error = errno;
    gp_error("dryrun", "%s: %s", argv[0], strerror(error));
    return error == ENOENT ? GP_EXIT_NOT_FOUND : GP_EXIT_CANNOT_RUN;
}

/* ---- all of a wave ----------------------------------------------------------------------------------------------- */

/* A port of the loopback that is free now. */
static int ranks_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = -1;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &bytes) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* For the simulated GPU, if not all are there. */
static bool ranks_present(const struct ranks_work *w)
{
    char *text = gp_world_list(w->ranks, w->count);
    if (!text)
        return false;
    bool ok =
        w->count < w->world->size ? setenv("GPUPROF_SIM_RANKS", text, 1) == 0 : unsetenv("GPUPROF_SIM_RANKS") == 0;
    free(text);
    return ok;
}

static void ranks_signal(const struct ranks_work *w, int number)
{
    for (uint32_t i = 0; i < w->count; i++)
        if (w->pids[i] > 0)
            kill(w->pids[i], number);
}

static void ranks_tell(struct ranks_work *w)
{
    if (!w->told)
        ranks_signal(w, SIGTERM);
    w->told_ns = w->told ? w->told_ns : gp_clock_ns();
    w->told = true;
}

static void ranks_ended(struct ranks_work *w)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (uint32_t i = 0; i < w->count; i++)
            if (w->pids[i] == pid) {
                int its = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
                w->pids[i] = 0;
                w->left--;
                if (its && !w->told && !w->failed_ns) {
                    w->status = its;
                    w->failed_ns = gp_clock_ns();
                    ranks_say("rank %d ended with status %d", w->ranks[i], its);
                }
            }
}

/* ---- ranks that do not move -------------------------------------------------------------------------------------- */

/* Seconds of processor time of all processes below this one.  *busy: one of them runs, or waits for a processor or a disk, and did
 * so when this was called before: on a machine under load a start may take minutes.  A rank that looks again and again whether a
 * key is there is seen so by chance, but seldom twice in a row.  *tasks: their threads. */
static double idle_used(bool *busy, long *tasks)
{
    static struct {
        int pid, parent;
        char state;
        long tasks;
        double used;
        bool below;
    } rows[8192];
    static int before[GP_COUNT(rows)];
    static size_t ready_before;
    int ready[GP_COUNT(rows)];
    size_t ready_count = 0;
    *busy = false;
    *tasks = 0;
    size_t count = 0;
    DIR *folder = opendir("/proc");
    for (const struct dirent *entry; folder && count < GP_COUNT(rows) && (entry = readdir(folder));) {
        char path[300], text[1024], *end;
        unsigned long user, system;
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
        if (fd >= 0)
            close(fd);
        if (n <= 0)
            continue;
        text[n] = '\0';
        end = strrchr(text, ')'); /* a name may have anything */
        if (!end || sscanf(end + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %ld",
                           &rows[count].state, &rows[count].parent, &user, &system, &rows[count].tasks) != 5)
            continue;
        rows[count].pid = atoi(entry->d_name);
        rows[count].used = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
        rows[count++].below = false;
    }
    if (folder)
        closedir(folder);
    double sum = 0;
    bool more = true;
    while (more) { /* a child may have a smaller number than its parent */
        more = false;
        for (size_t i = 0; i < count; i++) {
            bool below = rows[i].parent == getpid();
            for (size_t k = 0; k < count && !below; k++)
                below = rows[k].below && rows[k].pid == rows[i].parent;
            if (!below || rows[i].below)
                continue;
            rows[i].below = more = true;
            *tasks += rows[i].tasks;
            sum += rows[i].used;
            if (rows[i].state != 'R' && rows[i].state != 'D')
                continue;
            ready[ready_count++] = rows[i].pid;
            for (size_t k = 0; k < ready_before; k++)
                *busy |= before[k] == rows[i].pid;
        }
    }
    memcpy(before, ready, ready_count * sizeof(*ready));
    ready_before = ready_count;
    return sum;
}

/* The innermost line that is not of Python's library or of a package, and what the rank waits for, if that is known. */
static void idle_place(char *line, char *out, size_t bytes)
{
    const char *rank = strsep(&line, "\t"), *what = strsep(&line, "\t"), *first = line;
    char *frame, *found = NULL;
    if (!first)
        return;
    while ((frame = strsep(&line, "\t")))
        if (!found && !strstr(frame, "site-packages") && !strstr(frame, "/lib/python") &&
            !strstr(frame, "gpuprof_absent"))
            found = frame;
    char text[400];
    snprintf(text, sizeof(text), "rank %s stands at %s%s%s", rank, found ? found : first,
             *what ? ", and waits for " : "", what);
    gp_text_clean(out, bytes, text, strlen(text));
}

static void idle_say(struct ranks_work *w)
{
    const char *path = getenv("GPUPROF_SIM_WAITS");
    char *line = NULL, place[512];
    size_t room = 0;
    int said = 0;
    ranks_say(
        "none of the %u ranks that run has moved for %llu s: %s. The run ends. If a rank waits for one that is absent, "
        "run that one too (--ranks)",
        w->count, GP_RANKS_IDLE_NS / 1000000000, "they wait, for each other or for what an absent rank would do");
    FILE *file = path ? fopen(path, "re") : NULL;
    while (file && said < GP_RANKS_SAID && getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        place[0] = '\0';
        idle_place(line, place, sizeof(place));
        if (place[0])
            ranks_say("%s", place);
        said++;
    }
    free(line);
    if (file)
        fclose(file);
}

static void idle_look(struct ranks_work *w, uint64_t now)
{
    if (now < w->scan_ns)
        return;
    w->scan_ns = now + GP_RANKS_SCAN_NS;
    bool busy;
    long tasks;
    double used = idle_used(&busy, &tasks),
           polling = GP_RANKS_IDLE_ONE * (w->left + 1) + GP_RANKS_IDLE_TASK * (double)tasks;
    if (busy || used - w->used > polling || used < w->used) {
        w->used = used;
        w->idle_ns = now;
    }
    if (now - w->idle_ns < GP_RANKS_IDLE_NS || w->told)
        return;
    idle_say(w);
    w->status = GP_EXIT_FAILED;
    ranks_tell(w);
}

/* ---- the wave ---------------------------------------------------------------------------------------------------- */

static void ranks_wait(struct ranks_work *w, const sigset_t *set)
{
    const char *peers = getenv("GPUPROF_SIM_PEERS");
    const struct timespec look = {.tv_nsec = (long)GP_RANKS_LOOK_NS};
    w->idle_ns = gp_clock_ns();
    while (w->left) {
        int number = sigtimedwait(set, NULL, &look);
        uint64_t now = gp_clock_ns();
        if (number > 0 && number != SIGCHLD) {
            w->status = w->status ? w->status : 128 + number;
            ranks_tell(w);
        }
        ranks_ended(w);
        if (w->failed_ns && now - w->failed_ns > GP_RANKS_AFTER_NS)
            ranks_tell(w);
        if (w->told && now - w->told_ns > GP_RANKS_END_NS)
            ranks_signal(w, SIGKILL);
        if (peers && !w->told && gp_world_grow(w->world, peers)) { /* this run only shows which ranks to run */
            w->told = true;
            w->told_ns = now;
            w->status = 0;
            ranks_signal(w, SIGKILL);
        }
        idle_look(w, now);
    }
}

static int ranks_start(struct ranks_work *w, const sigset_t *before)
{
    const pid_t own = getpid();
    for (uint32_t i = 0; i < w->count; i++) {
        w->pids[i] = fork();
        if (w->pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            sigprocmask(SIG_SETMASK, before, NULL);
            _exit(getppid() == own ? rank_exec(w->world, w->ranks[i]) : GP_EXIT_FAILED);
        }
        if (w->pids[i] < 0) {
            ranks_say("rank %d: cannot start a process: %s", w->ranks[i], strerror(errno));
            w->pids[i] = 0;
            w->status = GP_EXIT_FAILED;
            ranks_tell(w);
            return GP_EXIT_FAILED;
        }
        w->left++;
    }
    return GP_EXIT_OK;
}

static int ranks_wave(struct gp_world *world, const int32_t *ranks, uint32_t count)
{
    static const int numbers[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    struct ranks_work w = {.world = world, .ranks = ranks, .count = count, .pids = calloc(count, sizeof(pid_t))};
    sigset_t set, before;
    int port = ranks_port(), store = ranks_port();
    if (!w.pids || !ranks_present(&w) || port < 0 || store < 0) {
        gp_error("dryrun", "the ranks cannot be started: %s", strerror(errno));
        free(w.pids);
        return GP_EXIT_FAILED;
    }
    rank_set("MASTER_PORT", "%lld", port);
    rank_set("GPUPROF_SIM_STORE", "%lld", store);
    sigemptyset(&set);
    for (size_t i = 0; i < GP_COUNT(numbers); i++)
        sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    ranks_start(&w, &before);
    ranks_wait(&w, &set);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(w.pids);
    return w.status;
}

int gp_world_run(void *data)
{
    struct gp_world *world = data;
    const uint32_t count = world->count; /* it grows where a run shows that more are needed: they are of the next run */
    uint32_t each = world->jobs && world->jobs < count ? (uint32_t)world->jobs : count;
    int status = 0;
    for (uint32_t i = 0; i < count && !status; i += each)
        status = ranks_wave(world, &world->ranks[i], count - i < each ? count - i : each);
    return status;
}
