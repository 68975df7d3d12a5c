/* SPDX-License-Identifier: MIT
 *
 * stack_probe.c: what Python programs call through ctypes to see the Python stack as libgpuprof reads it.  Linked with
 * src/site/python*.c into a library of its own by tests/integration/test_python_stack.sh.
 */
#include "base/thread.h"
#include "site/python.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROBE_FRAMES 1024

/* The caller's stack as text, "function US file US line RS" a frame, innermost first; at most `room` frames.  Then
 * `then`, if given, is called with the same stack below it.  The number of frames, or -1 if `out` is too small. */
GP_EXPORT int probe_stack(char *out, size_t bytes, unsigned room, int *more, void (*then)(void))
{
    struct gp_python_frame frames[PROBE_FRAMES];
    bool is_more = false;
    unsigned count = gp_stack_python(frames, room < PROBE_FRAMES ? room : PROBE_FRAMES, &is_more);
    *more = is_more;
    size_t used = 0;
    out[0] = 0;
    for (unsigned i = 0; i < count; i++) {
        int wrote =
            snprintf(out + used, bytes - used, "%.*s\x1f%.*s\x1f%u\x1e", (int)frames[i].function.length,
                     frames[i].function.bytes, (int)frames[i].file.length, frames[i].file.bytes, frames[i].line);
        used += (size_t)wrote;
        if (used >= bytes)
            return -1;
    }
    if (then)
        then();
    return (int)count;
}

GP_EXPORT const char *probe_note(void)
{
    return gp_python_note();
}

/* ---- threads that Python did not make ---------------------------------------------------------------------------- */

struct probe_thread {
    void (*before)(void); /* a Python function, or NULL; called and left before the stack is taken */
    int count, more;
    char out[256];
};

static void *probe_thread_main(void *data)
{
    struct probe_thread *thread = data;
    if (thread->before)
        thread->before();
    thread->count = probe_stack(thread->out, sizeof thread->out, 64, &thread->more, NULL);
    return NULL;
}

/* Frames that a C thread sees, which may have been in Python before. */
GP_EXPORT int probe_foreign(void (*before)(void))
{
    struct probe_thread thread = {.before = before};
    pthread_t id;
    if (pthread_create(&id, NULL, probe_thread_main, &thread) != 0 || pthread_join(id, NULL) != 0)
        return -2;
    return thread.count;
}

static void *probe_call_main(void *data)
{
    ((void (*)(void))data)();
    return NULL;
}

/* Calls a Python function on a C thread. */
GP_EXPORT int probe_call(void (*function)(void))
{
    pthread_t id;
    return pthread_create(&id, NULL, probe_call_main, (void *)function) != 0 || pthread_join(id, NULL) != 0;
}

/* ---- stress ------------------------------------------------------------------------------------------------------ */

/* Takes the stack again and again for `seconds`, and says how often it was another one than the first; 0 frames counts
 * as one more kind of wrong. *taken: how often. */
GP_EXPORT long probe_repeat(double seconds, long *taken)
{
    char first[65536], now[65536];
    int more;
    long wrong = 0;
    struct timespec start, time;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (probe_stack(first, sizeof first, 128, &more, NULL) <= 0)
        wrong++;
    *taken = 1;
    do {
        for (int i = 0; i < 16; i++) {
            int count = probe_stack(now, sizeof now, 128, &more, NULL);
            wrong += count <= 0 || strcmp(first, now) != 0;
            ++*taken;
        }
        clock_gettime(CLOCK_MONOTONIC, &time);
    } while ((double)(time.tv_sec - start.tv_sec) + (double)(time.tv_nsec - start.tv_nsec) * 1e-9 < seconds);
    return wrong;
}

/* Takes stacks until the process ends, as a daemon thread does in a driver call while the interpreter goes away. */
GP_EXPORT void probe_forever(void)
{
    char out[65536];
    int more;
    for (;;)
        probe_stack(out, sizeof out, 128, &more, NULL);
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

static double probe_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Nanoseconds that one stack takes, the best of `rounds` series of `calls`. */
GP_EXPORT double probe_cost(int calls, int rounds)
{
    struct gp_python_frame frames[128];
    double best = 1e18;
    bool more;
    if (!gp_thread.tid)
        gp_thread.tid = (uint32_t)gettid(); /* as libgpuprof.so has at the first event */
    for (int round = 0; round < rounds; round++) {
        double start = probe_ns();
        for (int i = 0; i < calls; i++)
            gp_stack_python(frames, 128, &more);
        double took = (probe_ns() - start) / calls;
        best = took < best ? took : best;
    }
    return best;
}

/* The peer: the same frames by the interpreter's public interface, which needs the GIL; code and line, no text. */
GP_EXPORT double probe_cost_public(int calls, int rounds)
{
    void *(*state_get)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyThreadState_Get");
    void *(*frame_get)(void *) = (void *(*)(void *))dlsym(RTLD_DEFAULT, "PyThreadState_GetFrame");
    void *(*back)(void *) = (void *(*)(void *))dlsym(RTLD_DEFAULT, "PyFrame_GetBack");
    void *(*code)(void *) = (void *(*)(void *))dlsym(RTLD_DEFAULT, "PyFrame_GetCode");
    int (*line)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "PyFrame_GetLineNumber");
    void (*drop)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "Py_DecRef");
    if (!state_get || !frame_get || !back || !code || !line || !drop)
        return -1;
    double best = 1e18;
    long lines = 0;
    for (int round = 0; round < rounds; round++) {
        double start = probe_ns();
        for (int i = 0; i < calls; i++) {
            void *frame = frame_get(state_get());
            while (frame) {
                void *next = back(frame), *its_code = code(frame);
                lines += line(frame);
                drop(its_code);
                drop(frame);
                frame = next;
            }
        }
        double took = (probe_ns() - start) / calls;
        best = took < best ? took : best;
    }
    return lines ? best : -1;
}
