/* SPDX-License-Identifier: MIT
 *
 * internal.h: the parts of tools/attach.
 *
 *   facts.c    what /proc tells about the process, and the refusals that follow from it
 *   lock.c     one attach to a process at a time
 *   remote.c   reads and writes its memory; finds functions in the libraries that it has mapped
 *   unwind.c   looks at the stack of a stopped thread: may it be borrowed?
 *   unwind.c    where a thread's own stack ends
 *   facts.c   whether its sandbox lets it load the library
 *   seize.c    stops a thread, lets it make a system call or run a piece of code, and puts it back
 *   stub.c     that piece of code
 *   inject.c   the way in by ptrace, with the former
 *   pep768.c   the way into Python 3.14, which is tried first
 */
#ifndef GP_ATTACH_INTERNAL_H
#define GP_ATTACH_INTERNAL_H

#include <attach/attach.h>
#include <base/compiler.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- facts.c ----------------------------------------------------------------------------------------------------- */

struct gp_attach_map { /* the first mapping of a file: where the ELF header is */
    uint64_t start;
    char path[512]; /* "" not mapped */
};

struct gp_facts {
    pid_t pid;
    char state; /* as in /proc/PID/stat */
    pid_t tgid, tracer, threads;
    unsigned uid, euid, suid;
    int seccomp, filters; /* the mode, and the number of filters; -1 unknown (before Linux 5.9) */
    bool own_filters;     /* more of them than its parent has: it has entered a sandbox */
    struct gp_attach_map loader, libc, libdl, libpthread, cuda, profiler, musl, libpython, python, program, sanitizer;
    uint64_t maps_bytes;
};

/* GP_ATTACH_DONE: nothing speaks against it, and gp_remote_hold was called.  Else why and hint are filled in.
 * Touches nothing. */
enum gp_attach_outcome gp_facts_read(struct gp_facts *facts, struct gp_attach *attach);
/* Only where the libraries are mapped.  0 or -errno. */
int gp_facts_maps(struct gp_facts *facts);
/* Why ptrace was refused with this error number. */
void gp_facts_denied(const struct gp_facts *facts, struct gp_attach *attach, int error);
void gp_attach_why(struct gp_attach *attach, const char *hint, const char *format, ...) GP_PRINTF(3, 4);
/* The value of "Name:\t..." in a file of /proc, as a number; `otherwise` if it is not there. */
long long gp_facts_number(const char *text, const char *name, int base, long long otherwise);

/* ---- facts.c ---------------------------------------------------------------------------------------------------- */

/* Whether a stopped thread may make the system calls of an attach. False: why and hint are filled in. */
bool gp_facts_filter_allows(const struct gp_facts *facts, pid_t tid, struct gp_attach *attach);

/* ---- remote.c ---------------------------------------------------------------------------------------------------- */

/* 0 or -errno; a part is -EFAULT. */
int gp_remote_read(pid_t pid, void *to, size_t bytes, uint64_t from);
int gp_remote_write(pid_t pid, const void *from, size_t bytes, uint64_t to);
/* Until gp_remote_let_go both mean the memory of the program that the process runs now, and fail after
 * an exec.  A write below the main thread's stack makes it larger.  0 or -errno. */
int gp_remote_hold(pid_t pid);
void gp_remote_let_go(void);
/* Where these bytes are in the code of a mapped ELF object; 0: nowhere. */
uint64_t gp_remote_code(pid_t pid, const struct gp_attach_map *map, const void *code, size_t bytes);
/* Addresses of functions in one mapped ELF object, 0 for those that it lacks; *found counts.
 * 0 or -errno. */
int gp_remote_symbols(pid_t pid, const struct gp_attach_map *map, const char *const *names, uint64_t *addresses,
                      size_t count);

/* ---- unwind.c ---------------------------------------------------------------------------------------------------- */

struct gp_unwind;
/* Opens what is needed to read stacks of the process, before any of its threads is stopped.  NULL:
 * its stacks cannot be read. */
struct gp_unwind *gp_unwind_new(pid_t pid);
void gp_unwind_free(struct gp_unwind *unwind);
/* Whether a stopped thread may start a thread.  False: `why` says what it is doing. */
bool gp_unwind_allows(struct gp_unwind *unwind, pid_t tid, char *why, size_t why_bytes);

/* ---- unwind.c ----------------------------------------------------------------------------------------------------- */

struct gp_stacks;
/* NULL: out of memory. */
struct gp_stacks *gp_unwind_stacks_new(pid_t pid);
void gp_unwind_stacks_free(struct gp_stacks *stacks);
/* Reads where the process may have stacks, unless it did so within a tenth of a second.  Before a
 * thread is stopped: it takes milliseconds in a large process. */
void gp_unwind_stacks_look(struct gp_stacks *stacks);
/* The lowest address that belongs to the stack of a stopped thread, from its stack and thread
 * pointers; 0: it does not run on its own stack, or that has no guard page at its end. */
uint64_t gp_unwind_stack_low(const struct gp_stacks *stacks, pid_t tid, uint64_t sp, uint64_t thread_pointer);

/* ---- seize.c ----------------------------------------------------------------------------------------------------- */

struct gp_seized;

/* What the C library sends to each thread in setuid and its kin (SIGSETXID). */
#define GP_SETXID_SIGNAL 33

struct gp_seize_code { /* in the C library of the process */
    uint64_t enter;    /* an instruction that enters the kernel, and one that returns behind it */
    uint64_t back;     /* the end of a signal handler: rt_sigreturn */
    struct gp_stacks *stacks;
};

