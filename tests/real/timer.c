/* SPDX-License-Identifier: MIT
 *
 * An injection library that takes the time of what the driver would do with gpuprof: it loads
 * $TIMER_LIBRARY and calls its InitializeInjection, and writes to descriptor 9 how many
 * microseconds of this thread that took.  With $TIMER_CUPTI (files, separated by ':') it does the
 * part that is CUPTI's own instead: it loads each and subscribes.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double timer_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void timer_cupti(char *files)
{
    char *file;

    while ((file = strsep(&files, ":"))) {
        void *subscriber = NULL, *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
        int (*subscribe)(void **, void *, void *) =
            library ? (int (*)(void **, void *, void *))dlsym(library, "cuptiSubscribe") : NULL;
        int (*subscribe_v2)(void **, void *, void *, void *) =
            library ? (int (*)(void **, void *, void *, void *))dlsym(library, "cuptiSubscribe_v2") : NULL;
        char holder[128];
        struct {
            size_t bytes;
            const char *name;
            char *holder;
            size_t holder_bytes;
        } parameters = {sizeof(parameters), "timer", holder, sizeof(holder)};
        /* Both, as gpuprof does: each looks for the device again. */
        if (subscribe_v2)
            subscribe_v2(&subscriber, NULL, NULL, &parameters);
        if (subscribe)
            subscribe(&subscriber, NULL, NULL);
    }
}

int InitializeInjection(void)
{
    char *files = getenv("TIMER_CUPTI");
    double begin = timer_now();

    if (files) {
        timer_cupti(strdup(files));
    } else {
        void *library = dlopen(getenv("TIMER_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
        int (*start)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
        if (!start || start() != 1)
            return 0;
    }
    dprintf(9, "%.0f\n", timer_now() - begin);
    return 1;
}
