/* SPDX-License-Identifier: MIT
 *
 * agent_process.h: the real `gpuprof agent` beside a bench: starts it, waits for it, reads its pins
 * and /proc, ends it.  The agent arms only the file that the bench names, has pins of its own, and
 * ends with the bench.
 */
#ifndef GP_TEST_BENCH_AGENT_PROCESS_H
#define GP_TEST_BENCH_AGENT_PROCESS_H

#include "agent/kernel/bpf.h"
#include "lib/paths.h"
#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AGENT_READY_MS 30000 /* the verifier takes about a quarter of a second; a busy machine multiplies that */

struct agent {
    pid_t pid;
    int log;                                   /* its output */
    int meta, process_device, device, program; /* descriptors; program: -1 where it cannot be had */
    char pins[64];
    char why[512]; /* why it does not run */
};

static int agent_listen(struct sockaddr_un *address, socklen_t *bytes)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* Without a path the socket gets an abstract name, which needs no removal. */
    *bytes = sizeof(sa_family_t);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, *bytes) != 0)
        return -1;
    *bytes = sizeof(*address);
    return getsockname(fd, (struct sockaddr *)address, bytes) == 0 ? fd : -1;
}

static void agent_exec(const struct agent *agent, const char *notify, const char *file, bool discover)
{
    const char *words[] = {path_command(), "agent", "--pins", agent->pins, "--library", file, NULL, NULL};
    words[6] = discover ? NULL : "--no-discover";
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setenv("NOTIFY_SOCKET", notify, 1);
    unsetenv("JOURNAL_STREAM");
    dup2(agent->log, 1);
    dup2(agent->log, 2);
    execv(words[0], (char *const *)(uintptr_t)words);
    _exit(127);
}

/* Its last words, or how it ended. */
static void agent_ended(struct agent *agent, int status)
{
    char text[sizeof(agent->why)] = "";
    ssize_t got = pread(agent->log, text, sizeof(text) - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (text[0])
        memcpy(agent->why, text, sizeof(text));
    else
        snprintf(agent->why, sizeof(agent->why), "the agent ended with status %d", status);
}

static bool agent_wait(struct agent *agent, int socket)
{
    for (int waited = 0, status; waited < AGENT_READY_MS; waited += 5) {
        struct pollfd poll_fd = {.fd = socket, .events = POLLIN};
        char text[1024] = "";
        if (poll(&poll_fd, 1, 5) == 1 && recv(socket, text, sizeof(text) - 1, 0) > 0 && strstr(text, "READY=1"))
            return true;
        if (waitpid(agent->pid, &status, WNOHANG) == agent->pid) {
            agent->pid = 0;
            agent_ended(agent, status);
            return false;
        }
    }
    snprintf(agent->why, sizeof(agent->why), "the agent was not ready after %d s", AGENT_READY_MS / 1000);
    return false;
}

/* Visits what /proc says of each descriptor of the agent. */
static void agent_descriptors(const struct agent *agent, void (*visit)(void *arg, const char *line), void *arg)
{
    char path[64], line[256];
    snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)agent->pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char one[512];
        snprintf(one, sizeof(one), "%s/%s", path, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(one, "re");
        while (file && fgets(line, sizeof(line), file))
            visit(arg, line);
        if (file)
            fclose(file);
    }
    if (folder)
        closedir(folder);
}

static void agent_program_of(void *arg, const char *line)
{
    int *program = arg;
    unsigned id;
    struct bpf_prog_info info = {0};
    uint32_t bytes = sizeof(info);
    if (*program >= 0 || sscanf(line, "prog_id: %u", &id) != 1)
        return;
    int fd = bpf_prog_get_fd_by_id(id);
    if (fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 && strcmp(info.name, "gpuprof_batch") == 0)
        *program = fd;
    else if (fd >= 0)
        close(fd);
}

struct agent_maps { /* each map once, however many descriptors refer to it */
    uint32_t ids[64];
    unsigned count;
    uint64_t bytes, locked;
};

static void agent_map_of(void *arg, const char *line)
{
    struct agent_maps *maps = arg;
    unsigned long locked;
    unsigned id;
    if (sscanf(line, "memlock: %lu", &locked) == 1)
        maps->locked = locked; /* comes before the id; programs have it too */
    if (sscanf(line, "map_id: %u", &id) != 1)
        return;
    for (unsigned i = 0; i < maps->count; i++)
        if (maps->ids[i] == id)
            return;
    if (maps->count < 64)
        maps->ids[maps->count++] = id;
    maps->bytes += maps->locked;
}

/* Memory of all maps that it holds. */
static struct agent_maps agent_maps(const struct agent *agent)
{
    struct agent_maps maps = {0};
    agent_descriptors(agent, agent_map_of, &maps);
    return maps;
}

