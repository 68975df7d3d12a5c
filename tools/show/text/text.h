/* SPDX-License-Identifier: MIT
 *
 * text.h: formats results as text for a terminal and as JSON.  Nothing here computes a result.
 */
#ifndef GP_SHOW_TEXT_TEXT_H
#define GP_SHOW_TEXT_TEXT_H

#include <analyze/analyze.h>
#include <analyze/fit.h>
#include <analyze/forecast.h>
#include <analyze/report.h>
#include <jansson.h>
#include <show/text/write.h>
#include <stdio.h>
#include <symbol/symbol.h>

/* ==== analyses ==================================================================================================== */
/* Formats the results of the analyses of a recording, as JSON and as text for a terminal.  The
 * caller has run the analyses (gp_report_run); each function names the parts that it reads.  Nothing
 * here computes a result. JSON functions return new references, and NULL when memory is out. */

/* Schema gpuprof.report/1 (docs/schema).  Reads GP_REPORT_DOCUMENT. */
json_t *gp_report_document(const struct gp_report *report);

/* gpuprof.leaks/1, .peak/1, .churn/1, .fragmentation/1 and .reconcile/1.  Each reads the part of
 * its name; fragmentation also reads GP_REPORT_SERIES and GP_REPORT_HOLDERS, and reconcile reads
 * GP_REPORT_BILL and GP_REPORT_HELD. */
json_t *gp_report_leaks_json(const struct gp_report *report);
json_t *gp_report_peak_json(const struct gp_report *report);
json_t *gp_report_churn_json(const struct gp_report *report);
json_t *gp_report_fragmentation_json(const struct gp_report *report);
json_t *gp_report_reconcile_json(const struct gp_report *report);

/* Parts that the documents of single analyses and the whole document share. */
json_t *gp_report_device_name(const struct gp_report *report, uint32_t device); /* 0, or "host"; null: there is none */
json_int_t gp_report_since(const struct gp_report *report, uint64_t time_ns);   /* ns since the recording started */
const char *gp_report_step_source(const struct gp_report *report);              /* "marks" */
/* How steps were found: "marks", "ranges", "optimizer", "backward", "calls", "given", "repeats" or "time". */
const char *gp_steps_found(const struct gp_steps *steps);
/* Which rhythm the steps are: 'marks "step"', "a period of 12 ms found in the allocations". */
#define GP_RHYTHM_TEXT 160
const char *gp_report_rhythm(const struct gp_report *report, char text[GP_RHYTHM_TEXT]);
/* What speaks for a suspect: "grows for 9.8 s at 3.1 MiB/s; nothing of it was freed". */
#define GP_EVIDENCE_TEXT 128
const char *gp_report_evidence(const struct gp_leak *leak, char text[GP_EVIDENCE_TEXT]);
/* Why a candidate is no suspect, and what it means if it is one. */
#define GP_BECAUSE_TEXT 320
const char *gp_report_because(const struct gp_leak *leak, char text[GP_BECAUSE_TEXT]);
/* What the finding of the suspects lacks; NULL if nothing. */
const char *gp_report_missing(const struct gp_report *report);
json_t *gp_report_suspects(const struct gp_report *report);
json_t *gp_report_candidates(const struct gp_report *report);
/* frames: with the whole stack of each site, which the report has in its list of sites. */
json_t *gp_report_churn_part(const struct gp_report *report, bool frames);
/* Fills callers[] (one per site of the recording) with the frame that tells each site from all others
 * of its name.  NULL: out of memory; free() it. */
const struct gp_frame_text **gp_report_callers(const struct gp_report *report);
/* What the memory of a site is for, where the report knows (gp_report.used_for), else its kind: "activations",
 * "linear". */
const char *gp_report_what(const struct gp_report *report, uint32_t site, uint8_t kind);
/* The use as JSON has it; null: not known. */
json_t *gp_report_use(const struct gp_report *report, uint32_t site);
/* A site's stack, innermost frame first. */
json_t *gp_report_frames(const struct gp_report *report, uint32_t site);
/* Adds function, file and line of the place that matters, its index in the site's frames, and the
 * owner. */
