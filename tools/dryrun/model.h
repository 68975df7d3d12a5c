/* SPDX-License-Identifier: MIT
 *
 * model.h: the answer of `gpuprof dryrun`.  Everything in it is copied, so that the recordings can be gone.
 */
#ifndef GP_DRYRUN_MODEL_H
#define GP_DRYRUN_MODEL_H

#include <analyze/report.h>
#include <stdbool.h>
#include <stdint.h>

#define GP_NEED_TEXT 256
#define GP_NEED_NAME 128

struct gp_need_place { /* a line of the user's code with what a framework did there */
    char text[GP_NEED_TEXT];
    char function[GP_NEED_NAME], file[GP_NEED_TEXT], operation[GP_NEED_NAME];
    uint32_t line;
};

struct gp_need_line { /* blocks of one place and one use that are live at the peak */
    struct gp_need_place place;
    enum gp_use use;
    int64_t bytes, count;
    int64_t spared_bytes; /* activations that checkpointing may take off the peak */
    uint64_t life_ns;     /* the mean of their bytes */
};

struct gp_need_moment { /* an event: when, in which step (from 1; 0: in none), and what was asked for */
    uint64_t since_ns;
    uint32_t step;
    int64_t bytes, free_bytes; /* free: -1 unknown */
    struct gp_need_place place;
};

struct gp_need_refused { /* requests of one size from one place that got no memory, and that nothing served later */
    struct gp_need_place place;
    int64_t bytes, count; /* bytes 0: a context, or the code of a kernel */
};

struct gp_need_level { /* what is held from that time on, without the context, and the most from then to the end */
    uint64_t time_ns;
    int64_t bytes, after_bytes;
    int64_t least_bytes; /* of `bytes`: without what pools have idle */
};

struct gp_need { /* of one process on one device */
    uint32_t pid;
    int32_t rank; /* -1: none */
    char comm[65], uuid[48];
    int32_t device; /* its number in the process */
    bool complete;
    uint64_t missing; /* events */
    int64_t allocated_peak_bytes, reserved_peak_bytes;
    /* Of the device, with the context. */
    int64_t needed_bytes, smallest_bytes, context_bytes;
    int64_t code_bytes;             /* of kernels: a part of the context */
    int64_t assumed_bytes;          /* at the peak: what libraries took that are stood in for */
    int64_t assumed_reserved_bytes; /* the same when most was reserved, so a part of needed_bytes */
    int64_t growable_bytes;         /* needed with expandable segments; -1: not tried */
    struct gp_wire_polled ahead;    /* a pool that was taken ahead; pool_bytes 0: none */
    bool ahead_told;                /* by XLA; else its pieces tell */
    int64_t uses[GP_USES];          /* at the peak of the allocated bytes, to which they add up */
    double sure[GP_USES];           /* of most of its bytes; 0: unknown */
    struct gp_need_line *lines;
    uint32_t line_count; /* the most bytes first */
    uint32_t steps, peak_step;
    const char *steps_found;   /* gp_steps_found; "" without any */
    uint32_t repeats;          /* what repeats, where steps are not known; 0: nothing does */
    double repeats_sure;       /* how evenly it does, 0..1 */
    uint64_t peak_ns, step_ns; /* since the start of the recording; length of a step */
    bool infers;               /* stacks show layers that are called, and no backward pass */
    /* CLOCK_MONOTONIC: the process may have used the device from the first of these on, used it from the second to the
     * third.  Processes that do not overlap do not add up. */
    uint64_t start_ns, begin_ns, end_ns;
    bool exits;                        /* the recording has its end */
    int64_t memory_bytes, least_bytes; /* of needed_bytes and of smallest_bytes: without the context */
    uint32_t stack;               /* bytes of each thread of its kernels, which make the context larger; 0: none ran */
    struct gp_need_level *levels; /* in the order of time */
    uint32_t level_count;
    struct gp_need_refused *refused; /* the largest first */
    uint32_t refused_count;
    int32_t *stands_for; /* ranks of a job of which only some run: those that are as this one; NULL: another shows it */
    uint32_t stands_count;
    bool oom, over;
    struct gp_need_moment failed; /* the last request that failed, with oom */
    struct gp_need_moment broke;  /* what took the device over the budget, with over */
};

struct gp_dryrun_note { /* of a stand-in or of the simulator */
    char library[64], kind[16], text[GP_NEED_TEXT];
    uint64_t count; /* processes that said it */
};

struct gp_dryrun_cache { /* what a server's log says of its KV cache */
    char server[64];
    uint32_t pid; /* of the first that said it */
    int64_t tokens, request_tokens;
    int64_t hundredths; /* of requests of so many tokens, for which there is room */
    int64_t count;      /* processes that said it */
};

struct gp_dryrun_read {         /* copies of results to the host from one place */
    struct gp_need_place place; /* function "": not known */
    int64_t count, bytes;
};

struct gp_dryrun_left { /* a file of --merge that is not in the answer */
    char file[GP_NEED_TEXT], why[GP_NEED_TEXT];
};

