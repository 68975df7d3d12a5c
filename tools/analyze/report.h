/* SPDX-License-Identifier: MIT
 *
 * report.h: the longer answers about a recording: its history, the uses of its memory, its phases,
 * and all of them together.
 */
#ifndef GP_ANALYZE_REPORT_H
#define GP_ANALYZE_REPORT_H

#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>

/* ==== the history ================================================================================================= */
/* What was live at many moments of a recording, so that a reader can ask for any of them.  A
 * recording with few blocks has all of them, with their starts and ends.  Otherwise time is divided
 * into equal stretches, and the history has the parts of the allocated memory at the highest moment
 * and at the last change of each stretch; and the blocks that held the most. */

struct gp_life { /* one block */
    uint64_t from_ns, to_ns, bytes;
    uint32_t site;
    uint8_t kind, use; /* enum gp_use */
    bool live;         /* at the end of the recording; to_ns is that end */
};

struct gp_history_part { /* as in struct gp_peak, and apart for each use */
    uint32_t site;
    uint8_t kind, use;
};

struct gp_history_cell { /* a part has these values from this moment on */
    uint32_t part;
    int64_t bytes, count;
};

struct gp_moment {
    uint64_t time_ns;
    int64_t bytes, count;             /* allocated */
    int64_t other_bytes, other_count; /* of the parts that are not in the history */
    size_t first_cell;                /* the cells of a moment are those of the parts that changed */
};

struct gp_history_limits {
    uint32_t all;       /* so many blocks are all kept, and no moments */
    uint32_t lives;     /* of more blocks, so many are kept */
    uint32_t stretches; /* at most two moments for each */
    uint32_t parts;
};

struct gp_past {
    uint32_t device;
    bool complete;       /* lives has every block */
    uint64_t blocks;     /* how many blocks there were */
    uint64_t stretch_ns; /* width of a stretch; 0: there are no moments */
    uint32_t life_count, moment_count, part_count;
    size_t cell_count, cell_room;
    struct gp_life *lives; /* by from_ns */
    struct gp_moment *moments;
    struct gp_history_part *parts; /* those that held the most at one of the moments */
    struct gp_history_cell *cells;
};

struct gp_use_table;

/* uses: of the same device; NULL: no use is known.  NULL: out of memory. */
struct gp_past *gp_history_flow(const struct gp_flow *flow, uint32_t device, const struct gp_use_table *uses,
                                const struct gp_history_limits *limits);
void gp_history_free(struct gp_past *history);

/* ==== the report ================================================================================================== */
/* One recording with the results of its analyses.  A command prepares it, runs the analyses that its
 * output shows, and hands it to tools/show/text, which formats the results and computes nothing. */

struct gp_symbols;

/* Which results gp_report_run computes. */
#define GP_REPORT_SERIES        1u /* allocated and reserved bytes over time */
#define GP_REPORT_KINDS         2u /* bytes over time of each kind of memory */
#define GP_REPORT_PEAK          4u
#define GP_REPORT_FRAGMENTATION 8u
#define GP_REPORT_BILL          16u
#define GP_REPORT_SEGMENTS      32u
#define GP_REPORT_SIZES         64u
#define GP_REPORT_LEAKS         128u /* and the forecast */
#define GP_REPORT_CHURN         256u
#define GP_REPORT_SITES         512u  /* needs GP_REPORT_PEAK for at_peak_bytes */
#define GP_REPORT_HISTORY       1024u /* what was live when; for a plot that can be zoomed */
/* Call sites for the JSON of single analyses. */
#define GP_REPORT_HOLDERS 2048u /* of segments at the peak of reserved; needs GP_REPORT_FRAGMENTATION */
#define GP_REPORT_HELD    4096u /* at the moment of the bill; needs GP_REPORT_BILL */

#define GP_REPORT_SUMMARY  (GP_REPORT_SERIES | GP_REPORT_PEAK | GP_REPORT_FRAGMENTATION | GP_REPORT_LEAKS)
#define GP_REPORT_DOCUMENT 2047u /* all that are above the last two */

