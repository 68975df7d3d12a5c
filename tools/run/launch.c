/* SPDX-License-Identifier: MIT
 * launch.c: prepares the environment in which a program is profiled; see cmd.h.  It checks
 * everything before the program starts, and creates no files.  Its parts: stand-ins of libraries,
 * simulated GPUs, a program under the profiler, a program that is waited for. */
#define _GNU_SOURCE /* asprintf */
#include <base/text.h>
#include <common/messages.h>
#include <common/values.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <gpuprof/wire.h>
#include <limits.h>
#include <read/common/parse.h>
#include <run/launch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- stand-ins of libraries -------------------------------------------------------------------------------------- */
/* The stand-ins for NVIDIA's mathematics libraries, which the simulated GPU needs: the real ones ask
 * the driver for tables that only NVIDIA's has.  See docs/standins.md.  Lets programs find the
 * stand-ins for NVIDIA's libraries. */

#define STANDIN_TUNABLES "GLIBC_TUNABLES"
#define STANDIN_TLS      "glibc.rtld.optional_static_tls"

/* With an auditor the loader lays out thread-local storage before it has seen the program's libraries, and keeps 512 bytes
 * for those that have theirs beside the thread: fewer than jemalloc needs, 2.6 KiB, and ThreadSanitizer, 770 KiB.  Each
 * thread's stack has the room, so it is large only where a sanitizer is known to need it: a thread of 32 KiB still starts
 * with 16 KiB. */
static int standin_storage(const char *program)
{
    const char *before = getenv(STANDIN_TUNABLES);
    char *joined = NULL;
    if (before && strstr(before, STANDIN_TLS))
        return 0;
    if (asprintf(&joined, "%s%s" STANDIN_TLS "=%u", before ? before : "", before && before[0] ? ":" : "",
                 gp_preload_is_sanitized(program) ? 1u << 20 : 16384u) < 0)
        return -1;
    int rc = setenv(STANDIN_TUNABLES, joined, 1);
    free(joined);
    return rc;
}

/* Sets the environment in which a program finds the stand-ins, whatever its run paths say, and its
 * children too: LD_AUDIT, in front of what is there, and LD_BIND_NOW before glibc 2.35.  `sim` is
 * the folder of the simulated driver. Nothing is set if GPUPROF_STANDINS is 0.  A GP_EXIT_ status,
 * after a message if it is not GP_EXIT_OK. */
