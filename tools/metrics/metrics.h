/* SPDX-License-Identifier: MIT
 *
 * metrics.h: the machine's GPU memory in the words of Prometheus.  The agent opens one and hands it to http.h, whose
 * thread is from then on the only caller.  The names are an interface: docs/metrics.md lists them.
 */
#ifndef GP_METRICS_METRICS_H
#define GP_METRICS_METRICS_H

#include <collect/nvml.h>
#include <maps/maps.h>

/* Series of one page, all families together.  A node of 8 GPUs with 110 pods on them comes to 1 000. */
#define GP_METRICS_SERIES     2000u
#define GP_METRICS_SERIES_MIN 200u /* less would leave nothing beside the agent's own */

enum gp_metrics_processes { /* --metrics-per-process */
                            GP_METRICS_PROCESSES_OFF,
                            GP_METRICS_PROCESSES_COMM, /* one series for all processes of a name in a container */
                            GP_METRICS_PROCESSES_PID,
};
/* "off", "comm", "pid".  0 or -EINVAL. */
int gp_metrics_processes_parse(const char *text, enum gp_metrics_processes *out);

struct gp_metrics_options {
    enum gp_metrics_processes processes;
    uint32_t series;     /* the cap; 0: GP_METRICS_SERIES */
    const char *root;    /* prefix of the files that name containers; NULL: "" */
    bool no_names;       /* do not look for names: a container is its cgroup's path */
    const char *version; /* of gpuprof */
};

struct gp_metrics_agent {              /* what the tables do not say; -1: unknown */
    int64_t armed, refused, postponed; /* libraries */
    int64_t records_lost;              /* of mappings */
    int64_t searching;                 /* 1: copies of the library are found; 0: something holds up the search */
};

struct gp_metrics_source {
    /* As gp_system_view_read; the view is freed with `free`. */
    int (*read)(void *arg, struct gp_system_view **out, char *why, size_t why_bytes);
    void (*free)(struct gp_system_view *view);
    /* As gp_nvml_read (and freed by gp_nvml_free); NULL: nothing is known of the GPUs but what the processes say. */
    int (*gpus)(struct gp_nvml_gpu **gpus, int *count, char problem[GP_NVML_PROBLEM_BYTES]);
    void *arg;
    /* NULL: nothing is known.  Comes with -1 everywhere. */
    void (*agent)(void *arg, struct gp_metrics_agent *out);
    void *agent_arg;
};

enum gp_metrics_format { GP_METRICS_TEXT, GP_METRICS_OPENMETRICS };
const char *gp_metrics_content_type(enum gp_metrics_format format);
/* What a request's Accept header (NULL: none) wants. */
enum gp_metrics_format gp_metrics_negotiate(const char *accept);

struct gp_metrics;
/* Strings and the source's arg must outlive it.  0, -EINVAL (the cap), -ENOMEM. */
int gp_metrics_open(struct gp_metrics **out, const struct gp_metrics_options *options,
                    const struct gp_metrics_source *source);
void gp_metrics_close(struct gp_metrics *metrics);

/* The page, from malloc.  A source that cannot be read gives the agent's own families and says so in one of them.
 * 0, -ENOMEM. */
int gp_metrics_render(struct gp_metrics *metrics, enum gp_metrics_format format, char **text, size_t *bytes);
/* Whether the agent is at work: the maps can be read and its heart beats.  False with a sentence in why. */
bool gp_metrics_healthy(struct gp_metrics *metrics, char *why, size_t why_bytes);

#endif
