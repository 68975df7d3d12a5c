/* SPDX-License-Identifier: MIT
 *
 * agent.c: see agent.h.
 */
#include "lib/agent.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/kernel/bpf.h"
#include "lib/paths.h"

/* The verifier needs a second to load the programs on a busy machine and ten under an emulator. Beside
 * real-time processes it took more than a minute. The limit is for an agent that hangs: a test goes on as soon
 * as the agent is ready. */
#define AGENT_READY_MS 200000

static long long agent_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

/* ---- start and stop ---------------------------------------------------------------------------------------------- */

static unsigned agent_add(const char **argv, unsigned count, const char *const *words)
{
    for (; words && *words && count < AGENT_WORDS - 1; words++)
        argv[count++] = *words;
    return count;
}

static void agent_child(const struct agent *agent, const struct place *place, const struct agent_options *options,
                        const char *notify)
{
    const char *argv[AGENT_WORDS] = {0};
    sigset_t none;
    unsigned count = agent_add(argv, 0, options->before);
    count = agent_add(argv, count, (const char *[]){path_command(), "agent", "--pins", place->pins, NULL});
    if (!options->want_discover)
        count = agent_add(argv, count, (const char *[]){"--library", place->library, "--no-discover", NULL});
    agent_add(argv, count, options->more);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (place_enter(&place->groups[agent->group]) != 0)
        _exit(125);
    int null = open("/dev/null", O_RDWR), log = open(agent->log, O_WRONLY | O_APPEND);
    dup2(null, 0);
    dup2(null, 1);
    dup2(log, 2);
    syscall(SYS_close_range, 3u, ~0u, 0);
    unsetenv("JOURNAL_STREAM");
    unsetenv("WATCHDOG_USEC");
    setenv("NOTIFY_SOCKET", notify, 1);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

static int agent_notify_open(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    unlink(path);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
        close(fd);
        return -errno;
    }
    return fd;
}

/* Reads the messages that have arrived: READY, the last STATUS. */
static void agent_notified(struct agent *agent)
{
    char text[1024], *line, *state;
    ssize_t length;
    while ((length = recv(agent->notify_fd, text, sizeof(text) - 1, 0)) > 0) {
        text[length] = '\0';
        for (line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
            agent->is_ready |= !strcmp(line, "READY=1");
            if (!strncmp(line, "STATUS=", 7))
                snprintf(agent->status, sizeof(agent->status), "%s", line + 7);
        }
    }
}

static unsigned agent_port(const struct agent *agent)
{
    unsigned port = 0;
    char *words = agent_words(agent), *at = words ? strstr(words, "metrics at http://127.0.0.1:") : NULL;
    if (at)
        port = (unsigned)atoi(at + strlen("metrics at http://127.0.0.1:"));
    free(words);
    return port;
}

static int agent_wait_ready(struct agent *agent, int *status, char *why, size_t why_bytes)
{
    long long until = agent_now_ms() + AGENT_READY_MS;
    struct pollfd wait = {.fd = agent->notify_fd, .events = POLLIN};
    while (!agent->is_ready && agent_now_ms() < until) {
        if (waitpid(agent->pid, status, WNOHANG) == agent->pid) {
            agent->pid = 0;
            char *words = agent_words(agent);
            size_t length = words ? strlen(words) : 0;
            snprintf(why, why_bytes, "%s", words ? words + (length < why_bytes ? 0 : length - why_bytes + 1) : "");
            free(words);
            return -ECHILD;
        }
        poll(&wait, 1, 20);
        agent_notified(agent);
    }
    if (!agent->is_ready)
        snprintf(why, why_bytes, "not READY=1 within %d s", AGENT_READY_MS / 1000);
    return agent->is_ready ? 0 : -ETIMEDOUT;
}

