/* SPDX-License-Identifier: MIT
 *
 * libcheck.c: tries libraries in child processes, for `gpuprof doctor`; see checks.h.
 */
#define _GNU_SOURCE /* pipe2 */
#include <cmd/checks.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* cuInit on a machine with eight GPUs and no persistence daemon takes some seconds. */
#define GP_PROBE_SECONDS 20

typedef void (*gp_probe_fn)(const char *path, struct gp_probe *probe);
typedef int (*gp_cuda_init_fn)(unsigned);
typedef int (*gp_cuda_number_fn)(int *);
typedef int (*gp_cupti_version_fn)(uint32_t *);
typedef int (*gp_cupti_subscribe_fn)(void **, void (*)(void *, int, uint32_t, const void *), void *);
typedef int (*gp_cupti_text_fn)(int, const char **);

static void *probe_open(const char *path, struct gp_probe *probe)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(probe->text, sizeof(probe->text), "%s", dlerror());
    return library;
}

static void *probe_symbol(void *library, const char *name, struct gp_probe *probe)
{
    void *symbol = library ? dlsym(library, name) : NULL;
    if (library && !symbol)
        snprintf(probe->text, sizeof(probe->text), "it has no %s", name);
    return symbol;
}

static void probe_result(struct gp_probe *probe, const char *call, int rc, long long number)
{
    probe->ok = rc == 0;
    probe->number = number;
    if (rc)
        snprintf(probe->text, sizeof(probe->text), "%s failed with error %d", call, rc);
}

static void try_library(const char *path, struct gp_probe *probe)
{
    void *library = probe_open(path, probe);
    probe->ok = probe_symbol(library, "InitializeInjection", probe) != NULL;
}

static void no_callback(void *user, int domain, uint32_t id, const void *data)
{
    (void)user;
    (void)domain;
    (void)id;
    (void)data;
}

/* Without a device each copy refuses, whatever its version. */
static void try_subscribe(void *library, struct gp_probe *probe)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *handle = NULL;
    gp_cuda_init_fn init = driver ? (gp_cuda_init_fn)dlsym(driver, "cuInit") : NULL;
    gp_cupti_subscribe_fn subscribe = (gp_cupti_subscribe_fn)probe_symbol(library, "cuptiSubscribe", probe);
    gp_cupti_text_fn text = (gp_cupti_text_fn)dlsym(library, "cuptiGetResultString");
    const char *name = NULL;
    probe->ok = subscribe != NULL;
    if (!subscribe || !init || init(0) != 0)
        return;
    int rc = subscribe(&handle, no_callback, NULL);
    probe->ok = rc == 0;
    if (rc && (!text || text(rc, &name) != 0 || !name))
        name = "error";
    if (rc)
        snprintf(probe->text, sizeof(probe->text), "cuptiSubscribe answers %s (%d)", name, rc);
}

static void try_cupti(const char *path, struct gp_probe *probe)
{
    uint32_t version = 0;
    void *library = probe_open(path, probe);
    gp_cupti_version_fn get = (gp_cupti_version_fn)probe_symbol(library, "cuptiGetVersion", probe);
    if (get) {
        int rc = get(&version);
        probe_result(probe, "cuptiGetVersion", rc, version);
    }
    if (probe->ok)
        try_subscribe(library, probe);
}

static void try_driver(const char *path, struct gp_probe *probe)
{
    int version = 0;
    void *library = probe_open(path, probe);
    gp_cuda_number_fn get = (gp_cuda_number_fn)probe_symbol(library, "cuDriverGetVersion", probe);
    if (get) {
        int rc = get(&version);
        probe_result(probe, "cuDriverGetVersion", rc, version);
    }
}

static void try_devices(const char *path, struct gp_probe *probe)
{
    int count = 0;
    void *library = probe_open(path, probe);
    gp_cuda_init_fn init = (gp_cuda_init_fn)probe_symbol(library, "cuInit", probe);
    gp_cuda_number_fn get = (gp_cuda_number_fn)probe_symbol(library, "cuDeviceGetCount", probe);
    if (!init || !get)
        return;
    int rc = init(0);
    probe_result(probe, "cuInit", rc, 0);
    if (rc)
        return;
    rc = get(&count);
    probe_result(probe, "cuDeviceGetCount", rc, count);
}

/* The loader reports on standard error that it cannot preload a library, and starts the program
 * anyway. */
static void try_preload(const char *path, struct gp_probe *probe)
{
    int ends[2], status = 0;
    pid_t pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid == 0) {
        char *argv[] = {"gpuprof", "help", NULL};
        dup2(ends[1], STDERR_FILENO);
        setenv("LD_PRELOAD", path, 1);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    if (pid < 0) {
        snprintf(probe->text, sizeof(probe->text), "%s", strerror(errno));
        return;
    }
    close(ends[1]);
    ssize_t n = read(ends[0], probe->text, sizeof(probe->text) - 1);
    probe->text[n > 0 ? n : 0] = '\0';
    probe->text[strcspn(probe->text, "\n")] = '\0';
    waitpid(pid, &status, 0);
    probe->ok = n == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void probe_child(gp_probe_fn try, const char *path, int out)
{
    struct gp_probe probe;
    memset(&probe, 0, sizeof(probe));
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) { /* the output of the library must not mix with that of doctor */
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    unsetenv("CUDA_INJECTION64_PATH");
    signal(SIGALRM, SIG_DFL);
    alarm(GP_PROBE_SECONDS);
    try(path, &probe);
    ssize_t n = write(out, &probe, sizeof(probe));
    _exit(n == (ssize_t)sizeof(probe) ? 0 : 1);
}

static void probe_run(gp_probe_fn try, const char *path, struct gp_probe *probe)
{
    int ends[2], status = 0;
    memset(probe, 0, sizeof(*probe));
    fflush(NULL);
    pid_t pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid == 0)
        probe_child(try, path, ends[1]);
    if (pid < 0) {
        snprintf(probe->text, sizeof(probe->text), "cannot be tested: %s", strerror(errno));
        return;
    }
    close(ends[1]);
    ssize_t n;
    do
        n = read(ends[0], probe, sizeof(*probe));
    while (n < 0 && errno == EINTR);
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    probe->text[sizeof(probe->text) - 1] = '\0';
    if (n == (ssize_t)sizeof(*probe))
        return;
    memset(probe, 0, sizeof(*probe));
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(probe->text, sizeof(probe->text), "it hangs (no answer in %d s)", GP_PROBE_SECONDS);
    else
        snprintf(probe->text, sizeof(probe->text), "it crashes when it is used");
}

void gp_libcheck_library(const char *path, struct gp_probe *probe)
{
    probe_run(try_library, path, probe);
}

void gp_libcheck_preload(const char *path, struct gp_probe *probe)
{
    probe_run(try_preload, path, probe);
}

void gp_libcheck_cupti(const char *path, struct gp_probe *probe)
{
    probe_run(try_cupti, path, probe);
}

void gp_libcheck_driver(struct gp_probe *probe)
{
    probe_run(try_driver, "libcuda.so.1", probe);
}

void gp_libcheck_devices(const char *path, struct gp_probe *probe)
{
    probe_run(try_devices, path, probe);
}
