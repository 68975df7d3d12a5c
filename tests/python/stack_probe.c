/* SPDX-License-Identifier: MIT
 *
 * stack_probe.c: functions that Python programs call through ctypes to see the Python stack as
 * libgpuprof reads it. tests/integration/test_python_stack.sh links it with src/stack/python*.c into
 * a library.
 */
#include "base/thread.h"
#include "stack/python.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROBE_FRAMES 1024

/* Writes the caller's stack as text, "function US file US line RS" per frame, innermost first, at
 * most `room` frames. Then calls `then`, if given, with the same stack below it. Returns the number
 * of frames, or -1 if `out` is too small. */
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

/* ---- threads not created by Python ------------------------------------------------------------------------------- */

struct probe_thread {
    void (*before)(void); /* a Python function, or NULL; it returns before the stack is taken */
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

/* The number of frames on a C thread, which may have run Python before. */
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

/* Takes stacks for `seconds` and returns how many differed from the first; a stack of 0 frames
 * counts as different. *taken: how many were taken. */
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

/* Takes stacks until the process ends, like a daemon thread in a driver call during shutdown. */
GP_EXPORT void probe_forever(void)
{
    char out[65536];
    int more;
    for (;;)
        probe_stack(out, sizeof out, 128, &more, NULL);
}

/* ---- memory after shutdown --------------------------------------------------------------------------------------- */

/* Threads that are in a C call while Python shuts down: compares the contents of their frames' code
 * objects before and after. */
#define HELD 256

struct held {
    uint64_t code, table;
    uint64_t words[4]; /* type, name, file, line */
    uint64_t table_bytes;
    uint8_t *table_copy;
    char function[GP_STACK_TEXT], file[GP_STACK_TEXT];
};

static struct held helds[HELD];
static unsigned held_count;
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

/* Reads in place: freed memory faults, or has been overwritten (PYTHONMALLOC=debug). */
static void held_read(const struct gp_python *python, uint64_t code, struct held *held)
{
    const struct gp_python_layout *at = &python->at;
    const char *head = (const char *)(uintptr_t)code;
    *held = (struct held){.code = code, .table = gp_python_word(head, at->code_table)};
    held->words[0] = gp_python_word(head, at->object_type);
    held->words[1] = gp_python_word(head, at->code_name);
    held->words[2] = gp_python_word(head, at->code_file);
    held->words[3] = gp_python_half(head, at->code_line);
    held->table_bytes = gp_python_word((const char *)(uintptr_t)held->table, at->bytes_size);
    if (python->version > GP_PYTHON_311)
        return;
    struct gp_python_way way = {.python = python};
    struct gp_python_text text = {0};
    if (gp_python_string(&way, held->words[1], &text))
        snprintf(held->function, sizeof held->function, "%.*s", (int)text.length, text.bytes);
    if (gp_python_string(&way, held->words[2], &text))
        snprintf(held->file, sizeof held->file, "%.*s", (int)text.length, text.bytes);
}

static const void *held_table(const struct held *held)
{
    return (const char *)(uintptr_t)held->table + gp_python_find()->at.bytes_data;
}

static bool held_is(const struct held *held)
{
    struct held now;
    held_read(gp_python_find(), held->code, &now);
    return memcmp(now.words, held->words, sizeof now.words) == 0 && now.table == held->table &&
           now.table_bytes == held->table_bytes && memcmp(held_table(&now), held->table_copy, now.table_bytes) == 0 &&
           strcmp(now.function, held->function) == 0 && strcmp(now.file, held->file) == 0;
}

static void held_check(void)
{
    const struct gp_python *python = gp_python_find();
    unsigned wrong = 0;
    for (unsigned i = 0; i < held_count; i++)
        wrong += !held_is(&helds[i]);
    bool good = wrong == 0 && held_count > 0 && python->finalizing();
    printf("%u code objects, %u changed, finalizing %d\n%d passed, %d failed, 0 skipped\n", held_count, wrong,
           python->finalizing(), good, !good);
    fflush(stdout);
    if (!good)
        _exit(1);
}

/* Records the caller's frames, calls `then`, and never returns. */
GP_EXPORT void probe_hold(void (*then)(void))
{
    struct gp_python_frame frames[128];
    bool more;
    unsigned count = gp_stack_python(frames, 128, &more);
    pthread_mutex_lock(&held_lock);
    if (!held_count)
        atexit(held_check);
    for (unsigned i = 0; i < count && held_count < HELD; i++) {
        struct held *held = &helds[held_count++];
        held_read(gp_python_find(), frames[i].code, held);
        held->table_copy = malloc(held->table_bytes + 1);
        memcpy(held->table_copy, held_table(held), held->table_bytes);
    }
    pthread_mutex_unlock(&held_lock);
    then();
    for (;;)
        pause();
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

static double probe_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Nanoseconds per stack, the best of `rounds` series of `calls`. */
GP_EXPORT double probe_cost(int calls, int rounds)
{
    struct gp_python_frame frames[128];
    double best = 1e18;
    bool more;
    if (!gp_thread.tid)
        gp_thread.tid = (uint32_t)gettid(); /* as libgpuprof.so does at the first event */
    for (int round = 0; round < rounds; round++) {
        double start = probe_ns();
        for (int i = 0; i < calls; i++)
            gp_stack_python(frames, 128, &more);
        double took = (probe_ns() - start) / calls;
        best = took < best ? took : best;
    }
    return best;
}

/* The reference: the same frames through the interpreter's public interface, which needs the GIL;
 * code and line, no text. */
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
