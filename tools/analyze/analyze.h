/* SPDX-License-Identifier: MIT
 *
 * analyze.h: the analyses of a recording.  Pure functions: each takes a recording and returns a
 * result, without output or clock.  A result is one allocation, freed with free(); NULL means out of
 * memory.  docs/analyses.md defines every number.
 */
#ifndef GP_ANALYZE_ANALYZE_H
#define GP_ANALYZE_ANALYZE_H

#include <analyze/forecast.h>
#include <read/recording/recording.h>

/* ==== one recording =============================================================================================== */

/* Reduces a recording to [from_ns, to_ns], which lie in its time: what was live before from_ns becomes
 * its baseline, and times count from from_ns.  0; after -ENOMEM the recording can only be freed. */
int gp_recording_cut(struct gp_recording *recording, uint64_t from_ns, uint64_t to_ns);

/* The moment that a user names: the time since the start of the recording ("2.5s"), or the first mark
 * or NVTX range of that name.  -ENOENT: neither; -ERANGE: after the end. */
int gp_recording_moment(const struct gp_recording *recording, const char *text, uint64_t *time_ns);

/* ---- time ------------------------------------------------------------------------------------------------------- */

/* Bytes over time of one device: a step function, whose last point is the end of the recording.  If
 * the changes are more than `points`, each point covers a stretch of time and has the lowest and
 * the highest value in it. */
struct gp_series_point {
    uint64_t time_ns;
    int64_t low, high, last;
};
struct gp_series {
    uint32_t count;
    struct gp_series_point points[];
};
/* kind: GP_KIND_NONE means everything that counts as allocated (as PyTorch sums it, see
 * core/base/gauge.c). */
struct gp_series *gp_series_allocated(const struct gp_recording *recording, uint32_t device, enum gp_wire_kind kind,
                                      uint32_t points);
struct gp_series *gp_series_reserved(const struct gp_recording *recording, uint32_t device, uint32_t points);
/* The lowest, highest and last value from from_ns until before until_ns.  The limits are as exact as
 * the stretches of the series: a stretch belongs to the range that its start is in. */
struct gp_series_point gp_series_range(const struct gp_series *series, uint64_t from_ns, uint64_t until_ns);

/* Steps of the program, from the first of these: marks of one name, NVTX ranges (marks whose name
 * starts with "nvtx:"), the calls of an optimizer, of a backward pass or of a net on the stacks, the
 * period of the allocations.  Otherwise equal stretches of time; see docs/analyses.md. */
enum gp_step_source {
    GP_STEPS_MARKS,
    GP_STEPS_NVTX,
    GP_STEPS_PERIOD,
    GP_STEPS_TIME,
    GP_STEPS_GIVEN, /* stretches of a length that the user gave */
    GP_STEPS_STACKS /* calls of an optimizer's step, of a backward pass, or of a net */
};
enum gp_step_call { GP_STEP_NO_CALL, GP_STEP_OPTIMIZER, GP_STEP_BACKWARD, GP_STEP_NET };
struct gp_steps {
    enum gp_step_source source;
    enum gp_step_call call; /* of GP_STEPS_STACKS */
    bool told;      /* by the program or the user; else its memory must show that they are steps (gp_flow_returns) */
    bool inside;    /* of one call of a net, or of its backward pass */
    double sure;    /* 0..1: of what only repeats, how evenly it does; else 1 */
    uint32_t ended; /* steps that have ended for certain; 0: what was found may be a part of a step */
    char name[40];  /* of a mark or range, a function; of calls of a net, the place ("serve.py:24") */
    uint64_t length_ns; /* of a step: the median */
    uint32_t count;     /* bounds: count + 1 */
    uint64_t bounds_ns[];
};
struct gp_steps *gp_steps_find(const struct gp_recording *recording);
/* Whether they are steps: the program, its stacks or the user tell so.  Else they are only repeats, or stretches of time. */
bool gp_steps_are_steps(const struct gp_steps *steps);
const char *gp_steps_word(const struct gp_steps *steps);                  /* "step", "repeat" or "stretch" */
const char *gp_steps_words(const struct gp_steps *steps, uint32_t count); /* of so many */
/* The steps that a user asks for: the name of a mark or of an NVTX range, or a duration ("350ms").
 * -ENOENT: neither; -ERANGE: more than 10^6 steps; -ENOMEM. */
