/* SPDX-License-Identifier: MIT
 *
 * metrics.h: the machine's GPU memory as Prometheus metrics. The agent opens a gp_metrics and passes
 * it to metrics.h, whose thread is then the only caller. The names are an interface: docs/metrics.md
 * lists them.
 */
#ifndef GP_AGENT_METRICS_METRICS_H
#define GP_AGENT_METRICS_METRICS_H

#include <agent/maps/maps.h>
#include <read/collect/collect.h>
#include <sys/socket.h>

/* ==== the metrics ================================================================================================= */

/* Series of one page over all families. A node of 8 GPUs with 110 pods has about 1 000. */
#define GP_METRICS_SERIES     2000u
#define GP_METRICS_SERIES_MIN 200u /* below this no room is left beside the agent's own */

/* Processes whose owners of memory are on a page; a node runs fewer. */
#define GP_METRICS_SESSIONS 512u

enum gp_metrics_processes { /* --metrics-per-process */
                            GP_METRICS_PROCESSES_OFF,
                            GP_METRICS_PROCESSES_COMM, /* one series for all processes of a name in a container */
                            GP_METRICS_PROCESSES_PID,
};
/* "off", "comm", "pid".  0 or -EINVAL. */
int gp_metrics_processes_parse(const char *text, enum gp_metrics_processes *out);

struct gp_metrics_options {
    enum gp_metrics_processes processes;
    uint32_t series;     /* the limit; 0: GP_METRICS_SERIES */
    const char *root;    /* prefix of the files that name containers; NULL: "" */
    bool no_names;       /* do not look up names: a container is shown by its cgroup's path */
    const char *version; /* of gpuprof */
};

struct gp_metrics_agent {              /* facts that are not in the tables; -1: unknown */
    int64_t armed, refused, postponed; /* libraries */
    int64_t unarmed;                   /* named and installed ones that could not be armed: they are tried again */
    int64_t records_lost;              /* mapping records */
    int64_t searching;                 /* 1: copies of the library are found; 0: discovery is stalled */
    int64_t attached, attach_refused;  /* programs, by --attach-containers */
};

struct gp_metrics_source {
    /* As gp_system_view_read; the view is freed with `free`. */
    int (*read)(void *arg, struct gp_system_view **out, char *why, size_t why_bytes);
    void (*free)(struct gp_system_view *view);
    /* As gp_nvml_read (freed by gp_nvml_free); NULL: GPUs are known only from what processes
     * report. */
    int (*gpus)(struct gp_nvml_gpu **gpus, int *count, char problem[GP_NVML_PROBLEM_BYTES]);
    void *arg;
    /* Reads the sessions of these processes; freed by gp_system_free. 0 or -errno. NULL: owners of
     * memory are not known. */
    int (*sessions)(const pid_t *pids, int count, struct gp_system **out);
    /* Fills *out, which is -1 everywhere before the call. NULL: all unknown. */
    void (*agent)(void *arg, struct gp_metrics_agent *out);
    void *agent_arg;
};

enum gp_metrics_format { GP_METRICS_TEXT, GP_METRICS_OPENMETRICS };
const char *gp_metrics_content_type(enum gp_metrics_format format);
/* The format that a request's Accept header (NULL: none) prefers. */
enum gp_metrics_format gp_metrics_negotiate(const char *accept);

struct gp_metrics;
/* Strings and the source's arg must outlive it. 0, -EINVAL (series below the minimum), -ENOMEM. */
int gp_metrics_open(struct gp_metrics **out, const struct gp_metrics_options *options,
                    const struct gp_metrics_source *source);
void gp_metrics_close(struct gp_metrics *metrics);

/* Writes the page into malloc'ed memory. If the source cannot be read, the page has only the
 * agent's own families, one of which reports it. 0, -ENOMEM. */
int gp_metrics_render(struct gp_metrics *metrics, enum gp_metrics_format format, char **text, size_t *bytes);
/* Whether the agent works: the maps can be read and have a recent heartbeat. If false, a sentence
 * in why. */
bool gp_metrics_healthy(struct gp_metrics *metrics, char *why, size_t why_bytes);

/* ==== the server ================================================================================================== */
/* The agent's small web server, over libmicrohttpd: /metrics, /healthz and a page that links them.
 * It runs on its own thread, the only one that uses the metrics. No TLS and no passwords: see
 * docs/metrics.md. */

#define GP_HTTP_PORT 9949 /* unused in Prometheus's list of default ports; used in the documentation */

/* Enough for a handful of servers and users at a time; each connection costs
 * GP_HTTP_CONNECTION_BYTES and a descriptor. */
#define GP_HTTP_CONNECTIONS      64u
#define GP_HTTP_CONNECTION_BYTES (16u << 10) /* request line and headers: a browser sends 2 KiB */
/* From the connect to the last byte of the answer. Prometheus also gives up after 10 s. */
#define GP_HTTP_DEADLINE_NS 10000000000ull
/* The same once most connections are taken, so that idle clients do not keep others out. */
#define GP_HTTP_CROWDED             (GP_HTTP_CONNECTIONS * 3 / 4)
#define GP_HTTP_CROWDED_DEADLINE_NS 1000000000ull

struct gp_http_address {
    struct sockaddr_storage address;
    socklen_t bytes;
};

/* Parses "ADDR:PORT", "[ADDR]:PORT", ":PORT" (every address) or "PORT" (127.0.0.1 only). 0, or
 * -EINVAL with a sentence. */
int gp_http_parse(const char *text, struct gp_http_address *out, char *why, size_t why_bytes);

struct gp_http;
/* Starts the server; until gp_http_stop only it may use the metrics. 0, or -errno with a sentence. */
int gp_http_start(struct gp_http **out, const struct gp_http_address *address, struct gp_metrics *metrics, char *why,
                  size_t why_bytes);
void gp_http_stop(struct gp_http *http);
/* The port that it listens on; for port 0, the one that the kernel chose. */
unsigned gp_http_port(const struct gp_http *http);

#endif
