/* SPDX-License-Identifier: MIT
 *
 * report.h: one recording with the results of its analyses.  A command prepares it, runs the
 * analyses that its output shows, and hands it to tools/show/text, which formats the results and
 * computes nothing.
 */
#ifndef GP_ANALYZE_REPORT_H
#define GP_ANALYZE_REPORT_H

#include <analyze/flow.h>
#include <analyze/history.h>

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

#endif