struct gp_step_name {
    char name[40];
    bool nvtx;
    uint32_t count;
};
/* The i-th name of marks and ranges, without numbers, that occurs twice.  False: there are no more. */
bool gp_steps_name(const struct gp_recording *recording, uint32_t i, struct gp_step_name *name);
int gp_steps_choose(const struct gp_recording *recording, const char *text, struct gp_steps **out);
/* How steps were found: "marks", "ranges", "optimizer", "backward", "calls", "given", "repeats" or "time". */
const char *gp_steps_found(const struct gp_steps *steps);

/* ---- leaks ------------------------------------------------------------------------------------------------------ */

/* Why it is not known that a site leaks, though it holds more and more. */
enum gp_leak_doubt {
    GP_LEAK_KNOWN,      /* it grows with the steps */
    GP_LEAK_INSIDE,     /* what repeats is inside one call of a net */
    GP_LEAK_GENERATION, /* it grew in one call of generate() alone, whose cache becomes longer with each token */
    GP_LEAK_LOADING,    /* what repeats keeps most of what it takes */
    GP_LEAK_LAYERS,     /* what repeats is quick, and keeps one block of a few */
    GP_LEAK_NO_STEPS,   /* no steps were found, or too few: equal parts of the allocations */
    GP_LEAK_SHORT,      /* it began to grow at the end */
    GP_LEAK_UNEVEN,     /* it also gives back; its lowest levels rise */
    GP_LEAK_DOUBTS
};
struct gp_leak {
    uint32_t site;
    uint32_t device; /* index in devices */
    uint8_t kind;
    uint8_t doubt;                  /* enum gp_leak_doubt */
    int64_t live_bytes, live_count; /* at the end of the last step, because programs clean up after it */
    double bytes_per_step;
    double confidence;       /* 0..1: how well a straight line fits, and how often it grew; and the doubt */
    double seconds_to_oom;   /* until a request fails, with all suspects of the device; < 0: unknown, or never */
    uint64_t oldest_ns;      /* age of its oldest live block at the end of the last step */
    uint64_t grows_ns;       /* from its first growth after the warm-up to its last */
    double bytes_per_second; /* in that time */
    int64_t taken_bytes, freed_bytes; /* allocated in the recording, and freed of it before the end of the last step */
    uint32_t repeats;                 /* steps, or parts of the allocations, that it was judged by */
    double repeat_kept, repeat_freed; /* blocks of one of them: that outlive the next, and that do not */
    uint32_t points;                  /* of its curve: one per repeat, or per group of them if they are many */
    const int64_t *kept;              /* [points + 1]: the least bytes held during each; the last: held at the end */
};
struct gp_leaks {
    uint32_t steps;
    uint32_t count, candidates; /* suspects; after them, sites that leak if something is so that is not known */
    const char *why;            /* the reason if there are no suspects, else "" */
    bool enough;                /* steps are known, at least four: without suspects and candidates, nothing grows */
    struct gp_leak suspects[];  /* the largest bytes_per_step first; then candidates, the likeliest first */
};
/* older_ns: blocks that are younger than this at the end do not count (0: all count).
 * docs/analyses.md has the rule and its thresholds. */
struct gp_leaks *gp_leaks_find(const struct gp_recording *recording, const struct gp_steps *steps, uint64_t older_ns);

/* ---- forecast --------------------------------------------------------------------------------------------------- */

struct gp_forecast_run {
    struct gp_forecast_result early; /* as it was after two steps; verdict short: there were fewer */
    struct gp_forecast_result now;   /* at the end of the recording */
    int64_t peak_bytes;              /* what the run really needed */
};

/* ---- peak ------------------------------------------------------------------------------------------------------- */

