/* SPDX-License-Identifier: MIT
 *
 * fit.h: what a recorded program needs of a device: its requests are replayed against a model of a
 * device of another size, through the cache's own code (core/cache) where a caching allocator is in
 * between.  Bytes here are those that the program gets, without the context; docs/fit.md has the
 * model and its assumptions.  Functions return NULL or -ENOMEM when memory is out.
 */
#ifndef GP_ANALYZE_FIT_H
#define GP_ANALYZE_FIT_H

#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <read/recording/recording.h>

struct gp_policy;

/* The driver hands out device memory in these pages. */
#define GP_FIT_PAGE (2ull << 20)

enum gp_fit_kind {
    GP_FIT_TAKE, /* a request that a caching allocator can serve; its end */
    GP_FIT_GIVE,
    GP_FIT_DRIVER_TAKE, /* a driver allocation that no cache serves: arrays, physical memory, segments; its end */
    GP_FIT_DRIVER_GIVE,
    GP_FIT_POOL_TAKE, /* a block of a stream-ordered pool; its end */
    GP_FIT_POOL_GIVE,
    GP_FIT_GRAPHS, /* bytes: what graphs hold from here on, as polled */
    GP_FIT_TRIM,   /* the program gave back what its allocator held idle: torch.cuda.empty_cache() */
};
#define GP_FIT_STREAM_ANY 65535u /* the request names no stream: work of any may use the block */
#define GP_FIT_SHARDS     8u

/* Which pages of the driver a request takes or gives, if it comes to the driver as it is. */
enum gp_fit_pages {
    GP_FIT_PAGES_MODEL, /* its own, or, if it is small, as fitdevice.c packs it */
    GP_FIT_PAGES_NONE,  /* by its recorded address it shares a page with others that are live */
    GP_FIT_PAGES_ONE,   /* by its recorded address it is the first in its page, or the last */
};

struct gp_fit_op {
    uint64_t bytes : 40, stream : 16;
    uint64_t kind : 3;  /* enum gp_fit_kind */
    uint64_t pages : 2; /* enum gp_fit_pages */
    uint64_t shard : 3; /* of the thread: some caches keep blocks for each */
    uint32_t slot;      /* of its block; numbers are used again */
    uint32_t event;     /* index; GP_REC_NONE: live when the recording started */
};

/* How a device's memory was requested. */
enum gp_fit_requests {
    GP_FIT_OF_DRIVER,    /* from the driver */
    GP_FIT_OF_CACHE,     /* from gpuprof's own cache */
    GP_FIT_OF_FRAMEWORK, /* from an allocator of the program that reports its blocks and follows PyTorch's sizes */
    GP_FIT_OF_OTHERS,    /* from another one: its segments are all that is known of its rules */
};

struct gp_fit_trace {
    const struct gp_recording *recording;
    uint32_t device;
    enum gp_fit_requests requests;
    bool growable;           /* the segments that were recorded are growable */
    bool streams;            /* some requests name a stream */
    bool pools;              /* some are of a stream-ordered pool */
    bool keeps;              /* a pool was told to keep what is idle, even when work is waited for */
    bool code;               /* modules were loaded: kernels ran */
    bool packs;              /* small driver allocations need another number of pages with falling addresses */
    uint32_t refused;        /* requests that nothing served: they are taken, and given at once */
    uint32_t slots;          /* one more than the largest */
    uint64_t most_bytes;     /* no request is larger */
    uint64_t load_bytes;     /* highest sum of what was requested: no allocator can do with less */
    uint64_t reserved_bytes; /* highest sum of what the recorded program held of the driver */
    size_t count;
    struct gp_fit_op *ops;
};
/* recorded: the segments of a framework count as the driver allocations that they are, and its
 * blocks are left out. */
struct gp_fit_trace *gp_fit_trace_new(const struct gp_flow *flow, uint32_t device, bool recorded);
/* The requests, for replays that all have a cache: which pages they took of the driver is not looked up. */
struct gp_fit_trace *gp_fit_trace_cached(const struct gp_flow *flow, uint32_t device);
void gp_fit_trace_free(struct gp_fit_trace *trace);

