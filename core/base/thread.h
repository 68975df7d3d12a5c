/* SPDX-License-Identifier: MIT
 *
 * thread.h: our record of one application thread. It uses initial-exec thread-local storage,
 * because the general model may call malloc on first use, inside the program's allocator. A
 * library that is opened with dlopen (as through CUDA_INJECTION64_PATH) shares a small static
 * block with all others, hence the limit of 64 bytes.
 */
#ifndef GP_BASE_THREAD_H
#define GP_BASE_THREAD_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

struct gp_thread {
    uint32_t number; /* the thread's place (thread.c) + 1; selects the counter shard */
    uint32_t tid;
    union {
        struct {
            uint8_t inside;  /* our code is running on this thread */
            uint8_t ignored; /* its driver calls are not the program's: a thread of ours, or our cache works */
            uint16_t life;   /* the life of the library that the rest belongs to (thread.c); 0: none yet */
        };
        uint32_t entry; /* the three at once: an entry compares and writes them as one word */
    };
    uint32_t range;      /* open NVTX ranges (source/nvtx.c) */
    uint64_t node;       /* the graph node made during the current driver call ... */
    uint64_t graph;      /* ... and its graph */
    uint64_t chunk_turn; /* the event ring's cursor (base/ring.h) */
    uint8_t chunk_used;
    uint8_t node_type;        /* of the node (CUgraphNodeType), + 1; 0: none */
    uint8_t cost;             /* of the driver call whose exit is being handled (wire.h: gp_wire_cost); 0: not known */
    uint8_t starts_later : 1; /* in cuInit through our wrapper, which starts gpuprof when it has succeeded */
    uint8_t green_ends : 1;   /* in cuGreenCtxDestroy, before the end of the green context */
    uint8_t prompt : 1;       /* the call under way is asynchronous in CUDA: it must not wait for the device */
    uint8_t reported : 2;     /* by CUPTI, of the driver call under way: enum gp_reported (source/internal.h) */
    uint8_t made : 1;         /* CUPTI has told of the context that this call makes */
    uint32_t call_ns;         /* when the driver call under way began: the lower half of the clock */
};
_Static_assert(sizeof(struct gp_thread) <= 48, "static TLS is scarce");

extern __thread struct gp_thread gp_thread __attribute__((tls_model("initial-exec")));

/* Where a thread shows that it is inside our code. It keeps its place as long as it lives, and then
 * another thread may have it. A program with more threads at once than this is not known; those
 * without a place share the last one, and detach cannot know when they are out. */
#define GP_THREAD_PLACES 65536u
struct gp_thread_place { /* a line of its own: it is written at each entry */
    uint32_t x_inside;
    uint32_t x_tid;    /* 0: free */
    const void *frame; /* of gp_thread_entered; read and written by the thread alone */
} __attribute__((aligned(64)));

/* What each entry reads, in a line of its own: it is written when a life begins or ends. */
extern struct gp_thread_lives {
    /* A private page that the kernel clears in every child, however it was made (fork, clone, raw
     * system call): 0 means that the process is not ours, 2 that the process is about to end, 3 that
     * the library has been detached. The check costs two loads; getpid() costs a system call, and
     * pthread_atfork misses raw forks. */
    uint32_t *x_alive;
    struct gp_thread_place *x_places; /* GP_THREAD_PLACES + 1 */
    /* gp_thread.entry of a thread that may enter without further questions: it knows this life, is
     * outside and not ignored. No thread outside has the word of INSIDE. */
    uint32_t x_entry;
    uint32_t x_number; /* of the life, 16 bits without 0; changes only while the library is off */
} gp_thread_lives GP_HIDDEN;

/* Whether this thread has entered before in this life, and is neither inside nor ignored: for work that touches nothing but
 * gp_thread and the caller's own data. The library may be off by now. */
static inline bool gp_thread_is_known(void)
{
    return gp_thread.entry == __atomic_load_n(&gp_thread_lives.x_entry, __ATOMIC_RELAXED);
}

/* Of the thread's own place: the frame of our function that its driver call under way entered, so that the callers' are
 * above it; NULL: not known. Threads without a place of their own have none. Call both inside our code only. */
static inline const void *gp_thread_frame(void)
{
    uint32_t at = gp_thread.number - 1;
    return GP_LIKELY(at < GP_THREAD_PLACES) ? gp_thread_lives.x_places[at].frame : NULL;
}
static inline void gp_thread_entered(const void *frame)
{
    uint32_t at = gp_thread.number - 1;
    if (GP_LIKELY(at < GP_THREAD_PLACES))
        gp_thread_lives.x_places[at].frame = frame;
}

/* Enters our code on this thread. False: the library is off, this is a forked child or one of
 * our own threads, or the thread is already inside (a signal handler that calls CUDA); the
 * caller counts the last case through gp_thread_nested(). Every true needs a leave. */
bool gp_thread_enter(void);
/* The same, and also after gp_thread_life_end: for the cache, which must know its own blocks as long as the
 * program can free them. Nothing may be written into the session then. */
bool gp_thread_enter_late(void);
void gp_thread_leave(void);
/* For our own threads, which do not enter: gives the thread its number and id in this life. */
void gp_thread_enrol(void);

/* Call them around driver calls that our own code makes on the program's thread, which are not
 * to be accounted. Calls nest: gp_thread_heed takes the old value that this returns. */
static inline uint8_t gp_thread_ignore(void)
{
    uint8_t before = gp_thread.ignored;
    gp_thread.ignored = 1;
    return before;
}

static inline void gp_thread_heed(uint8_t before)
{
    gp_thread.ignored = before;
}

/* The life of the library in this process: off until gp_thread_life_start, and off in a forked child (also
 * after a raw fork: the kernel clears the page) and after life_end. After a life has ended another one
 * may start: threads forget what they kept of the one before. Start returns 0 or -errno. */
int gp_thread_life_start(void);
void gp_thread_life_end(void);
/* Off without a rest: for gp_thread_enter_late too. */
void gp_thread_life_leave(void);
bool gp_thread_life_on(void);
/* On, or ended by gp_thread_life_end; not in a forked child. */
bool gp_thread_life_ours(void);

/* After gp_thread_life_end: waits until no thread of the program is inside our code, where none but our own
 * threads can come from then on. False: one is still inside at the deadline, or there were more
 * threads than can be followed. Our own threads. */
bool gp_thread_all_out(uint64_t deadline_ns);

/* Where to count callbacks that interrupted our own code; may be NULL. */
extern uint64_t *gp_thread_nested;

#endif
