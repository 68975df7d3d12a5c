/* SPDX-License-Identifier: MIT
 *
 * model.h: what `gpuprof top` knows, made out of one struct gp_system after the other: a row for each process on each
 * device, sums by process, GPU and container, rates between two samples, histories.  Pure: no clock, no terminal, no
 * other process.  Unknown is -1 in integers and NaN in rates.
 */
#ifndef GP_VIEW_MODEL_H
#define GP_VIEW_MODEL_H

#include <collect/collect.h>

#define GP_MODEL_HOST      (-2) /* row of pinned and registered memory */
#define GP_MODEL_NO_DEVICE (-1) /* a process that has not used a device, or whose numbers cannot be trusted */

/* Four minutes at the default interval of one second; twice what the widest sparkline needs to keep moving. */
#define GP_HISTORY 240

enum gp_row_kind { GP_ROW_PAIR, GP_ROW_PROCESS, GP_ROW_DEVICE, GP_ROW_CONTAINER };
enum gp_member_list { GP_LIST_PAIRS, GP_LIST_PROCESSES, GP_LIST_DEVICES, GP_LIST_CONTAINERS, GP_LISTS };

/* What stays the same from sample to sample.  pid and start_time together: a pid alone is used again. */
struct gp_row_id {
    enum gp_row_kind kind;
    pid_t pid;
    uint64_t start_time;
    int device;         /* index in gpus[] of the model, GP_MODEL_HOST, GP_MODEL_NO_DEVICE */
    uint64_t cgroup_id; /* 0 unknown: then the name tells containers apart */
    char container[GP_CONTAINER_BYTES];
};

struct gp_history { /* samples of allocated bytes, oldest overwritten */
    int64_t samples[GP_HISTORY];
    int count, next;
};

struct gp_row {
    struct gp_row_id id;
    const struct gp_process *process;    /* NULL for a GPU or a container */
    const struct gp_device_view *device; /* pairs only; may be NULL */
    const struct gp_history *history;
    int depth;      /* in the tree */
    bool last;      /* of its branch */
    int members;    /* pairs summed */
    bool estimated; /* some bytes are */
    bool seen_peak; /* the peaks are the highest sums seen here: the exact one may be higher */
    bool exact;     /* a sum of the agent's, over the processes that are hidden from us too */
    int64_t allocated, allocated_peak, reserved, reserved_peak, untracked, total;
    int64_t lost;
    double allocs_per_s, frees_per_s;
};

struct gp_row_list {
    struct gp_row *rows;
    int count, capacity;
};

struct gp_track;              /* what is remembered of one row id */
#define GP_TRACK_BUCKETS 1024 /* rows on a busy machine: some hundred processes, a few devices each */

struct gp_model {
    struct gp_system *system; /* newest sample, owned */
    struct gp_gpu *gpus;      /* the system's, then those that only processes know */
    int gpu_count;
    struct gp_row_list lists[GP_LISTS];
    uint64_t lost[GP_LOSTS]; /* over all processes */
    uint64_t lost_total;
    int states[GP_PROCESS_FOREIGN + 1]; /* processes by state */
    unsigned generation;
    struct gp_track *tracks[GP_TRACK_BUCKETS];
};

void gp_model_init(struct gp_model *model);
void gp_model_fini(struct gp_model *model);
/* Takes the sample over, also on failure.  0 or -ENOMEM (the model is then empty but sound). */
int gp_model_update(struct gp_model *model, struct gp_system *system);
/* The agent's maps cannot be read any more: what came from them stands still, and is shown so. */
void gp_model_agent_lost(struct gp_model *model, uint64_t now_ns);
/* After a reset the sums seen before no longer count.  what: GP_RESET_ALLOCATED, _RESERVED or _PEAKS. */
void gp_model_forget_peaks(struct gp_model *model, uint32_t what);

bool gp_row_id_equal(const struct gp_row_id *a, const struct gp_row_id *b);
int gp_row_list_add(struct gp_row_list *list, const struct gp_row *row); /* 0 or -ENOMEM */
/* Does this pair belong to the group (or is it the row itself)? */
bool gp_row_contains(const struct gp_row *group, const struct gp_row *pair);
/* "live", "stale", ..., or what the process said of itself: "exited", "disabled", "yielded". */
const char *gp_process_word(const struct gp_process *process);
/* It answers and nothing is out of the ordinary. */
bool gp_process_live(const struct gp_process *process);
/* The statistics can be trusted: published, validated, from our library. */
bool gp_process_readable(const struct gp_process *process);
/* Sample `back` before the newest; -1 unknown or not that old. */
int64_t gp_history_get(const struct gp_history *history, int back);

#endif