/* What is held of the device after an event (GP_REC_NONE: at the start, or polled), and idle in a pool of that. */
typedef void gp_fit_held_fn(void *arg, uint32_t event, uint64_t held, uint64_t idle);

/* An allocator to replay with. */
struct gp_fit_setup {
    const struct gp_policy *policy; /* NULL: none; every request is a driver allocation */
    /* The cache gives its idle memory back when another driver allocation finds none, as gpuprof's
     * does and PyTorch's does not. */
    bool yields;
    /* The driver's addresses fall instead of rising, and small requests go into its last page with
     * room instead of the first.  Neither is documented, and among equal blocks the lowest is taken,
     * so gp_fit_find and gp_fit_fits ask for sizes that are enough both ways.  Nor is it recorded when a program waits
     * for its work, which makes pools give back what is idle: this way round after each free. */
    bool downward;
    bool recorded;        /* as it went: without what was refused */
    gp_fit_held_fn *held; /* after each operation; may be NULL */
    void *held_arg;
    /* Called on the caller's thread: 0 at the start of each replay, then thousandths of it.  May be NULL. */
    void (*progress)(unsigned parts);
};

struct gp_fit_end {
    size_t failed;       /* the operation that found no memory; trace->count: none */
    uint64_t peak, used; /* bytes held: at most, and at the end */
    bool ranges;         /* a heap of the cache had two address ranges: which of them is the lower one may matter */
};
/* Replays the trace on a device that has `bytes` for the program.  0 or -ENOMEM. */
int gp_fit_play(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, uint64_t bytes,
                struct gp_fit_end *end);

struct gp_fit_sizes {
    /* The most that is held if memory is never short.  From this size on the replay never meets a
     * limit, so every size fits.  For an allocator whose reserve depends on the size of the device:
     * a size that fits. */
    uint64_t enough_bytes;
    /* The smallest size that was found to fit, and a size below it that does not, at most
     * `step_bytes` apart.  In between, and below, a cache may be lucky: it can fit a size and not a
     * larger one. */
    uint64_t smallest_bytes, fails_bytes, step_bytes;
    /* Left over when a size below enough_bytes was tried: where memory is short, the driver's
     * addresses decide, and they differ from the model's. */
    uint64_t spare_bytes;
    /* The most that is held with rising addresses on a device with four times the load and 1 GiB; 0: that fails. */
    uint64_t plenty_bytes;
    uint32_t replays;
};
int gp_fit_find(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, struct gp_fit_sizes *fit);
/* Replays both ways, on two threads, unless addresses play no part.  peak: the higher one; may be NULL.  Adds to
 * fit->replays. */
int gp_fit_fits(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, uint64_t bytes, bool *fits,
                uint64_t *peak, struct gp_fit_sizes *fit);

/* What the process held besides the memory that is counted: its context, code and what the driver
 * keeps. */
enum gp_fit_context {
    GP_FIT_ASSUMED, /* GP_FIT_CONTEXT_BYTES */
    GP_FIT_GIVEN,
    GP_FIT_MEASURED,  /* NVML's bytes of the process */
    GP_FIT_ESTIMATED, /* gp_fit_context_of the threads that the GPU can hold */
    GP_FIT_SCALED,    /* measured, and the difference of the estimates for the two GPUs */
};
#define GP_FIT_CONTEXT_BYTES (256ull << 20)
/* The driver keeps local memory for each thread that can be resident.  Contexts without code, from 107 MiB on an RTX 4060
 * Ti to 555 MiB on an RTX PRO 6000 Blackwell, are within 5 % of this, of which half is the default stack. */
#define GP_FIT_THREAD_BYTES 2048u
#define GP_FIT_THREAD_STACK 1024u
static inline uint64_t gp_fit_context_of(uint64_t threads)
{
    return (threads * GP_FIT_THREAD_BYTES + GP_FIT_PAGE - 1) / GP_FIT_PAGE * GP_FIT_PAGE;
}
/* stack: bytes that each thread of the kernels has; 0: no kernel ran.  One that needs more than the default gets it for all
 * threads that can be resident, for the rest of the context (docs/dryrun.md has the sources).  The first kernel made the
 * context of an H200 larger by a sixth, for its local memory as it seems, so the larger of the two counts. */