struct gp_peak_part {
    uint32_t site;
    uint8_t kind;
    int64_t bytes, count;
};
struct gp_peak {
    uint32_t device;
    uint64_t time_ns;
    uint32_t event_index; /* the last event before the peak; GP_REC_NONE: the recording started at the peak */
    int64_t bytes;        /* = sum of the parts */
    uint32_t count;
    struct gp_peak_part parts[]; /* the largest first */
};

/* The owner of a call site's memory: the library that asked for it (docs/frameworks.md), from the
 * modules of the recorded stack; "unknown" without a stack. */
#define GP_SITE_OWNER 48
void gp_bill_site_owner(const struct gp_recording *recording, uint32_t site, char owner[GP_SITE_OWNER]);

struct gp_peak_owner {
    char owner[GP_SITE_OWNER];
    int64_t bytes, count;
};
struct gp_bill_peak_owners { /* the sums of a peak's parts by owner */
    uint32_t count;
    struct gp_peak_owner rows[]; /* the largest first */
};
struct gp_bill_peak_owners *gp_bill_peak_owners(const struct gp_recording *recording, const struct gp_peak *peak);

/* ---- asleep ----------------------------------------------------------------------------------------------------- */

struct gp_sleep {
    uint64_t begin_ns, end_ns;  /* the first and the last block fell asleep */
    uint64_t wake_ns, woken_ns; /* the first and the last one woke; 0: none did */
    int64_t fell_bytes, woke_bytes;
    int64_t ended_bytes;      /* of blocks that were taken back asleep */
    int64_t reserved_bytes;   /* that the device still held 10 ms after end_ns */
    int64_t late_bytes;       /* of reserved memory that was given back more than 10 ms after end_ns */
    uint64_t late_ns;         /* the last of it; 0: none */
    struct gp_peak *released; /* the blocks that fell asleep, by call site */
    struct gp_peak *stayed;   /* what was allocated at end_ns */
};
struct gp_sleeps {
    uint32_t count, more; /* more: blocks of times beyond the most that are kept */
    struct gp_sleep rows[];
};

/* ---- churn ------------------------------------------------------------------------------------------------------ */

struct gp_churn_site {
    uint32_t site;
    uint64_t pairs; /* allocated and freed within one step */
    double pairs_per_step;
    uint64_t bytes; /* of these allocations */
    uint64_t mean_life_ns;
    uint64_t driver_ns; /* duration of the driver calls of these pairs; 0: unknown */
};
struct gp_churn {
    uint64_t pairs, allocations, frees;
    uint64_t driver_ns; /* of all pairs; 0: calls were not timed, or a cache served them */
    double pairs_per_step;
    uint32_t steps, count;
    struct gp_churn_site sites[]; /* the one with the most pairs first */
};

/* ---- fragmentation ---------------------------------------------------------------------------------------------- */

struct gp_fragment_point { /* one moment; a series has what happened between two of them */
    uint64_t time_ns;
    int64_t reserved_bytes, allocated_bytes, requested_bytes;
    int64_t largest_free_bytes; /* inside segments of a cache; -1: unknown */
};
struct gp_fragmentation {
    uint32_t device;
    double utilisation; /* allocated / reserved, at the peak of reserved */
    double external;    /* 1 - largest free / free, at the end; 0 if nothing is free */
    double internal;    /* 1 - requested / allocated, at the peak of allocated */
    bool has_segments;  /* the recording has segments of a cache */
    uint32_t count;
    struct gp_fragment_point points[]; /* `points` even moments, and the peaks of allocated and of reserved */
};

/* The segment map at at_ns, or at the end if that is 0: segments by address, each with its
 * blocks. */
enum gp_map_block_state { GP_BLOCK_LIVE = 0, GP_BLOCK_IDLE = 2, GP_BLOCK_UNMAPPED = 3 }; /* as GPUPROF_LIVE .. */
struct gp_map_block {
    uint64_t address, bytes;
    uint64_t requested_bytes; /* of live blocks; 0 for a mapping of memory that is mapped elsewhere too */
    uint32_t site;
    uint8_t state; /* enum gp_map_block_state */
    uint8_t kind;
};
struct gp_map_segment {
    uint64_t address, bytes;
    uint32_t first_block, block_count;
    uint8_t kind;
    bool cached; /* a segment of a cache; else a single driver allocation */
};
struct gp_segments {
    uint32_t device, segment_count, block_count;
    struct gp_map_segment *segments;
    struct gp_map_block *blocks;
};
struct gp_segments *gp_segments_at(const struct gp_recording *recording, uint32_t device, uint64_t at_ns);