pid_t agent_launch(struct agent *agent, struct place *place, const struct agent_options *options)
{
    static unsigned number;
    char notify[96];
    int error;
    *agent = (struct agent){.notify_fd = -1};
    /* All agents of the place are in one cgroup. */
    if (place->agent_group < 0)
        place->agent_group = place_group(place, false);
    agent->group = place->agent_group;
    if (agent->group < 0)
        return agent->group;
    number++;
    snprintf(agent->log, sizeof(agent->log), "%s/agent%u.log", place->dir, number);
    snprintf(notify, sizeof(notify), "%s/notify%u", place->dir, number);
    int log = open(agent->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    agent->notify_fd = log < 0 ? -1 : agent_notify_open(notify);
    if (log < 0 || agent->notify_fd < 0)
        return -errno;
    close(log);
    agent->pid = fork();
    if (agent->pid == 0)
        agent_child(agent, place, options, notify);
    error = errno;
    return agent->pid > 0 ? agent->pid : -error;
}

int agent_start(struct agent *agent, struct place *place, const struct agent_options *options, int *status, char *why,
                size_t why_bytes)
{
    *status = -1;
    snprintf(why, why_bytes, "it cannot be started here");
    pid_t pid = agent_launch(agent, place, options);
    int error = pid < 0 ? (int)pid : agent_wait_ready(agent, status, why, why_bytes);
    if (error && agent->pid > 0)
        agent_stop(agent, SIGKILL);
    else if (error && agent->notify_fd >= 0)
        close(agent->notify_fd);
    if (!error)
        agent->port = agent_port(agent);
    return error;
}

int agent_stop(struct agent *agent, int with)
{
    int status = -1;
    if (agent->pid <= 0)
        return -1;
    kill(agent->pid, with);
    for (long long until = agent_now_ms() + 20000; agent_now_ms() < until; usleep(500)) {
        if (waitpid(agent->pid, &status, WNOHANG) == agent->pid)
            break;
        status = -1;
    }
    if (status == -1) { /* the caller reports the failure */
        kill(agent->pid, SIGKILL);
        waitpid(agent->pid, NULL, 0);
    }
    close(agent->notify_fd);
    agent->notify_fd = -1;
    agent->pid = 0;
    return status;
}

char *agent_words(const struct agent *agent)
{
    FILE *file = fopen(agent->log, "re");
    char *text = calloc(1, 1 << 16);
    if (file && text)
        text[fread(text, 1, (1 << 16) - 1, file)] = '\0';
    if (file)
        fclose(file);
    return text;
}

/* ---- objects of the kernel --------------------------------------------------------------------------------------- */

static void agent_id_add(uint32_t *ids, unsigned *count, unsigned id)
{
    for (unsigned i = 0; i < *count; i++)
        if (ids[i] == id)
            return;
    if (*count < 64)
        ids[(*count)++] = id;
}

static void agent_ids_of(struct agent_ids *ids, const char *path)
{
    FILE *file = fopen(path, "re");
    char line[256];
    unsigned id;
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "prog_id: %u", &id) == 1)
            agent_id_add(ids->programs, &ids->program_count, id);
        else if (sscanf(line, "map_id: %u", &id) == 1)
            agent_id_add(ids->maps, &ids->map_count, id);
        else if (sscanf(line, "link_id: %u", &id) == 1)
            agent_id_add(ids->links, &ids->link_count, id);
    if (file)
        fclose(file);
}

void agent_ids_read(struct agent_ids *ids, pid_t pid)
{
    char path[320];
    *ids = (struct agent_ids){0};
    snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        snprintf(path, sizeof(path), "/proc/%d/fdinfo/%s", (int)pid, entry->d_name);
        if (entry->d_name[0] != '.')
            agent_ids_of(ids, path);
    }
    if (dir)
        closedir(dir);
}

