/* SPDX-License-Identifier: MIT
 *
 * model.h: the data of `gpuprof top`.  Each sample (struct gp_system) updates a row for each process
 * on each device, the sums by process, GPU, container and owner, the rates between two samples, and
 * the histories.  Pure: it reads no clock, no terminal and no other process.  Unknown is -1 in
 * integers and NaN in rates.
 */
#ifndef GP_SHOW_TERMINAL_MODEL_H
#define GP_SHOW_TERMINAL_MODEL_H

#include <read/collect/collect.h>

/* ==== the model =================================================================================================== */

#define GP_MODEL_HOST      (-2) /* pinned and registered host memory */
#define GP_MODEL_NO_DEVICE (-1) /* a process that has not used a device, or whose numbers cannot be trusted */

/* Samples: four minutes at the default interval of one second, several times the width of a
 * sparkline. */
#define GP_HISTORY 240

/* A share is the memory of one owner (pytorch, nccl ...) within a pair. */
enum gp_row_kind {
    GP_ROW_PAIR,
    GP_ROW_SHARE,
    GP_ROW_PROCESS,
    GP_ROW_DEVICE,
    GP_ROW_CONTAINER,
    GP_ROW_OWNER,
    GP_ROW_SITE, /* a call site of a process (siteview.h) */
};
enum gp_member_list {
    GP_LIST_PAIRS,
    GP_LIST_SHARES,
    GP_LIST_PROCESSES, /* from here on sums, with a history */
    GP_LIST_DEVICES,
    GP_LIST_CONTAINERS,
    GP_LIST_OWNERS,
    GP_LISTS
};

/* Identifies a row across samples.  pid and start_time belong together, because the kernel reuses
 * pids. */
struct gp_row_id {
    enum gp_row_kind kind;
    pid_t pid;
    uint64_t start_time;
    int device;         /* index in gpus[] of this sample, GP_MODEL_HOST, GP_MODEL_NO_DEVICE */
    uint64_t gpu;       /* of the GPU, also in other samples, whose indexes may differ; 0: none */
    uint64_t cgroup_id; /* 0 unknown: then containers differ by name */
    char container[GP_CONTAINER_BYTES];
    char owner[40]; /* of a share, and of a sum of shares */
    uint32_t site;  /* its number in the process; 0: not a call site */
};

struct gp_history { /* samples of allocated bytes; a new one overwrites the oldest */
    int64_t samples[GP_HISTORY];
    int count, next;
};

/* Samples of a GPU: as many as a very wide screen shows, two in a column. */
#define GP_PLOT_SAMPLES 1024

struct gp_plot_sample { /* bytes; -1 unknown */
    uint64_t time_ns;
    int64_t allocated, reserved, used; /* reserved: gp_row_held; used: of all programs, by NVML */
};

struct gp_plot_history { /* a new sample overwrites the oldest */
    struct gp_plot_sample samples[GP_PLOT_SAMPLES];
    int count, next;
};

struct gp_row {
    struct gp_row_id id;
    const struct gp_process *process;    /* NULL for a GPU or a container */
    const struct gp_device_view *device; /* pairs only; may be NULL */
    const struct gp_history *history;
    const struct gp_plot_history *plot; /* of a GPU; else NULL */
    struct gp_outlook *outlook;         /* of a pair on a GPU; else NULL */
    const struct gp_site_row *site;     /* a call site; else NULL */
    int depth;                          /* in the tree */
    bool last;                          /* the last row of its branch */
    int members;                        /* pairs summed */
    bool estimated;                     /* some of the bytes are estimates */
    bool seen_peak; /* the peaks are the highest sums that this viewer saw; the exact ones may be higher */
    bool late;      /* attached: the program had memory before, or it is not known, so the numbers are least ones */
    bool exact;     /* the agent's sum, which includes processes that are hidden from this viewer */
    int64_t allocated, allocated_peak, reserved, reserved_peak, untracked, total;
    int64_t asleep; /* blocks without memory, in no other number; -1: unknown */
    int64_t before; /* from before an attach, in no other number; -1: nothing, or unknown */
    int64_t lost;
    double allocs_per_s, frees_per_s;
};

