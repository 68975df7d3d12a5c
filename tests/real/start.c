/* SPDX-License-Identifier: MIT
 *
 * Prints what cuInit of the real driver library leaves behind in a process, so that the same run
 * with gpuprof must print the same; run.sh compares the two.
 *
 *      start            prints all of it, for two calls of cuInit
 *      start time       prints how many microseconds the first cuInit took
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Numbers only: the targets of pipes differ in every process. */
static void start_list(const char *folder, int with_names)
{
    DIR *list = opendir(folder);
    struct dirent *entry;
    int count = 0;

    printf(" %s:", folder);
    while (list && (entry = readdir(list))) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        if (with_names && atoi(entry->d_name) != dirfd(list))
            printf(" %s", entry->d_name);
    }
    printf(" (%d)", count);
    if (list)
        closedir(list);
}

static void start_state(const char *when)
{
    sigset_t blocked;
    struct sigaction action;
    mode_t mask = umask(0);
    unsigned long sum = 0;
    int number, masked = 0, handled = 0;
    char **variable;
    char *at;

    umask(mask);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (number = 1; number < 65; number++) {
        masked += sigismember(&blocked, number) == 1;
        handled += sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL;
    }
    /* The names that gpuprof itself is given are the only difference. */
    for (variable = environ; *variable; variable++) {
        if (strncmp(*variable, "CUDA_INJECTION64_PATH=", 22) == 0 || strncmp(*variable, "GPUPROF_", 8) == 0 ||
            strncmp(*variable, "LD_PRELOAD=", 11) == 0)
            continue;
        for (at = *variable; *at; at++)
            sum = sum * 31 + (unsigned char)*at;
    }
    printf("%s:", when);
    start_list("/proc/self/fd", 1);
    start_list("/proc/self/task", 0);
    printf(", mask %o, blocked %d, handled %d, environment %lx\n", (unsigned)mask, masked, handled, sum);
    fflush(stdout);
}

static double start_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*init)(unsigned), (*version)(int *), (*count)(int *), (*alloc)(unsigned long long *, size_t);
    int number = -1, result;
    unsigned long long address = 0;
    double begin;

    if (!driver) {
        fprintf(stderr, "start: %s\n", dlerror());
        return 77;
    }
    init = (int (*)(unsigned))dlsym(driver, "cuInit");
    version = (int (*)(int *))dlsym(driver, "cuDriverGetVersion");
    count = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
    alloc = (int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    if (argc > 1 && strcmp(argv[1], "time") == 0) {
        begin = start_now();
        init(0);
        printf("%.0f\n", start_now() - begin);
        return 0;
    }
    start_state("before");
    result = version(&number);
    printf("cuDriverGetVersion %d, %d\n", result, number);
    errno = 1234;
    result = init(0);
    printf("cuInit %d, errno %d\n", result, errno);
    start_state("after cuInit");
    result = count(&number);
    printf("cuDeviceGetCount %d, cuMemAlloc %d\n", result, alloc(&address, 4096));
    printf("cuInit %d\n", init(0));
    start_state("after the second cuInit");
    fprintf(stderr, "a line on standard error\n");
    return result == 3 ? 0 : 4;
}
