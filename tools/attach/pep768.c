/* SPDX-License-Identifier: MIT
 *
 * pep768.c: the way into Python 3.14: its interpreter is asked (PEP 768) to run a script at its
 * next safe point, and the script loads the library.  Called by attach.c before ptrace is used.
 *
 * The script and a copy of the library lie in the process's /tmp.  What runs there is what lies
 * there, so no other user may be able to replace a file, and the files are made and removed with
 * the rights of the process.
 *
 * The side that removes the copy of the library decides: the script, and then it goes on; or this
 * command, and then a script that was already read does nothing.  The script stays until it has
 * run: Python takes the request out of the memory of a child that it forks, but not if a library of
 * the program's called fork.  Such a child reads the script too, and sees that it is not the one.
 */
#include <attach/attach.h>
#include <attach/facts.h>
#include <attach/inject.h>
#include <attach/pep768.h>
#include <attach/remote.h>
#include <base/compiler.h>
#include <read/common/foreign.h>

#include <base/clock.h>
#include <base/text.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GP_PEP768_WAIT_NS  1000000000ull /* for the safe point */
#define GP_PEP768_TAKEN_NS 200000000ull  /* from the request's end until the script has started */
#define GP_PEP768_STOP_BIT 0x20          /* of the eval breaker: "look for something to do" */

/* Words of 3.14's _Py_DebugOffsets, which are offsets in the structures behind it. */
enum {
    WORD_VERSION = 1,
    WORD_FREE_THREADED = 2,
    WORD_FINALIZING = 4,
    WORD_INTERPRETERS = 5,
    WORD_INTERPRETER_BYTES = 6,
    WORD_INTERPRETER_ID = 7,
    WORD_INTERPRETER_NEXT = 8,
    WORD_THREAD_MAIN = 10,
    WORD_THREAD_BYTES = 22,
    WORD_THREAD_INTERPRETER = 25,
    WORD_THREAD_NATIVE_ID = 28,
    WORD_EVAL_BREAKER = 89,
    WORD_SUPPORT,
    WORD_ENABLED,
    WORD_PENDING,
    WORD_PATH,
    WORD_PATH_BYTES,
    WORDS
};

/* ---- where the request is written -------------------------------------------------------------------------------- */

static int pep768_no(struct gp_pep768 *place, int rc, const char *format, ...) GP_PRINTF(3, 4);
static int pep768_no(struct gp_pep768 *place, int rc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(place->why, sizeof(place->why), format, args);
    va_end(args);
    return rc;
}

/* Whether so many bytes at the offset lie in a structure.  No sum here may overflow. */
static bool pep768_lies(uint64_t offset, uint64_t bytes, uint64_t structure)
{
    return bytes <= structure && offset <= structure - bytes;
}

static bool pep768_makes_sense(const uint64_t *words)
{
    const uint64_t runtime = 1u << 20;
    uint64_t thread = words[WORD_THREAD_BYTES], interpreter = words[WORD_INTERPRETER_BYTES];
    if (thread > 1u << 20 || interpreter > 16u << 20 || words[WORD_PATH_BYTES] < 64 || words[WORD_PATH_BYTES] > 4096 ||
        !pep768_lies(words[WORD_SUPPORT], 0, thread))
        return false;
    uint64_t support = thread - words[WORD_SUPPORT];
    return pep768_lies(words[WORD_FINALIZING], 8, runtime) && pep768_lies(words[WORD_INTERPRETERS], 8, runtime) &&
           pep768_lies(words[WORD_INTERPRETER_ID], 8, interpreter) &&
           pep768_lies(words[WORD_INTERPRETER_NEXT], 8, interpreter) &&
           pep768_lies(words[WORD_THREAD_MAIN], 8, interpreter) && pep768_lies(words[WORD_ENABLED], 4, interpreter) &&
           pep768_lies(words[WORD_THREAD_INTERPRETER], 8, thread) &&
           pep768_lies(words[WORD_THREAD_NATIVE_ID], 8, thread) && pep768_lies(words[WORD_EVAL_BREAKER], 8, thread) &&
           pep768_lies(words[WORD_PENDING], 4, support) &&
           pep768_lies(words[WORD_PATH], words[WORD_PATH_BYTES], support);
}