static int agent_pin(const struct agent *agent, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", agent->pins, name);
    return bpf_obj_get(path);
}

static void agent_close(struct agent *agent)
{
    int *const all[] = {&agent->meta, &agent->process_device, &agent->device, &agent->program};
    for (unsigned i = 0; i < 4; i++) {
        if (*all[i] > 0)
            close(*all[i]);
        *all[i] = -1;
    }
}

/* Ends it by that signal and waits; a SIGTERM takes its pins along. */
static void agent_stop(struct agent *agent, int sig)
{
    agent_close(agent);
    if (agent->pid <= 0)
        return;
    kill(agent->pid, sig);
    waitpid(agent->pid, NULL, 0);
    agent->pid = 0;
}

/* Everything is given back, whatever happened. */
static void agent_end(struct agent *agent)
{
    agent_stop(agent, SIGTERM);
    gp_bpf_unpin(agent->pins);
}

static bool agent_open(struct agent *agent)
{
    agent->meta = agent_pin(agent, "meta");
    agent->process_device = agent_pin(agent, "process_device");
    agent->device = agent_pin(agent, "device");
    agent->program = -1;
    agent_descriptors(agent, agent_program_of, &agent->program);
    if (agent->meta >= 0 && agent->process_device >= 0 && agent->device >= 0)
        return true;
    snprintf(agent->why, sizeof(agent->why), "no pins at %s: %s", agent->pins, strerror(errno));
    return false;
}

/* Armed on `file` when it returns true; else `why` says why not. */
static bool agent_start(struct agent *agent, const char *file, bool discover)
{
    struct sockaddr_un address;
    socklen_t bytes;
    char notify[sizeof(address.sun_path) + 1];
    snprintf(agent->pins, sizeof(agent->pins), "/sys/fs/bpf/gpuprof-bench-%d", (int)getpid());
    agent->meta = agent->process_device = agent->device = agent->program = -1;
    int socket = agent_listen(&address, &bytes);
    if (agent->log <= 0)
        agent->log = memfd_create("agent", MFD_CLOEXEC);
    if (socket < 0 || agent->log < 0 || ftruncate(agent->log, 0) != 0 || lseek(agent->log, 0, SEEK_SET) != 0)
        return false;
    int length = (int)(bytes - sizeof(sa_family_t)) - 1;
    snprintf(notify, sizeof(notify), "@%.*s", length, address.sun_path + 1);
    fflush(stdout);
    agent->pid = fork();
    if (agent->pid == 0)
        agent_exec(agent, notify, file, discover);
    bool ready = agent->pid > 0 && agent_wait(agent, socket) && agent_open(agent);
    close(socket);
    if (!ready)
        agent_end(agent);
    return ready;
}

static struct gp_map_meta agent_meta(const struct agent *agent)
{
    struct gp_map_meta meta = {0};
    uint32_t zero = 0;
    bpf_map_lookup_elem(agent->meta, &zero, &meta);
    return meta;
}

static struct gp_map_sum agent_device(const struct agent *agent, const uint8_t uuid[16])
{
    struct gp_map_sum sum = {0};
    bpf_map_lookup_elem(agent->device, uuid, &sum);
    return sum;
}

/* CPU time that it has taken. */
static uint64_t agent_cpu_ns(const struct agent *agent)
{
    clockid_t clock;
    struct timespec now = {0};
    if (clock_getcpuclockid(agent->pid, &clock) == 0)
        clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* A line of /proc/PID/status in KiB ("VmRSS:"); -1 unknown. */
static long agent_status_kib(const struct agent *agent, const char *name)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)agent->pid);
    FILE *file = fopen(path, "re");
    while (file && kib < 0 && fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = atol(line + strlen(name));
    if (file)
        fclose(file);
    return kib;
}

/* The producer and the consumer position of the ring. */
struct agent_ring {
    uint64_t put, taken;
};

static bool agent_ring(const struct agent *agent, struct agent_ring *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = agent_pin(agent, "events");
    if (fd < 0)
        return false;
    const uint64_t *taken = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
    const uint64_t *put = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, (off_t)page);
    close(fd);
    bool good = taken != MAP_FAILED && put != MAP_FAILED;
    if (good) {
        /* The consumer's and the producer's words, as libbpf reads them: acquire pairs with the
         * kernel's and the agent's releases. */
        out->taken = __atomic_load_n(taken, __ATOMIC_ACQUIRE);
        out->put = __atomic_load_n(put, __ATOMIC_ACQUIRE);
    }
    if (taken != MAP_FAILED)
        munmap((void *)(uintptr_t)taken, page);
    if (put != MAP_FAILED)
        munmap((void *)(uintptr_t)put, page);
    return good;
}

#endif