static inline uint64_t gp_fit_context_with(uint64_t bare, uint32_t stack)
{
    const uint64_t sixth = stack ? bare / 6 / GP_FIT_PAGE * GP_FIT_PAGE : 0;
    const uint64_t beyond = stack > GP_FIT_THREAD_STACK ? stack - GP_FIT_THREAD_STACK : 0;
    const uint64_t more = (bare / GP_FIT_THREAD_BYTES * beyond + GP_FIT_PAGE - 1) / GP_FIT_PAGE * GP_FIT_PAGE;
    return bare + (more > sixth ? more : sixth);
}
/* A GPU of which only the size is known: a small one holds fewer threads, so its context is at most an eighth of it. */
static inline uint64_t gp_fit_context_in(uint64_t bare, uint64_t gpu_bytes)
{
    uint64_t eighth = gpu_bytes / 8 / GP_FIT_PAGE * GP_FIT_PAGE;
    return eighth < bare ? eighth : bare;
}
/* The smallest device that has so much beside `whole` contexts and those of kernels with that stack, each of that GPU. */
uint64_t gp_fit_context_device(uint64_t bytes, uint64_t bare, unsigned whole, unsigned kernels, uint32_t stack);
/* threads: that the GPU can hold; 0: as the recorded one.  stack: as for gp_fit_context_with. */
enum gp_fit_context gp_fit_context_find(const struct gp_recording *recording, uint32_t device, uint64_t threads,
                                        uint32_t stack, uint64_t *bytes);

/* ---- fitjudge.c: the whole answer for one device ------------------------------------------------------------------- */

struct gp_fit_question {
    const char *gpu;                  /* its name in the table of GPUs; NULL: only its size is known */
    uint64_t gpu_bytes;               /* of the device to try */
    uint32_t tenants;                 /* programs like this one that share it; at least 1 */
    int64_t context_bytes;            /* of each; -1: as gp_fit_context_find has it */
    uint64_t threads;                 /* that the device can hold; 0: as the recorded one */
    uint32_t stack;                   /* bytes of each thread of its kernels; 0: the default */
    const char *allocator;            /* a policy, or "off"; NULL: as it was recorded */
    const char *conf;                 /* settings of the allocator, as checked by gp_policy_configure; may be NULL */
    bool all;                         /* every allocator, the recorded one first */
    void (*progress)(unsigned parts); /* see struct gp_fit_setup */
};

struct gp_fit_row {        /* one allocator; bytes are of the device, for all tenants, with their contexts */
    const char *allocator; /* "off": none, or the program's own as it was recorded */
    const char *conf;      /* "" none */
    bool fits;
    bool by_chance;          /* it fits, and is smaller than the smallest size that is known to */
    uint64_t peak_bytes;     /* where memory is never short */
    uint64_t smallest_bytes; /* see struct gp_fit_sizes */
    uint64_t step_bytes;
    uint32_t replays;
};
#define GP_FIT_ROWS 8u