static int pep768_version(pid_t pid, uint64_t runtime, uint64_t *words, struct gp_pep768 *place)
{
    int rc = gp_remote_read(pid, words, 3 * sizeof(*words), runtime);
    if (rc)
        return pep768_no(place, rc, "_PyRuntime cannot be read: %s", strerror(-rc));
    unsigned version = (unsigned)(words[WORD_VERSION] >> 16);
    if (memcmp(words, "xdebugpy", 8) != 0 || words[WORD_VERSION] >> 32 || version < 0x30e)
        return -ENOENT; /* an older one */
    if (version != 0x30e)
        return pep768_no(place, -ENOTSUP, "the structures of Python %u.%u are not known here", version >> 8,
                         version & 255);
    if (words[WORD_FREE_THREADED])
        return pep768_no(place, -ENOTSUP, "it is a Python without the GIL");
    rc = gp_remote_read(pid, words, WORDS * sizeof(*words), runtime);
    if (rc || !pep768_makes_sense(words))
        return pep768_no(place, rc ? rc : -EPROTO, "its _Py_DebugOffsets make no sense");
    return 0;
}

/* The first interpreter, which has the main thread, has the number 0. */
static int pep768_interpreter(pid_t pid, uint64_t runtime, const uint64_t *words, uint64_t *interpreter)
{
    uint64_t id = 1;
    int rc = gp_remote_read(pid, interpreter, sizeof(*interpreter), runtime + words[WORD_INTERPRETERS]);
    for (int i = 0; !rc && *interpreter && i < 1024; i++) {
        rc = gp_remote_read(pid, &id, sizeof(id), *interpreter + words[WORD_INTERPRETER_ID]);
        if (!rc && id == 0)
            return 0;
        if (!rc)
            rc = gp_remote_read(pid, interpreter, sizeof(*interpreter), *interpreter + words[WORD_INTERPRETER_NEXT]);
    }
    return rc ? rc : -ESRCH;
}

int gp_pep768_find(pid_t pid, uint64_t runtime, pid_t main_tid, struct gp_pep768 *place)
{
    uint64_t words[WORDS], interpreter = 0, thread = 0, belongs = 0, native = 0, finalizing = 0;
    uint32_t enabled = 0, pending = 0;
    *place = (struct gp_pep768){0};
    int rc = pep768_version(pid, runtime, words, place);
    if (rc)
        return rc;
    rc = gp_remote_read(pid, &finalizing, sizeof(finalizing), runtime + words[WORD_FINALIZING]);
    if (!rc && finalizing)
        return pep768_no(place, -ESRCH, "the interpreter is ending");
    if (!rc)
        rc = pep768_interpreter(pid, runtime, words, &interpreter);
    if (!rc)
        rc = gp_remote_read(pid, &enabled, sizeof(enabled), interpreter + words[WORD_ENABLED]);
    if (!rc && enabled != 1)
        return pep768_no(place, -EACCES,
                         "remote debugging is disabled there (PYTHON_DISABLE_REMOTE_DEBUG or -X "
                         "disable_remote_debug)");
    if (!rc)
        rc = gp_remote_read(pid, &thread, sizeof(thread), interpreter + words[WORD_THREAD_MAIN]);
    if (!rc && thread)
        rc = gp_remote_read(pid, &belongs, sizeof(belongs), thread + words[WORD_THREAD_INTERPRETER]);
    if (!rc && thread)
        rc = gp_remote_read(pid, &native, sizeof(native), thread + words[WORD_THREAD_NATIVE_ID]);
    if (rc || !thread || belongs != interpreter || native != (uint64_t)main_tid)
        return pep768_no(place, rc ? rc : -ESRCH, "the main thread's state was not found");
    uint64_t support = thread + words[WORD_SUPPORT];
    place->pending = support + words[WORD_PENDING];
    place->path = support + words[WORD_PATH];
    place->path_bytes = (size_t)words[WORD_PATH_BYTES];
    place->breaker = thread + words[WORD_EVAL_BREAKER];
    rc = gp_remote_read(pid, &pending, sizeof(pending), place->pending);
    return rc || pending ? pep768_no(place, rc ? rc : -EBUSY, "another debugger's request waits there") : 0;
}