void gp_report_add_place(const struct gp_report *report, json_t *object, uint32_t site);
json_t *gp_report_owner(const struct gp_recording *recording, uint32_t site);
/* The parts of a peak with their places. */
json_t *gp_report_parts(const struct gp_report *report, const struct gp_peak *peak);
/* The peak of the device by owner. */
json_t *gp_report_owners(const struct gp_report *report, uint32_t device);
json_t *gp_report_fragmentation_part(const struct gp_report *report, uint32_t device);
/* Points [t, lowest, highest, last]. */
json_t *gp_report_series(const struct gp_report *report, const struct gp_series *series);
json_t *gp_report_bill_part(const struct gp_report *report, uint32_t device);
/* Adds the memory from before an attach, as of the end of the recording, to a device's object. */
void gp_report_add_before(const struct gp_report *report, uint32_t device, json_t *object);
/* Adds "forecast" to a device's object.  False: out of memory. */
bool gp_forecast_report_add(const struct gp_report *report, uint32_t device, json_t *object);

/* ---- text ------------------------------------------------------------------------------------------------------- */

struct gp_text_page {
    FILE *out;
    int width;   /* columns; at least 40 are used */
    bool colour; /* escape sequences are allowed */
    bool utf8;   /* else ASCII alone */
    bool named;  /* notes start with the name of the recording */
    bool whole;  /* not a terminal: lines may be longer than the width, and are where a name would be cut */
};

/* Reads GP_REPORT_SUMMARY. */
void gp_text_summary(const struct gp_text_page *page, const struct gp_report *report);
/* Each reads the part of its name; fragmentation also GP_REPORT_SERIES, reconcile GP_REPORT_BILL. */
void gp_text_leaks(const struct gp_text_page *page, const struct gp_report *report);
/* The line about the steps, then the first suspects (at most `most`) and candidates, each with `frames`
 * frames of its stack. */
