/* SPDX-License-Identifier: MIT
 *
 * stack_late.c: a program that takes Python stacks before any Python is loaded, then opens
 * libpython privately, as a plug-in does, and runs a script that takes the stack. Usage: stack_late
 * LIBPYTHON; exits with 0 if both answers are right.
 */
#include "stack/python.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int frames_seen;
static void *(*make_value)(const char *, ...);

static void late_look(void)
{
    struct gp_python_frame frames[8];
    bool more;
    unsigned count = gp_stack_python(frames, 8, &more);
    frames_seen = (int)count;
    for (unsigned i = 0; i < count; i++)
        printf("%.*s:%u\n", (int)frames[i].function.length, frames[i].function.bytes, frames[i].line);
}

/* The script calls this function, because ctypes cannot be loaded by a private libpython if
 * extensions are not linked with it. */
static void *late_method(void *self, void *none)
{
    (void)self, (void)none;
    late_look();
    return make_value("");
}

/* Copied from Python.h. */
static struct {
    const char *name;
    void *(*function)(void *, void *);
    int flags;
    const char *doc;
} late_method_def = {"look", late_method, 4 /* METH_NOARGS */, NULL};

int main(int argc, char **argv)
{
    late_look();
    if (argc < 2 || frames_seen != 0)
        return 1;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    void (*start)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
    int (*run)(const char *, void *) = (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
    int (*end)(void) = (int (*)(void))dlsym(library, "Py_FinalizeEx");
    void *(*module)(const char *) = (void *(*)(const char *))dlsym(library, "PyImport_AddModule");
    void *(*method)(void *, void *, void *, void *) =
        (void *(*)(void *, void *, void *, void *))dlsym(library, "PyCMethod_New");
    int (*set)(void *, const char *, void *) =
        (int (*)(void *, const char *, void *))dlsym(library, "PyObject_SetAttrString");
    make_value = (void *(*)(const char *, ...))dlsym(library, "Py_BuildValue");
    if (!start || !run || !end || !module || !method || !set || !make_value)
        return 2;
    start(0);
    usleep(150000); /* the search is repeated after a tenth of a second */
    set(module("__main__"), "look", method(&late_method_def, NULL, NULL, NULL));
    int failed = run("def inner():\n    look()\ndef outer():\n    inner()\n\nouter()\n", NULL);
    int wrong = failed || frames_seen != 3;
    end();
    late_look();
    return wrong || frames_seen != 0;
}