int gp_pep768_request(pid_t pid, const struct gp_pep768 *place, const char *path)
{
    uint32_t pending = 1;
    uint8_t breaker = 0;
    if (strlen(path) >= place->path_bytes)
        return -ENAMETOOLONG;
    int rc = gp_remote_write(pid, path, strlen(path) + 1, place->path);
    if (!rc)
        rc = gp_remote_write(pid, &pending, sizeof(pending), place->pending);
    if (!rc)
        rc = gp_remote_read(pid, &breaker, sizeof(breaker), place->breaker);
    /* The events are in the lowest byte. The others, a version, must not be written back. */
    breaker |= GP_PEP768_STOP_BIT;
    return rc ? rc : gp_remote_write(pid, &breaker, sizeof(breaker), place->breaker);
}

/* ---- files in the process's /tmp --------------------------------------------------------------------------------- */

static const char pep768_script[] =
    "def attach(pid, script, library, result, entry, settings):\n"
    "    import os, time\n"
    "    if os.getpid() != pid:\n"
    "        return\n"
    "    begin, library_fd, result_fd, memory_fd, said = time.monotonic_ns(), -1, -1, -1, 'error unknown'\n"
    "    try:\n"
    "        library_fd = os.open(library, os.O_RDONLY | os.O_CLOEXEC)\n"
    "        os.unlink(library)\n"
    "    except OSError:\n"
    "        if library_fd >= 0:\n"
    "            os.close(library_fd)\n"
    "        return\n"
    "    try:\n"
    "        result_fd = os.open(result, os.O_WRONLY | os.O_CLOEXEC)\n"
    "        os.unlink(result)\n"
    "        import ctypes, fcntl\n"
    "        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)\n"
    "        if entry:\n"
    "            call = function(entry)\n"
    "        else:\n"
    "            memory_fd = os.memfd_create('gpuprof/libgpuprof.so', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)\n"
    "            while os.sendfile(memory_fd, library_fd, None, 1 << 30):\n"
    "                pass\n"
    "            for last in 0, 0, 0, 0, 1:\n" /* EBUSY: see gp_attach_seal; the main thread must not wait as long */
    "                try:\n"
    "                    fcntl.fcntl(memory_fd, fcntl.F_ADD_SEALS, 15)\n"
    "                    break\n"
    "                except OSError as error:\n"
    "                    if last or error.errno != 16:\n"
    "                        raise\n"
    "            call = function(('gpuprof_attach', ctypes.CDLL('/proc/self/fd/%d' % memory_fd)))\n"
    "        said = 'returned %d' % call(settings)\n"
    "    except Exception as error:\n"
    "        said = 'error ' + ascii(error)[:300]\n"
    "    finally:\n"
    "        for fd in (memory_fd, library_fd):\n"
    "            if fd >= 0:\n"
    "                os.close(fd)\n"
    "        try:\n"
    "            os.unlink(script)\n"
    "        except OSError:\n"
    "            pass\n"
    "        if result_fd >= 0:\n"
    "            os.write(result_fd, b'%d %s\\n' % (time.monotonic_ns() - begin, said.encode()))\n"
    "            os.close(result_fd)\n";

enum { FILE_SCRIPT, FILE_LIBRARY, FILE_RESULT, FILES };

struct pep768 {
    struct gp_attach *attach;
    struct gp_pep768 place;
    uint64_t entry; /* gpuprof_attach, if it is there already */
    pid_t number;   /* of the process in its own namespace */
    int proc, folder, fds[FILES];
    char names[FILES][64];
};

/* Whether another user than root and the process's may replace a file in the directory. */
static bool pep768_is_shared(int folder, uid_t user)
{
    struct stat status;
    if (fstat(folder, &status) != 0 || (status.st_uid != 0 && status.st_uid != user))
        return true;
    return status.st_mode & (S_IWGRP | S_IWOTH) && !(status.st_mode & S_ISVTX);
}

static int pep768_file(struct pep768 *p, int which, const char *ending)
{
    snprintf(p->names[which], sizeof(p->names[which]), "gpuprof-attach-%d-%llx%s", (int)getpid(),
             (unsigned long long)gp_clock_ns(), ending);
    p->fds[which] = openat(p->folder, p->names[which], O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->fds[which] >= 0)
        return 0;
    p->names[which][0] = '\0';
    return -errno;
}

/* With the rights of the process.  A link would be followed in our file system, so none may be
 * there. */