static int standin_environment(const char *command, const char *sim, const char *program)
{
    const char *off = getenv("GPUPROF_STANDINS");
    const char *before = getenv("LD_AUDIT");
    char path[PATH_MAX], *joined = NULL;
    if (off && strcmp(off, "0") == 0)
        return GP_EXIT_OK;
    int n = snprintf(path, sizeof(path), "%s/standin/libgpuprof-standin.so", sim);
    if (n < 0 || (size_t)n >= sizeof(path) || access(path, R_OK) != 0) {
        gp_error(command,
                 "%s: %s: without it programs load NVIDIA's own libraries, which do not work on the simulated GPU: "
                 "install gpuprof again (in a source tree: make sim), or set GPUPROF_STANDINS=0",
                 path, strerror(errno));
        return GP_EXIT_USAGE;
    }
    /* A run inside of a run names it already; two of them would look twice. */
    if (before && strstr(before, path))
        return GP_EXIT_OK;
    if (strchr(path, ':')) {
        gp_error(command, "%s: the loader takes no path with a colon in LD_AUDIT: NVIDIA's own libraries are used",
                 path);
        return GP_EXIT_OK;
    }
    if (asprintf(&joined, "%s%s%s", path, before && before[0] ? ":" : "", before ? before : "") < 0)
        return GP_EXIT_FAILED;
    int rc = setenv("LD_AUDIT", joined, 1);
    free(joined);
    if (!rc)
        rc = standin_storage(program);
    /* Before glibc 2.35 the stand-ins stay away without it (sim/standin/audit.c). */
    int minor = 0;
    if (!rc && sscanf(gnu_get_libc_version(), "2.%d", &minor) == 1 && minor < 35)
        rc = setenv("LD_BIND_NOW", "1", 1);
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* ---- simulated GPUs ---------------------------------------------------------------------------------------------- */
/* The value of --sim, checked before a program starts, and the list of GPUs by name.  The simulator
 * has the list: a function of its driver returns it as text. */

#define SIMSPEC_LEDGER "GPUPROF_SIM_LEDGER"
#define SIMSPEC_NAME   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

/* A line of the list. */
struct simspec_gpu {
    char *key, *name, *capability, *multiprocessors, *memory, *known, *l2, *bandwidth, *threads;
};

/* The next line of *rest, which is cut into its fields.  False: no more. */
static bool simspec_next(char **rest, struct simspec_gpu *gpu)
{
    char **const fields[] = {&gpu->key,   &gpu->name, &gpu->capability, &gpu->multiprocessors, &gpu->memory,
                             &gpu->known, &gpu->l2,   &gpu->bandwidth,  &gpu->threads};
    char *line = strsep(rest, "\n");
    for (size_t i = 0; i < GP_COUNT(fields); i++) {
        *fields[i] = strsep(&line, "\t");
        if (!*fields[i])
            return false;
    }
    return true;
}

#define SIMSPEC_KEYS 2048

struct simspec_driver {
    void *library; /* NULL: it cannot be loaded */
    char *ledger;
};

/* The driver writes its ledger when it is unloaded; that of this process would be in the way. */
static struct simspec_driver simspec_open(const char *path)
{
    const char *ledger = getenv(SIMSPEC_LEDGER);
    struct simspec_driver driver = {NULL, ledger ? strdup(ledger) : NULL};
    if (ledger && !driver.ledger)
        return driver;
    unsetenv(SIMSPEC_LEDGER);
    driver.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return driver;
}

static void simspec_close(struct simspec_driver *driver)
{
    if (driver->library)
        dlclose(driver->library);
    if (driver->ledger)
        setenv(SIMSPEC_LEDGER, driver->ledger, 1);
    free(driver->ledger);
}

/* What the driver says, to be freed: the list, or the keys that `name` may mean; NULL after a message. */
static char *simspec_ask(const char *command, const char *path, const char *name)
{
    const char *(*list)(void) = NULL;
    void (*named)(const char *, char *, size_t) = NULL;
    struct simspec_driver driver = simspec_open(path);
    char *said = NULL;
    if (driver.library) {
        *(void **)&list = dlsym(driver.library, "sim_gpu_table");
        *(void **)&named = dlsym(driver.library, "sim_gpu_named");
    }
    if (!list || !named)
        gp_error(command, "%s has no list of GPUs: install the simulated GPU that belongs to this gpuprof", path);
    else if (!name)
        said = strdup(list());
    else if ((said = calloc(1, SIMSPEC_KEYS)))
        named(name, said, SIMSPEC_KEYS);
    simspec_close(&driver);
    return said;
}

static int simspec_key(const char *command, const char *driver, const char *option, const char *name,
                       char key[GP_SIM_KEY])
{
    char *keys = simspec_ask(command, driver, name), *last;
    int rc = keys ? GP_EXIT_OK : GP_EXIT_FAILED;
    key[0] = '\0';
    if (keys && (last = strrchr(keys, ',')))
        rc = gp_usage_error(command, "%s%s: which one: %.*s or %s?", option, name, (int)(last - keys), keys, last + 2);
    else if (keys)
        snprintf(key, GP_SIM_KEY, "%s", keys);
    free(keys);
    return rc;
}

static int spec_gpu(const char *command, const char *name, const char *driver)
{
    char key[GP_SIM_KEY];
    int rc = simspec_key(command, driver, "--sim: gpu=", name, key);
    if (!rc && !key[0])
        rc = gp_usage_error(command, "--sim: gpu=%s: no GPU of that name; --sim=gpu=list shows the names", name);
    return rc;
}

static int simspec_list(const char *command, const char *driver)
{
    struct simspec_gpu gpu;
    char text[GP_SIZE_TEXT];
    char *table = simspec_ask(command, driver, NULL), *rest = table;
    if (!table)
        return GP_EXIT_FAILED;
    printf("%-15s %-45s %10s %4s %11s %14s  %-8s %9s\n", "NAME", "DEVICE", "CAPABILITY", "SMS", "MEMORY", "BYTES",
           "KNOWN", "GB/S");
    while (simspec_next(&rest, &gpu))
        printf("%-15s %-45s %10s %4s %11s %14s  %-8s %9lld\n", gpu.key, gpu.name, gpu.capability, gpu.multiprocessors,
               gp_size_text(text, atoll(gpu.memory)), gpu.memory, gpu.known, atoll(gpu.bandwidth) / 1000000000);
    free(table);
    return GP_EXIT_OK;
}

static int simspec_gpus(const char *command, const char *driver, struct gp_sim_gpu **gpus, uint32_t *count)
{
    struct simspec_gpu gpu;
    char *table = simspec_ask(command, driver, NULL), *rest = table;
    size_t lines = 1;
    *count = 0;
    for (const char *at = table; at && *at; at++)
        lines += *at == '\n';
    *gpus = calloc(lines, sizeof(**gpus));
    while (table && *gpus && simspec_next(&rest, &gpu)) {
        struct gp_sim_gpu *one = &(*gpus)[(*count)++];
        snprintf(one->key, sizeof(one->key), "%s", gpu.key);
        snprintf(one->name, sizeof(one->name), "%s", gpu.name);
        snprintf(one->capability, sizeof(one->capability), "%s", gpu.capability);
        one->total_bytes = atoll(gpu.memory);
        one->threads = atoll(gpu.multiprocessors) * atoll(gpu.threads);
    }
    free(table);
    if (table && *gpus)
        return GP_EXIT_OK;
    free(*gpus);
    *gpus = NULL;
    return GP_EXIT_FAILED;
}

static int spec_word(const char *command, const char *key, const char *value, const char *driver)
{
    int64_t number;
    char why[GP_TEXT_WHY];
    if (strcmp(key, "devices") == 0 && gp_parse_number(value, 1, GP_WIRE_GPUS, &number) != 0)
        return gp_usage_error(command, "--sim: devices=%s: from 1 to %u", value, GP_WIRE_GPUS);
    if ((strcmp(key, "memory") == 0 || strcmp(key, "limit") == 0) &&
        (gp_text_size_parse(value, &number) != 0 || number <= 0))
        return gp_usage_error(command, "--sim: %s=%s: %s", key, value, gp_text_size_why(why, value));
    if (strcmp(key, "gpu") == 0)
        return spec_gpu(command, value, driver);
    if (strcmp(key, "latency") == 0 && strcmp(value, "zero") != 0 && strcmp(value, "typical") != 0)
        return gp_usage_error(command, "--sim: latency=%s: zero or typical", value);
    if (strcmp(key, "contents") == 0 && strcmp(value, "keep") != 0 && strcmp(value, "none") != 0)
        return gp_usage_error(command, "--sim: contents=%s: keep or none", value);
    if (strcmp(key, "fill") == 0 && strcmp(value, "zeros") != 0 && strcmp(value, "random") != 0)
        return gp_usage_error(command, "--sim: fill=%s: zeros or random", value);
    if (strcmp(key, "shared") == 0 && (!value[0] || strlen(value) > 32 || value[strspn(value, SIMSPEC_NAME)]))
        return gp_usage_error(command, "--sim: shared=%s: not a name of 1 to 32 letters, digits, - and _", value);
    if (strcmp(key, "node") == 0 && gp_parse_number(value, 1, 65536, &number) != 0)
        return gp_usage_error(command, "--sim: node=%s: from 1 to 65536 ranks", value);
    if (strcmp(key, "faults") == 0 && access(value, R_OK) != 0)
        return gp_usage_error(command, "--sim: faults=%s: %s", value, strerror(errno));
    return GP_EXIT_OK;
}

/* launch.c: the value of --sim, and that list.  driver: path of the simulated libcuda.so.1, which
 * knows the names.  GP_EXIT_OK, or an exit status after a message. */
static int simspec_check(const char *command, const char *spec, const char *driver)
{
    static const char *const keys[] = {"devices",  "gpu",  "memory", "limit", "latency",
                                       "contents", "fill", "shared", "node",  "faults"};
    char *copy = strdup(spec), *state = copy, *word;
    int rc = copy ? GP_EXIT_OK : GP_EXIT_FAILED;
    while (!rc && spec[0] && (word = strsep(&state, ","))) {
        char *value = strchr(word, '=');
        bool known = false;
        if (value)
            *value++ = '\0';
        for (size_t i = 0; i < GP_COUNT(keys); i++)
            known |= strcmp(word, keys[i]) == 0;
        if (!value && strcmp(word, "shared") == 0)
            continue;
        if (!known || !value)
            rc = gp_usage_error(
                command,
                "--sim: '%s': expected devices=N, gpu=NAME, memory=SIZE, limit=SIZE, latency=zero|typical, "
                "contents=keep|none, fill=zeros|random, shared[=NAME], node=RANKS, faults=FILE",
                word);
        else
            rc = spec_word(command, word, value, driver);
    }
    free(copy);
    return rc;
}

/* ---- a program under the profiler -------------------------------------------------------------------------------- */

#define GP_INJECTION "CUDA_INJECTION64_PATH"
#define GP_NVTX      "NVTX_INJECTION64_PATH"

/* The prefix of the installation: "/usr/local" of "/usr/local/bin/gpuprof".  0 or -errno. */
static int launch_prefix(char prefix[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", prefix, PATH_MAX - 1);
    if (n < 0)
        return -errno;
    prefix[n] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(prefix, '/');
        if (!slash)
            return -ENOENT;
        *slash = '\0';
    }
    return 0;
}

static const char *const launch_folders[] = {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"};

int gp_launch_find(char *path, size_t path_bytes, const char *below)
{
    char prefix[PATH_MAX];
    int rc = launch_prefix(prefix);
    for (size_t i = 0; !rc && i < GP_COUNT(launch_folders); i++) {
        int n = snprintf(path, path_bytes, "%s/%s/%s", prefix, launch_folders[i], below);
        if (n > 0 && (size_t)n < path_bytes && access(path, R_OK) == 0)
            return 0;
    }
    snprintf(path, path_bytes, "%s/lib/%s", rc ? "" : prefix, below);
    return rc ? rc : -ENOENT;
}

void gp_launch_missing(const char *command, const char *below, const char *what)
{
    char prefix[PATH_MAX], places[GP_COUNT(launch_folders) * (PATH_MAX + 32)];
    size_t at = 0;
    if (launch_prefix(prefix) != 0)
        prefix[0] = '\0';
    for (size_t i = 0; i < GP_COUNT(launch_folders); i++)
        at += (size_t)snprintf(places + at, sizeof(places) - at, "%s%s/%s", i ? ", " : "", prefix, launch_folders[i]);
    gp_error(command, "%s is missing: it is in none of %s: %s", below, places, what);
}

static int launch_library(struct gp_launch *launch)
{
    struct stat st;
    char whole[PATH_MAX];
    if (launch->given) {
        snprintf(launch->library, sizeof(launch->library), "%s", launch->given);
    } else if (gp_launch_find(launch->library, sizeof(launch->library), "libgpuprof.so") != 0) {
        gp_launch_missing(launch->command, "libgpuprof.so",
                          "install gpuprof again (in a source tree: make lib), or name the library with --library");
        return GP_EXIT_USAGE;
    }
    if (access(launch->library, R_OK) != 0 || stat(launch->library, &st) != 0 || !realpath(launch->library, whole)) {
        gp_error(launch->command, "%s: cannot be loaded: %s", launch->library, strerror(errno));
        return GP_EXIT_USAGE;
    }
    if (!S_ISREG(st.st_mode)) {
        gp_error(launch->command, "%s: cannot be loaded: not a file", launch->library);
        return GP_EXIT_USAGE;
    }
    /* An absolute path, because the program may change its directory before it loads the
     * library. */
    snprintf(launch->library, sizeof(launch->library), "%s", whole);
    const char *other = getenv(GP_INJECTION);
    char other_whole[PATH_MAX];
    if (other && other[0] && !(realpath(other, other_whole) && strcmp(other_whole, whole) == 0)) {
        gp_error(launch->command,
                 GP_INJECTION " is already set to %s: another tool is to be loaded into the program, and CUDA loads "
                              "only one: unset the variable",
                 other);
        return GP_EXIT_USAGE;
    }
    return GP_EXIT_OK;
}

static int launch_driver(const char *command, char path[PATH_MAX])
{
    if (gp_launch_find(path, PATH_MAX, "gpuprof/sim/libcuda.so.1") == 0)
        return GP_EXIT_OK;
    gp_launch_missing(command, "gpuprof/sim/libcuda.so.1",
                      "install the simulated GPU with gpuprof (in a source tree: make sim)");
    return GP_EXIT_USAGE;
}

int gp_launch_gpus(const char *command)
{
    char path[PATH_MAX];
    int rc = launch_driver(command, path);
    return rc ? rc : simspec_list(command, path);
}

int gp_launch_gpu_table(const char *command, struct gp_sim_gpu **gpus, uint32_t *count)
{
    char path[PATH_MAX];
    int rc = launch_driver(command, path);
    return rc ? rc : simspec_gpus(command, path, gpus, count);
}

int gp_launch_gpu_key(const char *command, const char *option, const char *name, char key[GP_SIM_KEY])
{
    char path[PATH_MAX];
    int rc = launch_driver(command, path);
    return rc ? rc : simspec_key(command, path, option, name, key);
}

void gp_launch_sim_end(const struct gp_launch *launch)
{
    char path[PATH_MAX];
    const char *spec = getenv("GPUPROF_SIM");
    if (!launch->sim || !spec || !strstr(spec, "shared") ||
        gp_launch_find(path, sizeof(path), "gpuprof/sim/libcuda.so.1") != 0)
        return;
    void (*sweep)(void) = NULL;
    struct simspec_driver driver = simspec_open(path);
    if (driver.library)
        *(void **)&sweep = dlsym(driver.library, "sim_share_sweep");
    if (sweep)
        sweep();
    simspec_close(&driver);
}

/* In front of a list of folders.  No trailing colon: an empty entry means the current directory. */
static int launch_prepend(const char *variable, const char *folder)
{
    const char *before = getenv(variable);
    char *joined = NULL;
    if (asprintf(&joined, "%s%s%s", folder, before && before[0] ? ":" : "", before ? before : "") < 0)
        return -1;
    int rc = setenv(variable, joined, 1);
    free(joined);
    return rc;
}

static int launch_sim(const struct gp_launch *launch)
{
    char path[PATH_MAX], python[PATH_MAX + sizeof("/python")];
    int rc = launch_driver(launch->command, path);
    if (!rc)
        rc = simspec_check(launch->command, launch->sim, path);
    if (rc)
        return rc;
    *strrchr(path, '/') = '\0';
    snprintf(python, sizeof(python), "%s/python", path);
    rc = launch_prepend("LD_LIBRARY_PATH", path);
    if (!rc && access(python, R_OK) == 0) /* what the simulated GPU has for programs in Python */
        rc = launch_prepend("PYTHONPATH", python);
    /* "--sim" without a value keeps the setting of the environment. */
    if (!rc)
        rc = setenv("GPUPROF_SIM", launch->sim, launch->sim[0] != '\0');
    rc = rc ? GP_EXIT_FAILED : gp_preload_sim(launch, path);
    return rc ? rc : standin_environment(launch->command, path, launch->argv[0]);
}

int gp_launch_prepare(struct gp_launch *launch)
{
    if (!launch->argv || !launch->argv[0])
        return gp_usage_error(launch->command, "no program given");
    int rc = launch_library(launch);
    if (!rc && launch->sim)
        rc = launch_sim(launch);
    if (!rc)
        rc = gp_preload_shim(launch);
    if (!rc && setenv(GP_INJECTION, launch->library, 1) != 0)
        rc = GP_EXIT_FAILED;
    /* NVTX ranges become marks, unless the variable names another tool. */
    if (!rc && setenv(GP_NVTX, launch->library, 0) != 0)
        rc = GP_EXIT_FAILED;
    return rc;
}

/* ---- scripts ---------------------------------------------------------------------------------------------------- */

bool gp_launch_is_program(const char *name)
{
    char path[PATH_MAX];
    const char *list = strchr(name, '/') ? "" : getenv("PATH");
    while (list) {
        size_t length = strcspn(list, ":");
        int used = snprintf(path, sizeof(path), "%.*s%s%s", (int)length, list, length ? "/" : "", name);
        struct stat status;
        if (used > 0 && (size_t)used < sizeof(path) && stat(path, &status) == 0 && S_ISREG(status.st_mode) &&
            access(path, X_OK) == 0)
            return true;
        list = list[length] ? list + length + 1 : NULL;
    }
    return false;
}

bool gp_launch_is_script(const char *name)
{
    char first[2] = "";
    size_t length = strlen(name);
    if (length < 4 || strcmp(name + length - 3, ".py") != 0 || (!strchr(name, '/') && gp_launch_is_program(name)))
        return false;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0)
        return false;
    bool is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    bool runs =
        read(fd, first, sizeof(first)) == sizeof(first) && memcmp(first, "#!", 2) == 0 && access(name, X_OK) == 0;
    close(fd);
    return is_file && !runs;
}

char **gp_launch_argv(char **argv)
{
    size_t count = 0;
    if (!argv[0] || !gp_launch_is_script(argv[0]))
        return argv;
    while (argv[count])
        count++;
    char **with = calloc(count + 2, sizeof(*with));
    if (!with)
        return argv;
    with[0] = (char *)"python3";
    memcpy(with + 1, argv, count * sizeof(*argv));
    return with;
}

/* Replaces this process with the program.  Returns only on failure: 126 or 127, after a message. */
static int launch_exec(const struct gp_launch *launch)
{
    execvp(launch->argv[0], launch->argv);
    int error = errno;
    gp_error(launch->command, "%s: %s", launch->argv[0], strerror(error));
    return error == ENOENT ? GP_EXIT_NOT_FOUND : GP_EXIT_CANNOT_RUN;
}

/* ---- a program that is waited for -------------------------------------------------------------------------------- */
/* Runs a program as a child: forwards signals, follows stops, keeps the exit status; see cmd.h. The
 * child stays in the process group of the command, so the kernel sends signals of the terminal (^C,
 * ^\, ^Z, a change of size) to both, and these are not forwarded.  No handler is installed and no
 * disposition changed: the signals are blocked and fetched one by one, and the child gets the old
 * mask back.  Called by run.c and trace.c. */

static const int child_signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,  SIGUSR1,
                                    SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH, SIGCHLD};