/* The call sites whose live blocks keep the segments of caches: a segment can only be given back when
 * none of its blocks is live. */
struct gp_holder {
    uint32_t site;
    int64_t live_bytes, live_count;
    int64_t free_bytes; /* of the segments that have a live block of the site */
};
struct gp_holders {
    uint32_t count;
    struct gp_holder rows[]; /* the most free bytes first */
};
struct gp_holders *gp_holders_find(const struct gp_segments *map);

/* ---- refused requests --------------------------------------------------------------------------------------------- */

struct gp_refused { /* requests that got no memory, and that nothing served later */
    size_t count;
    uint32_t events[]; /* GP_EVENT_OOM, in order; bytes 0: a context, or code */
};
struct gp_refused *gp_refused_find(const struct gp_recording *recording);

/* ---- sizes, bill, diff ------------------------------------------------------------------------------------------- */

struct gp_sizes { /* by powers of two: [i] is for 2^i <= bytes < 2^(i+1) */
    uint64_t count[64], bytes[64], live_count[64], live_bytes[64];
};

struct gp_bill_row {
    char what[64]; /* "linear", "context", "pool: reserved, not in use", "untracked" ... */
    int64_t bytes; /* -1 unknown */
    bool estimated;
};
struct gp_bill { /* the parts of a process's memory, compared with the total that NVML reports */
    uint32_t device;
    uint64_t time_ns;
    int64_t process_bytes; /* from NVML; -1 unknown: then there is no "untracked" row */
    uint32_t count;
    struct gp_bill_row rows[];
};

/* A call site as gp_diff_match sees it. */
struct gp_diff_site {
    const char *stack;     /* functions, files and modules of its frames, without lines */
    const uint32_t *lines; /* of its frames, innermost first */
    uint32_t line_count;
    int64_t bytes, calls; /* allocated in the whole time; 0 unknown */
};
/* Fills rows[side][site] with the number of the site's row, below *row_count: sites of the same code
 * have the same row, even if lines have moved between the two recordings.  Two lines of one
 * recording have two rows.  False: out of memory. */
bool gp_diff_match(const struct gp_diff_site *const sites[2], const uint32_t counts[2], uint32_t *rows[2],
                   uint32_t *row_count);

/* Fills ids[side][i] with the number of the file paths[side][i], below the sum of the counts.  Two paths
 * of one side have two numbers, and a file of both sides has one: the folder of the program may be another
 * one.  False: out of memory. */
bool gp_diff_files(const char *const *const paths[2], const uint32_t counts[2], uint32_t *const ids[2]);

/* A function or file that may have another name in the other recording is known by marks: one for each
 * call site that it is in, equal ones for equal memory. */
struct gp_diff_mark {
    uint32_t thing; /* below thing_count; one on both sides has kept its name */
    uint64_t mark;
};
/* Fills same[thing]: the thing of the first side that it was, or itself.  Only things of one group are the
 * same, and only if they share half of their marks.  Sorts the marks.  False: out of memory. */
bool gp_diff_renamed(struct gp_diff_mark *const marks[2], const size_t counts[2], const uint32_t *group,
                     uint32_t thing_count, uint32_t *same);

/* Compares two recordings of one program.  rows: the row of each site of each recording. */
struct gp_diff_row {
    uint32_t site[2];                               /* GP_REC_NONE: the site is only in the other recording */
    int64_t live_bytes[2], peak_bytes[2], calls[2]; /* peak: at the peak of the device */
    int64_t own_bytes[2];                           /* the most that the row held at one moment */
};
struct gp_diff {
    uint32_t count;
    struct gp_diff_row rows[]; /* by the change of peak_bytes, the largest growth first */
};
struct gp_diff *gp_diff_find(const struct gp_recording *const recordings[2], const uint32_t *const rows[2],
                             uint32_t row_count);

#endif
