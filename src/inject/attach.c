/* SPDX-License-Identifier: MIT
 *
 * attach.c: starts the library in a program that has run for long.  leave.c ends it again; init.c has the start of the
 * stages.
 *
 *   Attach   gpuprof_attach runs on any thread, perhaps one that a tracer has stopped in a system call:
 *            it starts a thread of ours, which does the rest. CUDA is in use already: contexts, streams
 *            and memory from before are unknown until they appear in a call.
 *   Again    the variables of the library become what they were when it was loaded (base/kept.h). A
 *            library that is stranded (leave.c) cannot be attached again.
 */
#include "account/feed/before.h"
#include "account/feed/start.h"
#include "account/feed/survey.h"
#include "account/framework/framework.h"
#include "allocator/allocator.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/loader.h"
#include "base/log.h"
#include "base/opener.h"
#include "base/thread.h"
#include "base/worker.h"
#include "inject/inject.h"
#include "session/batch.h"
#include "session/session.h"
#include "source/source.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GP_ATTACH_NOT_INITIALIZED 3 /* CUDA_ERROR_NOT_INITIALIZED */

static char attach_settings[4096]; /* of the start under way or the last one: the options point into it */
GP_KEEP(attach_settings);
static pid_t attach_pid; /* the process that the state is of; 0: none yet */
GP_KEEP(attach_pid);

/* The start came to nothing, and left what it had begun. No viewer has been answered. */
static void attach_undo(int error, const char *text)
{
    gp_thread_life_leave();
    bool out = gp_leave_all_out();
    gp_poll_end();
    bool alone = gp_leave_alone();
    if (gp_inject_session.header)
        gp_session_drop(&gp_inject_session);
    gp_log_close();
    gp_inject_say(out && alone ? GP_ATTACH_OUT : GP_ATTACH_STRANDED, error, text);
}

/* The session of the last life, if it was stranded or could not start. */
static void attach_clear(void)
{
    if (gp_inject_session.header) {
        gp_session_drop(&gp_inject_session);
        munmap(gp_inject_session.header, gp_inject_session.bytes);
    }
    gp_feed_end();
    gp_feed_before_stop();
    gp_feed_survey_stop();
}

/* The parent of a process, and where its first stack began: a fork keeps that, and an exec draws it
 * again.  0: unknown. */
static unsigned long long attach_stack(const char *process, int *parent)
{
    char path[32], text[1024];
    unsigned long long stack = 0;
    snprintf(path, sizeof(path), "/proc/%s/stat", process);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char *at = strrchr(text, ')'); /* fields 4 and 28 */
    return at && sscanf(at + 1,
                        " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %*u %*u %*d %*u "
                        "%*u %*u %llu",
                        parent, &stack) == 2
               ? stack
               : 0;
}

/* Whether CUDA may be unusable here: a child of fork has the driver of its parent, which works no
 * more if the parent had initialised it, and CUPTI would start in it with the parent's state. The
 * driver answers alike if it was not initialised yet, so then the child must do that first. */
static bool attach_is_forked(void *driver)
{
    char process[16];
    int device, parent = 0, above;
    uint32_t (*get)(int *) = (uint32_t(*)(int *))(uintptr_t)GP_LOADER(dlsym(driver, "cuCtxGetDevice"));
    if (!get || get(&device) != GP_ATTACH_NOT_INITIALIZED)
        return false;
    unsigned long long stack = attach_stack("self", &parent);
    snprintf(process, sizeof(process), "%d", parent);
    return stack && stack == attach_stack(process, &above);
}

static void *attach_main(void *arg)
{
    (void)arg;
    /* The thread that answered the detach may not have ended yet. */
    if (!gp_leave_alone()) {
        gp_inject_say(GP_ATTACH_STRANDED, -EBUSY, "a thread of the last attach has not ended");
        return NULL;
    }
    if (gp_kept_saved())
        attach_clear();
    if (!(gp_kept_saved() ? gp_kept_restore() : gp_kept_save())) {
        gp_inject_say(GP_ATTACH_OUT, -ENOMEM, "no memory for a copy of the library's variables");
        return NULL;
    }
    void *driver = GP_LOADER(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
    if (!driver || attach_is_forked(driver)) {
        gp_inject_say(GP_ATTACH_OUT, driver ? -EAGAIN : -ENODEV,
                      driver
                          ? "it is a child of fork that has not initialised CUDA itself, and cannot if its parent had"
                          : "libcuda.so.1 is not loaded: the program does not use CUDA, or not yet");
        return NULL;
    }
    gp_inject_start(attach_settings);
    gp_opener_stop();
    const struct gp_wire_header *header = gp_inject_session.header;
    if (gp_inject_is_ready())
        gp_inject_say(GP_ATTACH_IN, 0, "");
    else if (!header)
        attach_undo(-ENODEV, "no session: see the log");
    else
        attach_undo(-ENOTSUP, header->trouble[0] ? header->trouble : header->source_detail);
    return NULL;
}

/* The lines become strings, with an empty one at the end. */
static int attach_copy(const char *settings)
{
    size_t length = strnlen(settings, sizeof(attach_settings));
    if (length + 2 > sizeof(attach_settings))
        return -E2BIG;
    memcpy(attach_settings, settings, length);
    for (size_t i = 0; i < length; i++)
        if (attach_settings[i] == '\n')
            attach_settings[i] = '\0';
    attach_settings[length] = attach_settings[length + 1] = '\0';
    return 0;
}

/* In a forked child nothing of the parent's is left but the memory. */
static void attach_child(void)
{
    if (attach_pid && attach_pid != getpid()) {
        gp_worker_forget();
        gp_inject_say(GP_ATTACH_OUT, 0, "");
    }
    attach_pid = getpid();
}

static int attach_begin(const char *settings)
{
    uint32_t state;
    attach_child();
    if (!gp_inject_claim())
        return -EBUSY; /* the first cuInit is under way */
    if (gp_thread_life_on())
        return -EALREADY;
    /* [attach.A] acquire: what the last detach did; pairs with [attach.R]. */
    state = __atomic_load_n(&gpuprof_attach_state.state, __ATOMIC_ACQUIRE);
    if (state == GP_ATTACH_STRANDED && (gp_worker_count() || !gp_thread_all_out(0)))
        return -EBUSY;
    if (state == GP_ATTACH_STARTING ||
        !__atomic_compare_exchange_n(&gpuprof_attach_state.state, &state, GP_ATTACH_STARTING, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return -EBUSY;
    int error = attach_copy(settings ? settings : "");
    if (!error)
        error = gp_worker_start(attach_main, "gpuprof-attach");
    if (error)
        gp_inject_say(state, error, strerror(-error));
    return error;
}

/* Starts gpuprof in a program that runs, with settings: lines NAME=VALUE of src/inject/option.def, which
 * are copied; the environment is not looked at. Any thread, one call at a time. It makes a thread
 * (pthread_create, which takes memory from malloc) and no other system call that could wait, so the
 * caller may be a thread that a tracer has stopped in a system call, but not one inside malloc or the
 * loader. Returns 0 at once, and the thread goes on: gpuprof_attach_state (wire.h) says when it is done
 * and why it could not. Or -errno, and nothing has changed: -EALREADY: the process is profiled. -EBUSY:
 * another start, or a detach, is under way, or a thread has not left yet since the last one. -E2BIG:
 * 4094 bytes of settings are the most. -EAGAIN: no thread could be made. */
int gpuprof_attach(const char *settings);

GP_EXPORT int gpuprof_attach(const char *settings)
{
    int saved_errno = errno;
    int error = attach_begin(settings);
    errno = saved_errno;
    return error;
}