static void child_set(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < GP_COUNT(child_signals); i++)
        sigaddset(set, child_signals[i]);
}

int gp_launch_child_start(struct gp_child *child, const struct gp_launch *launch)
{
    sigset_t set, before;
    struct sigaction chld = {.sa_handler = SIG_DFL}, chld_before;
    memset(child, 0, sizeof(*child));
    child_set(&set);
    sigprocmask(SIG_BLOCK, &set, &before);
    /* If SIGCHLD is ignored, which is inherited, the kernel discards the status.  The child gets
     * the old setting. */
    sigaction(SIGCHLD, &chld, &chld_before);
    child->pid = fork();
    if (child->pid == 0) {
        sigaction(SIGCHLD, &chld_before, NULL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        _exit(launch->instead ? launch->instead(launch->data) : launch_exec(launch));
    }
    return child->pid < 0 ? -errno : 0;
}

static void child_status(struct gp_child *child)
{
    int status;
    while (!child->ended) {
        pid_t pid = waitpid(child->pid, &status, WNOHANG | WUNTRACED);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid == 0)
            return;
        if (pid > 0 && WIFSTOPPED(status)) {
            /* Stop too, so that the shell sees a stopped job; when it continues this process,
             * continue the child. */
            raise(SIGSTOP);
            kill(child->pid, SIGCONT);
            continue;
        }
        child->ended = true;
        if (pid < 0)
            child->status = GP_EXIT_FAILED;
        else
            child->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
}

void gp_launch_child_wait(struct gp_child *child, uint64_t timeout_ns)
{
    struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    siginfo_t info;
    sigset_t set;
    child_set(&set);
    int number = sigtimedwait(&set, &info, &timeout);
    bool from_user =
        number > 0 && info.si_code <= 0; /* kill, tgkill, sigqueue; signals of the terminal have SI_KERNEL */
    if (from_user && number != SIGCHLD && !child->ended)
        kill(child->pid, number);
    child_status(child);
}