struct gp_dryrun_run { /* one run of the program */
    char gpu[32];      /* the name */
    int64_t total_bytes;
    int64_t threads;       /* that the GPU can hold */
    bool plenty;           /* the run after one that failed, on a device of another size */
    int status;            /* of the program, as a shell gives it */
    bool ended;            /* by --steps */
    bool unended;          /* in spite of --steps */
    uint32_t processes;    /* that used a GPU */
    uint32_t cut;          /* recordings that end before their process did */
    uint32_t contextless;  /* processes that got no memory for a context, so that their device is not known */
    int64_t written_bytes; /* to files, by the processes that used a GPU, as far as it was seen */
    int64_t kernels;       /* that started, of all processes; -1: not known */
    uint32_t stack;        /* the most bytes of each of their threads; 0: not known */
    uint32_t places;       /* ranks that a launcher has started on this machine, as far as the processes' own tell */
    uint32_t ranks, world; /* those that used a device, and the number that the launcher gave them */
    uint32_t job_ranks;    /* --world: ranks of the job, of which those in `needs` ran; 0: all ran */
    int32_t node_ranks;    /* ... and of a node: processes of several nodes share no device */
    uint32_t unanswered;   /* ranks of the job for which no row stands */
    struct gp_need *needs;
    uint32_t need_count;
    struct gp_dryrun_note *notes;
    uint32_t note_count;
    struct gp_dryrun_cache *caches;
    uint32_t cache_count;
    struct gp_dryrun_read *reads; /* the most often first */
    uint32_t read_count;
    struct gp_dryrun_message { /* why ranks of a job ended or did not move */
        char text[512];
    } * messages;
    uint32_t message_count;
    struct gp_dryrun_left *left;
    uint32_t left_count;
};

enum gp_dryrun_verdict { GP_DRYRUN_FITS, GP_DRYRUN_TOO_LARGE, GP_DRYRUN_FAILED /* for another reason */ };

struct gp_dryrun_gpu {
    char key[32], name[64], capability[8];
    int64_t total_bytes, threads;
    enum gp_dryrun_verdict verdict;
    uint32_t run;                         /* on which this rests */
    uint32_t failed;                      /* the run in which memory was refused; GP_REC_NONE */
    bool own;                             /* the program ran on this GPU */
    int64_t needed_bytes, smallest_bytes; /* -1 unknown */
};

struct gp_dryrun_batch { /* a size that --batch has tried */
    int64_t size;
    enum gp_dryrun_verdict verdict;
    uint32_t run;
    int64_t needed_bytes; /* -1: it ran out of memory, or failed */
};

enum gp_dryrun_change_status { GP_CHANGE_RAN, GP_CHANGE_FAILED, GP_CHANGE_NONE /* it met nothing to change */ };

struct gp_dryrun_change { /* what --try has tried */
    char name[24];        /* as --try=NAME takes it */
    char spec[512];       /* what the run was told: items "NAME=HOW", with ';' between them; "": it was not run */
    char text[200];       /* for people */
    char why[200];        /* unless it ran */
    char note[200];       /* what else is to know of its run; "": nothing */
    enum gp_dryrun_change_status status;
    enum gp_dryrun_verdict verdict;
    int64_t needed_bytes, allocated_bytes; /* of the process that needs most; -1: not known */
    double kernels;                        /* those that started, by those without the change; 0: not known */
};

struct gp_dryrun_answer {
    char *const *command;
    struct gp_dryrun_gpu *gpus;
    uint32_t gpu_count;
    struct gp_dryrun_run *runs;
    uint32_t run_count;
    uint32_t shown;       /* the run whose parts the text shows */
    int64_t budget_bytes; /* 0: none */
    bool over;
    struct gp_dryrun_batch *batches; /* --batch: by size */
    uint32_t batch_count;
    int64_t batch_sizes[2];           /* that were asked for */
    struct gp_dryrun_change *changes; /* --try: what fits first, then what saves most */
    uint32_t change_count;
    bool tries, tries_torch;            /* --try was given; CMD has PyTorch, which it can change */
    bool random;                        /* what was read back of results: else zeros */
    double imbalance;                   /* of experts: the first of so many parts of them get all words; 0: not known */
    const struct gp_dryrun_gpu *enough; /* the smallest that is; NULL: none */
    bool enough_by_size;                /* the program has not run on it */
};

/* The process that needs most of a device; NULL: none used one. */
const struct gp_need *gp_dryrun_worst(const struct gp_dryrun_run *run);
/* The first process that went over the budget, or else whose request to the driver failed; NULL: none. */
const struct gp_need *gp_dryrun_broken(const struct gp_dryrun_run *run, bool over);
static inline bool gp_dryrun_failed(const struct gp_dryrun_run *run)
{
    return run->status && !run->ended;
}
/* The requests that got no memory, of all processes. */
int64_t gp_dryrun_refused(const struct gp_dryrun_run *run);
/* What is needed beside allocated memory and the context: memory that an allocator held, and *rounding: what the
 * driver's pages have more than was reserved of them. */
int64_t gp_need_idle(const struct gp_need *need, int64_t *rounding);
/* Adds what a server said, unless it is there: then the process is counted.  False: out of memory. */
bool gp_dryrun_cache_add(struct gp_dryrun_run *run, const struct gp_dryrun_cache *cache);
/* What one more costs, between the sizes that were asked for, if both fit; 0: not known. */
double gp_dryrun_batch_more(const struct gp_dryrun_answer *answer);
/* The largest size that fits, of those tried; NULL: none. */
const struct gp_dryrun_batch *gp_dryrun_batch_largest(const struct gp_dryrun_answer *answer);

#endif
