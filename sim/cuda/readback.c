/* SPDX-License-Identifier: MIT
 * Results that a program reads back in a dry run (contents=none): kernels compute nothing, so each is
 * zeros, and a program that decides by one may take another path than on a GPU.  Copies to the host of
 * bytes that the host has not written are counted by the Python lines that asked for them, into
 * the file that GPUPROF_SIM_READS names: a line "PID<TAB>COUNT<TAB>BYTES<TAB>FRAME.." each time that a
 * count reaches a power of two, and at exit.  FRAME is "FILE:LINE:FUNCTION", the innermost first; without
 * Python there is none. */
#define _GNU_SOURCE
#include "contents.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM_READ_PLACES 256u
#define SIM_READ_FRAMES 24
#define SIM_READ_TEXT   2048u

struct sim_place {
    uint64_t count, bytes;
    char *frames;
};
static struct {
    pthread_mutex_t mutex; /* a leaf: nothing is called with it held but libc */
    pid_t owner;           /* a forked child begins again */
    uint32_t count;
    struct sim_place at[SIM_READ_PLACES];
} sim_reads = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const char *sim_reads_path(void)
{
    return secure_getenv("GPUPROF_SIM_READS");
}

/* ---- Python ------------------------------------------------------------------------------------------------------ */

/* Its C interface, from 3.9 on; the simulator is not linked with it. */
static struct {
    int (*running)(void);
    void *(*of_thread)(void), *(*error)(void), *(*frame)(void);
    int (*take)(void);
    void (*give)(int);
    void *(*code)(void *), *(*back)(void *), *(*attribute)(void *, const char *);
    int (*line)(void *);
    const char *(*text)(void *);
    void (*drop)(void *), (*clear)(void);
} sim_python;

static bool sim_python_find(void)
{
    static const char *const names[] = {"Py_IsInitialized",
                                        "PyGILState_GetThisThreadState",
                                        "PyErr_Occurred",
                                        "PyEval_GetFrame",
                                        "PyGILState_Ensure",
                                        "PyGILState_Release",
                                        "PyFrame_GetCode",
                                        "PyFrame_GetBack",
                                        "PyObject_GetAttrString",
                                        "PyFrame_GetLineNumber",
                                        "PyUnicode_AsUTF8",
                                        "Py_DecRef",
                                        "PyErr_Clear"};
    void **const slots = (void **)&sim_python;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!(slots[i] = dlsym(RTLD_DEFAULT, names[i])))
            return false;
    return true;
}

static void sim_python_word(char *text, size_t room, void *code, const char *name)
{
    void *value = sim_python.attribute(code, name);
    const char *word = value ? sim_python.text(value) : NULL;
    if (!word)
        sim_python.clear();
    snprintf(text, room, "%s", word ? word : "?");
    for (char *at = text; *at; at++)
        if (*at == '\t' || *at == '\n')
            *at = ' ';
    if (value)
        sim_python.drop(value);
}

/* The caller's Python frames.  A thread that Python does not know has none, and gets no state for it.  Copies are
 * made without the interpreter's lock, so it is taken; no lock of the simulator is held. */
static void sim_python_frames(char text[SIM_READ_TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    if (!sim_python_find() || !sim_python.running() || !sim_python.of_thread())
        return;
    int state = sim_python.take();
    void *frame = sim_python.error() ? NULL : sim_python.frame();
    bool borrowed = true;
    for (int i = 0; frame && i < SIM_READ_FRAMES; i++) {
        char file[512], function[128];
        void *code = sim_python.code(frame), *outer = sim_python.back(frame);
        sim_python_word(file, sizeof file, code, "co_filename");
        sim_python_word(function, sizeof function, code, "co_name");
        int n = snprintf(text + used, SIM_READ_TEXT - used, "\t%s:%d:%s", file, sim_python.line(frame), function);
        bool fits = n > 0 && (size_t)n < SIM_READ_TEXT - used;
        used += fits ? (size_t)n : 0;
        text[used] = '\0'; /* a frame that does not fit is left out */
        sim_python.drop(code);
        if (!borrowed)
            sim_python.drop(frame);
        frame = outer;
        borrowed = false;
    }
    if (frame && !borrowed)
        sim_python.drop(frame);
    sim_python.give(state);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void sim_reads_write(const struct sim_place *place)
{
    char line[SIM_READ_TEXT + 128];
    const char *path = sim_reads_path();
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    int n = snprintf(line, sizeof line, "%d\t%llu\t%llu%s\n", (int)getpid(), (unsigned long long)place->count,
                     (unsigned long long)place->bytes, place->frames ? place->frames : "");
    if (write(fd, line, (size_t)n) != n)
        n = 0; /* a full disk: the count in the file is too low */
    close(fd);
}

static void sim_reads_add(const char *frames, uint64_t bytes)
{
    uint32_t i = 0;
    pthread_mutex_lock(&sim_reads.mutex);
    if (sim_reads.owner != getpid()) {
        sim_reads.owner = getpid();
        sim_reads.count = 0;
    }
    while (i < sim_reads.count && strcmp(sim_reads.at[i].frames ? sim_reads.at[i].frames : "", frames) != 0)
        i++;
    if (i == SIM_READ_PLACES) /* the last place is for all others */
        i--;
    if (i == sim_reads.count) {
        bool last = ++sim_reads.count == SIM_READ_PLACES;
        sim_reads.at[i] = (struct sim_place){.frames = last ? NULL : strdup(frames)};
    }
    struct sim_place *place = &sim_reads.at[i];
    place->count++;
    place->bytes += bytes;
    if ((place->count & (place->count - 1)) == 0)
        sim_reads_write(place);
    pthread_mutex_unlock(&sim_reads.mutex);
}

void sim_read_back(uint64_t bytes)
{
    char frames[SIM_READ_TEXT];
    if (!sim_reads_path())
        return;
    sim_python_frames(frames);
    sim_reads_add(frames, bytes);
}

__attribute__((destructor)) static void sim_reads_exit(void)
{
    for (uint32_t i = 0; sim_reads.owner == getpid() && i < sim_reads.count; i++)
        if (sim_reads.at[i].count & (sim_reads.at[i].count - 1))
            sim_reads_write(&sim_reads.at[i]);
}