struct gp_row_list {
    struct gp_row *rows;
    int count, capacity;
};

struct gp_outlook;            /* outlook.h */
struct gp_site_row;           /* siteview.h */
struct gp_site_set;           /* siteview.h */
struct gp_track;              /* track.h */
#define GP_TRACK_BUCKETS 1024 /* a busy machine has some hundred processes with a few devices each */

struct gp_gpu_number { /* of a GPU that only processes report: it keeps its number while one of them runs */
    uint64_t gpu;
    int index;
};

struct gp_model {
    struct gp_system *system; /* newest sample, owned */
    struct gp_gpu *gpus;      /* those of the system, then those that only a process reported, by number */
    int gpu_count;
    struct gp_gpu_number *numbers; /* of the last sample, in the order of gpus[] */
    int number_count;
    struct gp_row_list lists[GP_LISTS];
    uint64_t lost[GP_LOSTS]; /* over all processes */
    uint64_t lost_total;
    int states[GP_PROCESS_FOREIGN + 1]; /* processes by state */
    unsigned generation;
    struct gp_track *tracks[GP_TRACK_BUCKETS];
    const struct gp_site_set *sites; /* of the view by site, or of the selected process; the screen's; NULL: not open */
};

void gp_model_init(struct gp_model *model);
void gp_model_fini(struct gp_model *model);
/* Takes ownership of the sample, also on failure.  0 or -ENOMEM (the model is then empty but
 * valid). */
int gp_model_update(struct gp_model *model, struct gp_system *system);
/* The agent's maps can no longer be read: marks the agent dead and its processes stale. */
void gp_model_agent_lost(struct gp_model *model, uint64_t now_ns);
/* After a reset: forgets the highest sums seen so far.  what: GP_RESET_ALLOCATED, _RESERVED or
 * _PEAKS. */
void gp_model_forget_peaks(struct gp_model *model, uint32_t what);

/* False: it stands for the GPUs of processes that have not learned from the driver which they use. */
bool gp_model_gpu_known(const struct gp_gpu *gpu);
/* The GPU's name, or what is known instead: never empty. */
const char *gp_model_gpu_label(const struct gp_gpu *gpu);
/* The rows are of one GPU, or both of the host, or both of no device. */
bool gp_model_same_gpu(const struct gp_row_id *a, const struct gp_row_id *b);
bool gp_model_id_equal(const struct gp_row_id *a, const struct gp_row_id *b);
uint64_t gp_model_id_hash(const struct gp_row_id *id);
/* Reserved, and what was there before an attach; -1: unknown. */
static inline int64_t gp_row_held(const struct gp_row *row)
{
    int64_t reserved = row->reserved, before = row->before;
    return before <= 0 ? reserved : reserved <= 0 ? before : reserved + before;
}
/* The peak as a place in a bar; -1: none, because the peak since an attach is not that of what is held. */
static inline int64_t gp_row_mark(const struct gp_row *row)
{
    return row->late ? -1 : row->allocated_peak;
}
/* A row without numbers. */
struct gp_row gp_model_row_empty(enum gp_row_kind kind, int device);
int gp_model_row_add(struct gp_row_list *list, const struct gp_row *row); /* 0 or -ENOMEM */
/* The pair belongs to the group, or is the row itself. */
bool gp_model_row_contains(const struct gp_row *group, const struct gp_row *pair);
/* The sample `back` samples before the newest; -1: unknown, or the history is shorter. */
int64_t gp_model_history(const struct gp_history *history, int back);
/* The same of a GPU; NULL: the history is shorter. */
const struct gp_plot_sample *gp_model_plot(const struct gp_plot_history *plot, int back);

/* ==== states of processes ========================================================================================= */
/* The meaning of a collected process's state for the viewer.  Pure. */

/* The statistics can be trusted: our library published them and they were validated.  NULL is not
 * readable. */
bool gp_model_process_readable(const struct gp_process *process);
/* The process answers, and it is neither closed nor disabled nor yielded. */
bool gp_model_process_live(const struct gp_process *process);
/* "live", "stale", ..., or the report of the process itself: "exited", "disabled", "yielded"; "-"
 * for NULL. */
const char *gp_model_process_word(const struct gp_process *process);

#endif