/* 0 or -errno. -ESRCH: it has ended; -ETIMEDOUT: it does not stop, and stops no more once this
 * process has ended; -EAGAIN: it is stopped by a signal. */
int gp_seize(struct gp_seized **seized, pid_t pid, pid_t tid, uint64_t deadline_ns);
/* Whether its user code is at a place where it may be led away from. */
bool gp_seized_may_leave(const struct gp_seized *seized);
/* Saves everything, and writes a frame below the thread's stack with which it gets back by itself if
 * this process dies.  0 or -errno; -ENOSPC: there is no room for it; -EXDEV: the stack is not known
 * to be the thread's own. */
int gp_seized_save(struct gp_seized *seized, const struct gp_seize_code *code);
/* The frame's address: a thread whose stack pointer is this, and which returns, gets back. */
uint64_t gp_seized_frame(const struct gp_seized *seized);
/* Lets the thread make a system call, with its signals blocked.  Its result, or -errno; -ETIMEDOUT: it is
 * still in there, and gets back by itself once this process has ended. */
long gp_seized_call(struct gp_seized *seized, long number, const uint64_t arguments[6]);
/* Lets the thread run gp_stub_begin until it says in the data what came of it.  0, -errno of the thread's
 * start; -ETIMEDOUT: it still runs, and will return by itself; -ESRCH: it ended; -EFAULT: it failed.
 * The code, the data and the stack lie in the region. */
int gp_seized_run(struct gp_seized *seized, uint64_t region, uint64_t region_bytes, uint64_t stack, uint64_t data,
                  uint64_t deadline_ns);
/* Stops it again, for more calls.  0 or -errno. */
int gp_seized_halt(struct gp_seized *seized);
/* Lets go of a thread that still runs what it was led to.  It gets back by itself at its end. */
void gp_seized_leave(struct gp_seized *seized);
/* Puts the thread back and lets it go.  How long it was stopped, in nanoseconds. */
uint64_t gp_seized_release(struct gp_seized *seized);

/* ---- stub.c ------------------------------------------------------------------------------------------------------ */

enum gp_stub_state {
    GP_STUB_NONE,
    GP_STUB_ASKS,   /* the worker waits for the library's bytes in `fd` */
    GP_STUB_LOADS,  /* it is in dlopen */
    GP_STUB_CALLS,  /* it is in gpuprof_attach */
    GP_STUB_DONE,   /* `result` is valid; the worker waits for GP_STUB_LEAVE */
    GP_STUB_FAILED, /* the same, and `error` */
};

#define GP_STUB_PENDING INT32_MIN

enum gp_stub_order { GP_STUB_WAIT, GP_STUB_LOAD, GP_STUB_LEAVE };

/* Shared with the code in stub.c, which knows the offsets. */
struct gp_stub_data {
    uint32_t order, state;
    uint64_t pthread_create, pthread_detach, errno_location, dlopen, dlsym, dlerror, munmap;
    uint64_t region, region_bytes;
    uint64_t entry; /* gpuprof_attach, if it is there already */
    uint64_t handle, thread;
    int32_t created, result; /* created: of pthread_create, GP_STUB_PENDING until then */
    int32_t fd, tid;
    uint64_t worker, frame;
    char symbol[32], comm[16], file[32], path[48];
    char error[512];
    char settings[GP_ATTACH_SETTINGS];
    uint32_t spins; /* for how many rounds the borrowed thread waits for this command */
    uint32_t gone;  /* it has gone back by itself */
};

extern const char gp_stub_begin[], gp_stub_worker[], gp_stub_end[];

/* ---- inject.c ---------------------------------------------------------------------------------------------------- */

enum gp_attach_outcome gp_attach_inject(struct gp_attach *attach, const struct gp_facts *facts);
/* Opens, for writing, the memory file with that name and number of the process whose directory in /proc is
 * `proc`. The process may have put another one there: memory of others that it has. So the file must
 * be as a worker with the user `owner` has just made it: empty and without seals. -EPERM: it is not; -ENOENT: it is no
 * memory file that the process may write. A descriptor or -errno. */
int gp_attach_memory(int proc, int number, const char *file, uid_t owner);
/* Copies a file.  0 or -errno. */
int gp_attach_copy(const char *from, int to);
/* Seals a memory file against every change, because the agent arms no other one. The kernel waits a tenth of a
 * second for pages that it holds itself, for example while it moves them, and then refuses; this tries again for
 * 3 s.  0 or -errno. */
int gp_attach_seal(int fd);

/* ---- pep768.c ---------------------------------------------------------------------------------------------------- */

struct gp_pep768 { /* addresses in the process */
    uint64_t pending, path, breaker;
    size_t path_bytes;
    char why[256]; /* if it cannot be used; "" it is an older Python */
};

/* Where the interpreter, whose _PyRuntime is at `runtime`, looks for requests to its main thread.  0,
 * or -errno and why. */
int gp_pep768_find(pid_t pid, uint64_t runtime, pid_t main_tid, struct gp_pep768 *place);
/* Asks for the script at `path`.  0 or -errno. */
int gp_pep768_request(pid_t pid, const struct gp_pep768 *place, const char *path);
/* True: *outcome is the end of the attach.  False: the process is as it was; attach->note may say why. */
bool gp_attach_python(struct gp_attach *attach, const struct gp_facts *facts, enum gp_attach_outcome *outcome);

#endif