struct gp_fit_result {
    uint32_t device;
    enum gp_fit_requests requests;
    enum gp_fit_context context;
    uint64_t context_bytes;       /* of one program */
    uint64_t small_context_bytes; /* of rows[0]: on a device of the smallest size */
    /* What the recorded program held beyond a replay with its own allocator: memory that waited for
     * other streams, and private pools.  Part of the sizes of that allocator. */
    uint64_t unexplained_bytes;
    uint64_t spare_bytes;     /* of rows[0]: see struct gp_fit_sizes */
    uint64_t requested_bytes; /* highest sum of the requests of one program */
    uint64_t least_bytes;     /* of rows[0]: of one program on the smallest size, without its context */
    bool kernels;             /* some ran: a part of the context */
    size_t retried_requests;  /* that failed, and were served when they were repeated: they are left out */
    /* That nothing served: the sizes have the largest, but what the program would have done then is not known, so they
     * are the least. */
    uint32_t refused_requests;
    uint64_t refused_bytes; /* the largest */
    uint32_t refused_event; /* its event */
    bool refused_context;   /* one of them was a context */
    uint32_t count;
    struct gp_fit_row rows[GP_FIT_ROWS]; /* [0]: the one that was asked for */
    /* Of rows[0], unless it fits: */
    uint32_t event;       /* that found no memory; GP_REC_NONE: at the start of the recording */
    uint64_t fails_ns;    /* its time */
    uint64_t asked_bytes; /* of the request; 0: already the context does not fit */
    uint64_t free_bytes;  /* for this program then */
    /* What was held when it failed, or at the peak of the allocated bytes if it fits.  From gp_fit_judge_held. */
    struct gp_peak *held;
};
/* 0, -ENOMEM, -ERANGE: no size was found.  Free with gp_fit_result_fini in each case. */
int gp_fit_judge(const struct gp_flow *flow, uint32_t device, const struct gp_fit_question *question,
                 struct gp_fit_result *result);
/* What the recorded program held over time, in the driver's pages and without its context.  0 or -ENOMEM. */
int gp_fit_judge_levels(const struct gp_flow *flow, uint32_t device, gp_fit_held_fn *held, void *arg);
/* Fills in result->held; apart from the rest, because sites may be joined in between.  0 or -ENOMEM. */
int gp_fit_judge_held(const struct gp_flow *flow, struct gp_fit_result *result);
void gp_fit_result_fini(struct gp_fit_result *result);

/* ---- fitdevice.c: the model of the driver's memory ---------------------------------------------------------------- */

struct gp_backend;

/* Requests above 1 MiB get pages of their own; smaller ones share pages in steps of 512 bytes, the
 * first gap that fits. */
#define GP_FIT_SMALL (1ull << 20) /* the largest request that shares a page */
struct gp_fit_small;
struct gp_fit_pool;
struct gp_fit_device {
    uint64_t size, used, peak;
    void (*short_of)(void *); /* gives back what is idle in a pool; NULL: there is none */
    void *short_arg;
    struct gp_fit_small *small;
    uint16_t *runs;
    uint32_t small_room, small_empty; /* no page below small_empty is empty */
    bool downward;                    /* a new address is below those before, instead of above */
};
#define GP_FIT_WHOLE UINT64_MAX /* place of a request that has pages of its own */
/* False: not enough memory. */
bool gp_fit_device_take(struct gp_fit_device *device, uint64_t bytes, uint64_t *place);
void gp_fit_device_give(struct gp_fit_device *device, uint64_t bytes, uint64_t place);
void gp_fit_device_fini(struct gp_fit_device *device);
/* Takes whole pages, if need be after the pool has given back its idle chunks; device->used -= bytes gives them. */
bool gp_fit_device_charge(struct gp_fit_device *device, uint64_t bytes);

/* ---- fitpool.c: the model of a stream-ordered pool ----------------------------------------------------------------- */

/* NULL: out of memory. */
struct gp_fit_pool *gp_fit_pool_new(struct gp_fit_device *device);
void gp_fit_pool_free(struct gp_fit_pool *pool);
/* False: not enough memory. */
bool gp_fit_pool_take(struct gp_fit_pool *pool, uint64_t bytes, uint32_t *place);
void gp_fit_pool_give(struct gp_fit_pool *pool, uint32_t place);
/* Work was waited for. */
void gp_fit_pool_settle(struct gp_fit_pool *pool);
/* What it has beyond the pages that its live blocks would fill. */
uint64_t gp_fit_pool_idle(const struct gp_fit_pool *pool);

/* The driver as a cache sees it.  All work is done by the time that a fence is asked for. */
struct gp_fit_driver;
struct gp_fit_driver *gp_fit_driver_new(struct gp_fit_device *device, struct gp_backend *backend);
void gp_fit_driver_free(struct gp_fit_driver *driver);

#endif