/* How many points the results over time have. */
enum gp_report_detail {
    GP_DETAIL_SUMMARY, /* figures and a sparkline */
    GP_DETAIL_TABLE,   /* a line per point */
    GP_DETAIL_PLOT     /* a plot, or JSON */
};

struct gp_report_device {
    unsigned kinds_seen; /* 1 << kind: the recording has memory of this kind on the device */
    bool used;           /* an event changes something there, it had memory before the attach, or a request failed */
    uint64_t blocks;     /* how many starts of blocks that count as allocated */
    struct gp_peak *peak;
    struct gp_bill_peak_owners *owners; /* of the peak */
    struct gp_sleeps *sleeps;           /* with the peak */
    struct gp_fragmentation *fragmentation;
    struct gp_bill *bill;
    struct gp_series *allocated, *reserved;
    struct gp_series *requested;       /* NULL with GP_DETAIL_SUMMARY */
    struct gp_series *kinds[GP_KINDS]; /* NULL for a kind that is not in kinds_seen; imported: with the series too */
    struct gp_segments *segments;      /* at the end of the recording */
    struct gp_sizes *sizes;
    struct gp_holders *holders;
    uint64_t holders_ns; /* the moment of the holders */
    struct gp_peak *held;
    struct gp_past *history;
    struct gp_use_table *uses; /* with the history and hints; NULL for the host */
    struct gp_forecast_run *forecast;
    struct gp_series *fine;          /* allocated, with more points; NULL if the history has every block */
    struct gp_series *fine_reserved; /* reserved, with as many; NULL if that is what is allocated, at every change */
};

struct gp_report_site {    /* one call site over the whole recording */
    uint32_t site, device; /* device, kind: of the last change */
    uint8_t kind;
    int64_t live_bytes, live_count, peak_bytes; /* live: at the end; peak: of this site alone */
    int64_t at_peak_bytes;                      /* held at the peak of its device */
    int64_t allocated_bytes, calls;             /* since the start */
};

/* Results that gp_report_run has not computed are NULL. */
struct gp_report {
    const struct gp_recording *recording;
    struct gp_symbols *symbols; /* for the writers; the analyses do not use it */
    const uint8_t *hints;       /* of gp_uses_find, which a caller may set before a run; NULL: no uses are found */
    uint8_t *used_for;          /* by site: 1 + enum gp_use, 0 not known; with the peak and hints */
    const char *file;           /* as the user named it; "" for a process that was recorded just now */
    uint64_t older_ns;          /* of gp_leaks_find; 0 after gp_report_init, a caller may set it before a run */
    struct gp_flow *flow;
    struct gp_steps *steps;
    struct gp_leaks *leaks;
    struct gp_churn *churn;
    struct gp_report_device *devices; /* one per device of the recording */
    struct gp_report_site *sites;     /* one per site of the recording, by number */
};

/* Prepares a report: matches ends with starts and finds the steps.  The recording, the symbols and
 * the name must outlive it.  0 or -ENOMEM; gp_report_fini is safe after either. */
int gp_report_init(struct gp_report *report, const struct gp_recording *recording, struct gp_symbols *symbols,
                   const char *file);
/* The same without the steps, for a command that may not need them: gp_report_steps finds them, before
 * the sites are joined.  0 or -ENOMEM. */
int gp_report_init_plain(struct gp_report *report, const struct gp_recording *recording, struct gp_symbols *symbols,
                         const char *file);
int gp_report_steps(struct gp_report *report);
/* Computes the results named by `parts` (GP_REPORT_*); a report runs once.  A device that is not
 * `used` gets results with GP_DETAIL_PLOT only: text leaves it out, JSON does not.  0 or
 * -ENOMEM. */
int gp_report_run(struct gp_report *report, unsigned parts, enum gp_report_detail detail);
void gp_report_fini(struct gp_report *report);

