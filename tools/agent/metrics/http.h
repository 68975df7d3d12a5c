/* SPDX-License-Identifier: MIT
 *
 * http.h: the agent's small web server, over libmicrohttpd: /metrics, /healthz and a page that
 * links them. It runs on its own thread, the only one that uses the metrics. No TLS and no
 * passwords: see docs/metrics.md.
 */
#ifndef GP_METRICS_HTTP_H
#define GP_METRICS_HTTP_H

#include <agent/metrics/metrics.h>

#include <sys/socket.h>

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