static int pep768_make(struct pep768 *p, int root, uid_t user)
{
    p->folder = gp_foreign_folder(root, "tmp", p->proc);
    if (p->folder < 0)
        return p->folder;
    if (pep768_is_shared(root, user) || pep768_is_shared(p->folder, user))
        return -EXDEV;
    int rc = pep768_file(p, FILE_SCRIPT, ".py");
    if (!rc)
        rc = pep768_file(p, FILE_LIBRARY, ".so");
    return rc ? rc : pep768_file(p, FILE_RESULT, ".txt");
}

/* Removes files with the rights of the process.  True: the first one was there. */
static bool pep768_unlink(struct pep768 *p, int first, int end)
{
    struct gp_asuser as;
    bool was_there = false;
    if (gp_asuser_begin(&as, p->proc) != 0)
        return false;
    for (int i = first; i < end; i++) {
        bool removed = p->names[i][0] && unlinkat(p->folder, p->names[i], 0) == 0;
        was_there |= removed && i == first;
    }
    gp_asuser_end(&as);
    return was_there;
}

static int pep768_write_script(const struct pep768 *p)
{
    int copy = dup(p->fds[FILE_SCRIPT]);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "w");
    if (!file) {
        int rc = -errno;
        if (copy >= 0)
            close(copy);
        return rc;
    }
    fprintf(file, "%s\nattach(%d, '/tmp/%s', '/tmp/%s', '/tmp/%s', %llu, bytes.fromhex('", pep768_script,
            (int)p->number, p->names[FILE_SCRIPT], p->names[FILE_LIBRARY], p->names[FILE_RESULT],
            (unsigned long long)p->entry);
    for (const char *at = p->attach->settings; *at; at++)
        fprintf(file, "%02x", (unsigned char)*at);
    fprintf(file, "'))\n");
    bool failed = ferror(file);
    return fclose(file) != 0 || failed ? -EIO : 0;
}