struct gp_report_failure {         /* the last request that got no memory */
    uint32_t count;                /* how many failed; 0: none did, and nothing else is set */
    uint32_t device;               /* index in devices; GP_REC_NONE: not known */
    uint64_t time_ns, asked_bytes; /* 0: the call has no size */
    int64_t free_bytes;            /* of the device; -1: not known */
    uint32_t site;
    const char *api; /* "": not known */
};
/* A snapshot of PyTorch and a log of RMM have only entries in their traces; in a recording of ours such an event may be
 * a try that was followed by a better one. */
struct gp_report_failure gp_report_failure(const struct gp_recording *recording);

struct gp_kind_peak {         /* of one kind of memory on a device */
    int64_t bytes, end_bytes; /* 0: there was none */
    uint32_t site;            /* that holds most at the peak; 0: not known */
    int64_t site_bytes;
};
/* Finds it in a walk over the flow.  False: out of memory. */
bool gp_flow_kind_peak(const struct gp_flow *flow, uint32_t device, unsigned kind, struct gp_kind_peak *peak);

/* ==== uses ======================================================================================================== */
/* What the memory of one device is used for: weights, gradients, activations and so on. The evidence
 * is when a block comes and goes, measured in steps, its size, and where it was asked for.  Each
 * answer has a reason and a confidence; where the evidence is weak, the use is unknown.
 * docs/phases.md has the rules. */

enum gp_use {
    GP_USE_WEIGHTS,
    GP_USE_GRADIENTS,
    GP_USE_OPTIMIZER,
    GP_USE_ACTIVATIONS,
    GP_USE_KV_CACHE,
    GP_USE_GRAPHS,
    GP_USE_WORKSPACE,
    GP_USE_COMMUNICATION,
    GP_USE_TEMPORARY,
    GP_USE_GROWS, /* no use: its call site is a suspect of `leaks` */
    GP_USE_UNKNOWN,
    GP_USES
};

/* What the names on a stack tell of a call site. */
enum gp_use_hint {
    GP_HINT_NONE,
    GP_HINT_WEIGHTS,
    GP_HINT_OPTIMIZER,
    GP_HINT_KV_CACHE,
    GP_HINT_GRAPHS,
    GP_HINT_WORKSPACE,
    GP_HINT_POOL,    /* of XLA: what is in it is not seen */
    GP_HINT_LIBRARY, /* a library of functions asked for it: its workspace */
    GP_HINT_COMMUNICATION,
    GP_HINT_FORWARD,     /* in the call of a layer */
    GP_HINT_BACKWARD,    /* in a backward pass */
    GP_HINT_NO_FRAMEWORK /* of the unknown site 0: no stack of the recording has a framework on it */
};

#define GP_USE_RULES 37u /* rows; userules.h names them */

struct gp_use_row { /* all blocks that one rule decided */
    enum gp_use use;
    double confidence; /* 0..1; 0: unknown */
    const char *reason;
    uint64_t count;
    int64_t peak_bytes;    /* the highest sum of these blocks */
    int64_t at_peak_bytes; /* at the peak of the device; 0 for graphs: their memory is not allocated bytes */
    int64_t end_bytes;     /* at the end of the recording */
};

struct gp_use_table {
    uint32_t device;
    bool trains;                          /* a backward pass was seen */
    uint8_t *rule;                        /* by the id of a change: the row of its block */
    struct gp_use_row rows[GP_USE_RULES]; /* those with count 0 decided nothing */
};

/* A rule that is less sure is "probably" in texts. */
#define GP_USE_PLAIN 0.75

/* hints: by call site; NULL: no names are known.  leaks: of the same steps, or NULL.  NULL: out of
 * memory.  Free with gp_uses_free. */
struct gp_use_table *gp_uses_find(const struct gp_flow *flow, const struct gp_steps *steps,
                                  const struct gp_leaks *leaks, const uint8_t *hints, uint32_t device);
/* What the memory of each call site is for, at the peak of the device that ended with `event` (gp_peak), or, where
 * it held none then, of all that it allocated: 1 + enum gp_use in sites[], with GP_USE_PROBABLY, where all of it is
 * for one use.  Other entries stay. False: out of memory. */