void gp_text_growth(const struct gp_text_page *page, const struct gp_report *report, uint32_t most, uint32_t frames);
/* "99 steps of 20 ms: calls of an optimizer's step on the stacks" */
void gp_text_step_line(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_peak(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_churn(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_fragmentation(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_reconcile(const struct gp_text_page *page, const struct gp_report *report);
/* A line about memory of other processes, if there was any on the device. */
void gp_text_imported(const struct gp_text_page *page, const struct gp_report *report, uint32_t device);
/* Notes about an incomplete recording, which belong above any number.  True: at least one was
 * printed. */
bool gp_text_warnings(const struct gp_text_page *page, const struct gp_report *report);
/* Of these, what a trace of PyTorch or a log does not know (tracenotes.c).  note: begins each line. */
void gp_text_before(const struct gp_text_page *page, const struct gp_recording *r, const char *note);

/* "s" for more than one. */
const char *gp_text_plural(uint64_t count);
/* The name of a site, after `used` columns of the line.  The function stands out; the file and the caller
 * and callee that distinguish it from other sites are dim. */
void gp_text_site(const struct gp_text_page *page, const struct gp_report *report, uint32_t site,
                  const struct gp_frame_text *caller, const struct gp_frame_text *callee, int used);
/* Prints a stack, innermost frame first: in bold the one that names the site, the user's own as
 * they are, others dim.  Several of a kind in a row are one line.  At most `rows` lines follow the
 * name. */
void gp_text_stack(const struct gp_text_page *page, const struct gp_report *report, uint32_t site, uint32_t rows);

/* The parts of a peak, one line for each, at most `rows` and at most 30. */
void gp_text_parts(const struct gp_text_page *page, const struct gp_report *report, const struct gp_peak *peak,
                   uint32_t rows);

/* reports: of the two recordings.  callers: with the stack of each site. */
void gp_text_diff(const struct gp_text_page *page, const struct gp_diff *diff, const struct gp_report *const reports[2],
                  bool callers);
json_t *gp_diff_json(const struct gp_diff *diff, const struct gp_report *const reports[2]);

/* ==== pages of text =============================================================================================== */
/* What the pages of reporttext.c are made of: cut names, folded lines, bars. */

#define GP_PAGE_BAR 12u /* columns */

/* At least 40 and at most 200 columns. */
int gp_text_width(const struct gp_text_page *page);
/* The escape sequence, or nothing where colours are off. */
const char *gp_text_on(const struct gp_text_page *page, const char *code);
/* blank: leave an empty line above the heading. */
void gp_text_heading(const struct gp_text_page *page, const char *text, bool blank);
/* Prints at most `columns` characters of text on a terminal; a text that is cut ends with "...". */
void gp_text_cut(const struct gp_text_page *page, const char *text, int columns);
/* Returns the columns that are left for a name after `used` others.  If they are too few, starts a new line. */
int gp_text_room(const struct gp_text_page *page, int used);
/* Prints phrases, which commas or semicolons end, after `used` columns of a line.  On a terminal, a
 * phrase that does not fit begins a line of its own. */
void gp_text_phrases(const struct gp_text_page *page, const char *text, int used);
/* share: 0..1.  The bar is padded to GP_PAGE_BAR columns. */
void gp_text_bar(const struct gp_text_page *page, double share);
/* A curve as one line of bars, in at most `columns` columns. */
void gp_text_spark(const struct gp_text_page *page, const int64_t *values, uint32_t count, unsigned columns);

/* ==== forecasts =================================================================================================== */
/* Formats a forecast (analyze/forecast.h) for reports, `stat` and `top`. */

/* The object `forecast` of gpuprof.stat/1 and gpuprof.report/1: docs/interface.md. */
json_t *gp_forecast_json(const struct gp_forecast_result *result);
/* "steady: the run needs 3.613 GiB, a step 700.0 MiB of it". */
#define GP_FORECAST_TEXT 128
const char *gp_forecast_line(const struct gp_forecast_result *result, const char *step, char text[GP_FORECAST_TEXT]);

/* ==== phases ====================================================================================================== */
/* Formats the phases of a program, as text for a terminal and as JSON. */

/* phases, uses: one for each device of the recording; NULL for a device that was not used.  The host
 * has no uses. */
void gp_text_phases(const struct gp_text_page *page, const struct gp_report *report, struct gp_phases *const *phases,
                    struct gp_use_table *const *uses);
/* gpuprof.phases/1; NULL: out of memory. */
json_t *gp_phases_json(const struct gp_report *report, struct gp_phases *const *phases,
                       struct gp_use_table *const *uses);

/* ==== ranks ======================================================================================================= */
/* The ranks of a job as text and as JSON of schema gpuprof.ranks/1, which the HTML page of several
 * ranks shows. */

#define GP_VERDICT_TEXT 640
/* NULL: out of memory. */
json_t *gp_ranks_json(const struct gp_ranks *ranks);
void gp_ranks_text(const struct gp_text_page *page, const struct gp_ranks *ranks);

/* ==== `gpuprof fit` =============================================================================================== */
/* Formats the answers of `gpuprof fit`, as text for a terminal and as JSON.  Nothing here computes a
 * result. */

struct gp_fit_answer {
    const struct gp_report *report;
    const struct gp_fit_question *question;
    const struct gp_fit_result *results; /* one for each device that was used */
    uint32_t count;
};

/* Every device fits. */
bool gp_fit_answer_fits(const struct gp_fit_answer *answer);
void gp_text_fit(const struct gp_text_page *page, const struct gp_fit_answer *answer);
/* gpuprof.fit/1; NULL: out of memory. */
json_t *gp_fit_json(const struct gp_fit_answer *answer);

/* ==== `gpuprof dryrun` ============================================================================================ */
/* The answer of `gpuprof dryrun`, as text for a terminal and as JSON.  Nothing here computes a
 * result; everything in it is copied, so that the recordings can be gone. */

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
    uint64_t life_ns; /* the mean of their bytes */
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
    bool kernels;                      /* some ran, which makes the context larger */
    struct gp_need_level *levels;      /* in the order of time */
    uint32_t level_count;
    struct gp_need_refused *refused; /* the largest first */
    uint32_t refused_count;
    bool oom, over;
    struct gp_need_moment failed; /* the last request that failed, with oom */
    struct gp_need_moment broke;  /* what took the device over the budget, with over */
};

struct gp_dryrun_note { /* of a stand-in or of the simulator */
    char library[64], kind[16], text[GP_NEED_TEXT];
    uint64_t count; /* processes that said it */
};

struct gp_dryrun_read {         /* copies of results to the host from one place */
    struct gp_need_place place; /* function "": not known */
    int64_t count, bytes;
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
    uint32_t places;       /* ranks that a launcher has started on this machine, as far as the processes' own tell */
    uint32_t ranks, world; /* those that used a device, and the number that the launcher gave them */
    struct gp_need *needs;
    uint32_t need_count;
    struct gp_dryrun_note *notes;
    uint32_t note_count;
    struct gp_dryrun_read *reads; /* the most often first */
    uint32_t read_count;
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
    int64_t batch_sizes[2];             /* that were asked for */
    bool random;                        /* what was read back of results: else zeros */
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
void gp_text_dryrun(const struct gp_text_page *page, const struct gp_dryrun_answer *answer);
/* gpuprof.dryrun/1; NULL: out of memory. */
json_t *gp_dryrun_json(const struct gp_dryrun_answer *answer);

#endif