static unsigned agent_ids_count(const uint32_t *ids, unsigned count, int (*open_id)(__u32 id))
{
    unsigned left = 0;
    for (unsigned i = 0; i < count; i++) {
        int fd = open_id(ids[i]);
        left += fd >= 0 || errno != ENOENT;
        if (fd >= 0)
            close(fd);
    }
    return left;
}

unsigned agent_ids_left(const struct agent_ids *ids, bool pinned)
{
    unsigned left = 0;
    for (int tries = 0; tries < 1000; tries++) {
        left = agent_ids_count(ids->programs, ids->program_count, bpf_prog_get_fd_by_id) +
               agent_ids_count(ids->links, ids->link_count, bpf_link_get_fd_by_id) +
               (pinned ? 0 : agent_ids_count(ids->maps, ids->map_count, bpf_map_get_fd_by_id));
        if (left == 0)
            break;
        usleep(10000);
    }
    return left;
}

/* ---- pins -------------------------------------------------------------------------------------------------------- */

int agent_map(const struct place *place, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", place->pins, name);
    int fd = bpf_obj_get(path);
    return fd < 0 ? -errno : fd;
}

int agent_meta(const struct place *place, struct gp_map_meta *out)
{
    uint32_t zero = 0;
    int fd = agent_map(place, "meta");
    if (fd < 0)
        return fd;
    int error = bpf_map_lookup_elem(fd, &zero, out) == 0 ? 0 : -errno;
    close(fd);
    return error;
}

uint64_t agent_heartbeat_age_ns(const struct place *place)
{
    struct gp_map_meta meta;
    struct timespec now;
    if (agent_meta(place, &meta) != 0)
        return UINT64_MAX;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
    return now_ns > meta.heartbeat_ns ? now_ns - meta.heartbeat_ns : 0;
}

/* Address of the file's data mapping that contains this offset of the file; 0: no such mapping. */
static uint64_t agent_address(pid_t pid, const char *file, uint64_t offset)
{
    char path[64], line[512], mode[8], name[256];
    uint64_t from, to, at, address = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof(line), maps))
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %255s", &from, &to, mode, &at, name) == 5 &&
            !strcmp(name, file) && mode[1] == 'w' && offset >= at && offset - at < to - from)
            address = from + (offset - at);
    if (maps)
        fclose(maps);
    return address;
}

int agent_semaphore(pid_t pid, const char *file)
{
    struct gp_bpf_probe probe;
    char path[64];
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? -errno : gp_bpf_probe_find(fd, &probe);
    if (fd >= 0)
        close(fd);
    if (error)
        return error;
    uint64_t address = agent_address(pid, file, probe.semaphore_offset);
    uint16_t value;
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_read = address && fd >= 0 && pread(fd, &value, sizeof(value), (off_t)address) == sizeof(value);
    if (fd >= 0)
        close(fd);
    return is_read ? value : -ESRCH;
}

/* ---- metrics ----------------------------------------------------------------------------------------------------- */

char *agent_get(unsigned port, const char *path)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    size_t have = 0, room = 4u << 20;
    char *text = calloc(1, room), request[256];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 20};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    int length = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n", path);
    bool is_sent = text && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
                   send(fd, request, (size_t)length, MSG_NOSIGNAL) == length;
    for (ssize_t n; is_sent && have < room - 1 && (n = recv(fd, text + have, room - 1 - have, 0)) > 0;)
        have += (size_t)n;
    close(fd);
    char *body = is_sent && text ? strstr(text, "\r\n\r\n") : NULL;
    char *out = body && strstr(text, " 200 ") ? strdup(body + 4) : NULL;
    free(text);
    return out;
}

double agent_sample(const char *page, const char *begins)
{
    size_t length = strlen(begins);
    for (const char *line = page; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *end = strchr(line, '\n');
        if (strncmp(line, begins, length) != 0)
            continue;
        const char *space = end ? memrchr(line, ' ', (size_t)(end - line)) : strrchr(line, ' ');
        return space ? atof(space) : -1;
    }
    return -1;
}