#define GP_USE_PROBABLY 0x80u
bool gp_uses_by_site(const struct gp_use_table *uses, const struct gp_flow *flow, uint32_t event, uint8_t *sites);
/* Checkpointing takes activations off the peak (event_index of gp_peak) that were made before this event.  Later
 * ones, such as the output of the last layer and what the loss keeps, are needed again at once. */
uint32_t gp_uses_spared(const struct gp_use_table *uses, const struct gp_flow *flow, uint32_t event);
void gp_uses_free(struct gp_use_table *uses);
/* "weights", "kv_cache", "unknown" ..: as JSON has it. */
const char *gp_use_name(enum gp_use use);
/* "weights", "KV cache", "optimizer state" ..: as texts have it, after "probably" where the rules are less than GP_USE_PLAIN sure. */
#define GP_USE_WORDS 32
const char *gp_use_words(char text[GP_USE_WORDS], enum gp_use use, double sure);
/* How sure the rules are of a use, by the bytes that each decided: at the peak, or, without any then, at most. */
double gp_use_sure(const struct gp_use_table *uses, enum gp_use use);
/* The hint of a function or file name of a stack, and of the owner of its memory. */
enum gp_use_hint gp_use_hint_of_name(const char *function, const char *file);
enum gp_use_hint gp_use_hint_of_owner(const char *owner);

/* ==== phases ====================================================================================================== */
/* What each phase of a program added to a device's memory, its peak, and what it left behind.  A
 * phase is an NVTX range, or the time from one mark to the next; without both, the time before, in
 * and after the steps.  docs/phases.md defines the numbers. */

enum gp_phase_source {
    GP_PHASES_NVTX,  /* ranges; marks too, if there are any */
    GP_PHASES_MARKS, /* marks alone */
    GP_PHASES_STEPS, /* neither: the steps that were found */
    GP_PHASES_WHOLE, /* nor steps: one phase */
};

struct gp_phase_part { /* changes of one call site between two moments of the phase */
    uint32_t site;
    uint8_t kind;
    int64_t added_bytes; /* from its start to its peak */
    int64_t left_bytes;  /* from its start to its end */
};

struct gp_phase_use { /* changes of all memory of one use, as of a part; zeros without uses */
    int64_t at_peak_bytes;
    int64_t added_bytes, left_bytes;
};

struct gp_phase { /* all occurrences of one name, without its numbers, at one depth */
    char name[40];
    uint32_t depth; /* ranges around it on its thread */
    uint32_t count;
    uint64_t begin_ns;    /* of the first */
    uint64_t duration_ns; /* of all */
    int64_t left_bytes;   /* sum of what they left; less than 0: they freed more */
    /* Of the occurrence with the highest peak; of several the first: */
    uint64_t peak_ns;
    int64_t begin_bytes, peak_bytes, end_bytes;
    uint32_t part_count;
    struct gp_phase_part *parts; /* the most added first */
    struct gp_phase_use uses[GP_USES];
};

#define GP_PHASES_MOST 64u /* further names are only counted */
struct gp_phases {
    enum gp_phase_source source;
    uint32_t device, count, left_out;
    struct gp_phase *phases; /* by their first start */
};
/* uses: of the same device, or NULL.  NULL: out of memory.  Free with gp_phases_free. */
struct gp_phases *gp_phases_find(const struct gp_flow *flow, const struct gp_steps *steps,
                                 const struct gp_use_table *uses, uint32_t device);
void gp_phases_free(struct gp_phases *phases);

/* ==== what the memory is for ======================================================================================= */

/* What the names on its stack tell of each call site (enum gp_use_hint), for gp_uses_find; free() it.  NULL:
 * out of memory. */
uint8_t *gp_report_hints(const struct gp_report *report);

struct gp_report_uses { /* by device of the recording; NULL: not used, or the host for uses */
    struct gp_phases **phases;
    struct gp_use_table **uses;
    uint32_t count;
};
/* Runs GP_REPORT_LEAKS, unless the report has run.  Free with gp_report_uses_free in any case.  False: out of
 * memory. */
bool gp_report_uses_find(struct gp_report *report, struct gp_report_uses *uses);
void gp_report_uses_free(struct gp_report_uses *uses);

#endif