static int pep768_files(struct pep768 *p)
{
    struct gp_asuser as;
    int root = p->proc < 0 ? p->proc : openat(p->proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = root < 0 ? -errno : gp_asuser_begin(&as, p->proc);
    if (!rc) {
        rc = pep768_make(p, root, as.uid);
        gp_asuser_end(&as);
    }
    if (root >= 0)
        close(root);
    if (rc == -EXDEV)
        return pep768_no(&p->place, rc, "other users may replace files in its /tmp (it needs the sticky bit)");
    if (!rc && !p->entry)
        rc = gp_attach_copy(p->attach->library, p->fds[FILE_LIBRARY]);
    if (!rc)
        rc = pep768_write_script(p);
    return rc ? pep768_no(&p->place, rc, "its /tmp cannot be used: %s", strerror(-rc)) : 0;
}

static void pep768_clean(struct pep768 *p)
{
    if (p->folder >= 0) {
        pep768_unlink(p, FILE_SCRIPT, FILES);
        close(p->folder);
    }
    for (int i = 0; i < FILES; i++)
        if (p->fds[i] >= 0)
            close(p->fds[i]);
    if (p->proc >= 0)
        close(p->proc);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static bool pep768_started(const struct pep768 *p)
{
    struct stat status;
    return fstat(p->fds[FILE_LIBRARY], &status) == 0 && status.st_nlink == 0;
}

static bool pep768_await(const struct pep768 *p, uint64_t wait_ns)
{
    const struct timespec pause = {0, 500000};
    uint64_t deadline = gp_clock_ns() + wait_ns;
    uint32_t pending;
    while (!pep768_started(p)) {
        if (gp_clock_ns() >= deadline || gp_remote_read(p->attach->pid, &pending, sizeof(pending), p->place.pending))
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* Takes the request back.  False: the script has begun. */
static bool pep768_withdraw(struct pep768 *p)
{
    uint32_t pending = 0, none = 0;
    int rc = gp_remote_read(p->attach->pid, &pending, sizeof(pending), p->place.pending);
    if (!rc && pending)
        gp_remote_write(p->attach->pid, &none, sizeof(none), p->place.pending);
    /* The interpreter may have taken it just before: it would complain about a missing file. */
    if (!rc && pep768_await(p, GP_PEP768_TAKEN_NS))
        return false;
    return pep768_unlink(p, FILE_LIBRARY, FILE_LIBRARY + 1);
}

static enum gp_attach_outcome pep768_result(struct pep768 *p, bool *entered)
{
    const struct timespec pause = {0, 500000};
    struct gp_attach *attach = p->attach;
    uint64_t deadline = gp_clock_ns() + attach->load_ns;
    unsigned long long took = 0;
    char text[512] = "";
    uint32_t pending;
    int at = 0;
    for (;;) {
        ssize_t got = pread(p->fds[FILE_RESULT], text, sizeof(text) - 1, 0);
        text[got > 0 ? got : 0] = '\0';
        if (strchr(text, '\n'))
            break;
        if (gp_remote_read(attach->pid, &pending, sizeof(pending), p->place.pending) != 0) {
            gp_attach_why(attach, "", "it ended while the library was loaded");
            return GP_ATTACH_GONE;
        }
        if (gp_clock_ns() >= deadline) {
            gp_attach_why(attach, "'gpuprof stat -p PID' shows when it is there",
                          "the interpreter is still loading the library");
            return GP_ATTACH_LATE;
        }
        nanosleep(&pause, NULL);
    }
    text[strcspn(text, "\n")] = '\0';
    *entered = sscanf(text, "%llu returned %d", &took, &attach->returned) == 2;
    if (!*entered && sscanf(text, "%*u error %n", &at) >= 0)
        pep768_no(&p->place, 0, "the script failed there: %.200s", text + at);
    attach->thread = attach->pid;
    attach->pause_ns = took;
    return GP_ATTACH_DONE;
}

/* True: *outcome is the end of it.  False: place.why says why not. */
static bool pep768_ask(struct pep768 *p, enum gp_attach_outcome *outcome)
{
    char path[80];
    bool entered = true;
    snprintf(path, sizeof(path), "/tmp/%s", p->names[FILE_SCRIPT]);
    int rc = gp_pep768_request(p->attach->pid, &p->place, path);
    bool began = !rc && pep768_await(p, GP_PEP768_WAIT_NS);
    if (!began && pep768_withdraw(p)) {
        pep768_no(&p->place, 0, "%s", rc ? strerror(-rc) : "its main thread reached no safe point within 1 s");
        return false;
    }
    *outcome = pep768_result(p, &entered);
    return *outcome != GP_ATTACH_DONE || entered;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static pid_t pep768_main_thread(pid_t pid)
{
    char path[64], line[256];
    long number = pid;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "NSpid:", 6) != 0)
            continue;
        const char *last = strrchr(line, '\t'); /* the number in its own namespace */
        number = last ? strtol(last, NULL, 10) : number;
    }
    if (file)
        fclose(file);
    return (pid_t)number;
}

bool gp_attach_python(struct gp_attach *attach, const struct gp_facts *facts, enum gp_attach_outcome *outcome)
{
    static const char *const runtime_name = "_PyRuntime", *const entry_name = "gpuprof_attach";
    struct pep768 p = {.attach = attach, .proc = -1, .folder = -1, .fds = {-1, -1, -1}};
    char folder[32];
    uint64_t runtime = 0;
    gp_remote_symbols(attach->pid, &facts->libpython, &runtime_name, &runtime, 1);
    gp_remote_symbols(attach->pid, &facts->python, &runtime_name, &runtime, 1);
    if (!runtime || facts->own_filters) /* only a stopped thread shows what its sandbox allows */
        return false;
    p.number = pep768_main_thread(attach->pid);
    int rc = gp_pep768_find(attach->pid, runtime, p.number, &p.place);
    if (!rc && facts->profiler.path[0] &&
        (gp_remote_symbols(attach->pid, &facts->profiler, &entry_name, &p.entry, 1) != 0 || !p.entry))
        return false; /* an older library: the other way says so */
    bool done = false;
    snprintf(folder, sizeof(folder), "/proc/%d", (int)attach->pid);
    if (!rc)
        p.proc = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (!rc && pep768_files(&p) == 0)
        done = pep768_ask(&p, outcome);
    pep768_clean(&p);
    attach->by_python = done;
    attach->was_loaded = done && p.entry;
    if (!done)
        gp_text_clean(attach->note, sizeof(attach->note), p.place.why,
                      sizeof(p.place.why)); /* part of it is its text */
    return done;
}
