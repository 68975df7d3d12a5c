/* SPDX-License-Identifier: MIT
 *
 * http.c: see metrics.h. libmicrohttpd reads and writes, and this thread runs its loop. Only so can a
 * whole request have a deadline: the library's own timeout restarts with every byte, so a client
 * that sends a byte now and then would never time out. One connection carries one request.
 */
#include <agent/metrics/metrics.h>

#include <arpa/inet.h>
#include <base/clock.h>
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <read/common/parse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A page is rendered at most this often; requests in between get the last one. The shortest
 * interval in use is 1 s. */
#define GP_HTTP_FRESH_NS 250000000ull

struct gp_http_slot {
    struct MHD_Connection *connection; /* NULL: free */
    uint64_t since_ns;
    bool shut;
};

struct gp_http_page { /* the last page in one format */
    struct MHD_Response *response;
    uint64_t made_ns;
};

struct gp_http {
    struct MHD_Daemon *daemon;
    struct gp_metrics *metrics;
    unsigned port, used;
    int stop; /* eventfd */
    pthread_t thread;
    struct gp_http_slot slots[GP_HTTP_CONNECTIONS];
    struct gp_http_page pages[2]; /* by enum gp_metrics_format */
};

/* ---- where to listen --------------------------------------------------------------------------------------------- */

int gp_http_parse(const char *text, struct gp_http_address *out, char *why, size_t why_bytes)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    const char *digits = colon ? colon + 1 : text;
    size_t n = colon ? (size_t)(colon - text) : 0;
    int64_t port;
    memset(out, 0, sizeof(*out));
    if (gp_parse_number(digits, 0, 65535, &port) != 0 || n >= sizeof(host)) {
        snprintf(why, why_bytes, "'%s' is not ADDR:PORT, [ADDR]:PORT, :PORT or PORT", text);
        return -EINVAL;
    }
    memcpy(host, text, n);
    host[n] = '\0';
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out->address;
    bool bracket = n > 2 && host[0] == '[' && host[n - 1] == ']';
    if (bracket)
        host[n - 1] = '\0';
    if (bracket ? inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1 : colon && n == 0) {
        /* Every address: an IPv6 socket also accepts IPv4. */
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        out->bytes = sizeof(*v6);
        return 0;
    }
    if (!bracket && inet_pton(AF_INET, colon ? host : "127.0.0.1", &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        out->bytes = sizeof(*v4);
        return 0;
    }
    snprintf(why, why_bytes,
             "'%s' is not a numeric address (host names are not supported); examples: 127.0.0.1:%d, [::1]:%d", host,
             GP_HTTP_PORT, GP_HTTP_PORT);
    return -EINVAL;
}

/* Opens a listening socket and stores its port in *port. -errno. */
static int http_listen(const struct gp_http_address *address, unsigned *port)
{
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof(bound);
    int one = 1, zero = 0;
    int family = address->address.ss_family;
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_port = ((const struct sockaddr_in6 *)&address->address)->sin6_port};
    const struct sockaddr *to = (const struct sockaddr *)&address->address;
    socklen_t to_bytes = address->bytes;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool every = family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)to)->sin6_addr);
    if (fd < 0 && errno == EAFNOSUPPORT && every) { /* a kernel without IPv6 */
        to = (const struct sockaddr *)&any;
        to_bytes = sizeof(any);
        family = AF_INET;
        fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, to, to_bytes) != 0 || listen(fd, GP_HTTP_CONNECTIONS) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &bytes) != 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    /* The port is at the same offset in both address types. */
    *port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
    return fd;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static const char http_landing[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>gpuprof</title></head><body>\n"
    "<h1>gpuprof</h1>\n<p>GPU memory of this machine, by device, container and process.</p>\n"
    "<ul><li><a href=\"/metrics\">/metrics</a>: for Prometheus</li>\n"
    "<li><a href=\"/healthz\">/healthz</a>: whether the agent works</li></ul>\n</body></html>\n";

/* Adds the headers of every answer; NULL stays NULL. */
static struct MHD_Response *http_add_headers(struct MHD_Response *response, const char *type)
{
    if (!response)
        return NULL;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    return response;
}

static enum MHD_Result http_send(struct MHD_Connection *connection, unsigned status, const char *type, const char *text)
{
    struct MHD_Response *response = http_add_headers(
        MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY), type);
    if (!response)
        return MHD_NO;
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result done = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return done;
}

/* All requests within GP_HTTP_FRESH_NS share one page: a response counts its users. */
static enum MHD_Result http_metrics(struct gp_http *http, struct MHD_Connection *connection)
{
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    enum gp_metrics_format format = gp_metrics_negotiate(accept);
    struct gp_http_page *page = &http->pages[format];
    uint64_t now = gp_clock_ns();
    if (!page->response || now - page->made_ns > GP_HTTP_FRESH_NS) {
        char *text;
        size_t bytes;
        if (gp_metrics_render(http->metrics, format, &text, &bytes) != 0)
            return http_send(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "text/plain", "out of memory\n");
        struct MHD_Response *made = http_add_headers(
            MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE), gp_metrics_content_type(format));
        if (!made) {
            free(text);
            return http_send(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "text/plain", "out of memory\n");
        }
        MHD_add_response_header(made, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ACCEPT);
        if (page->response)
            MHD_destroy_response(page->response);
        page->response = made;
        page->made_ns = gp_clock_ns();
    }
    return MHD_queue_response(connection, MHD_HTTP_OK, page->response);
}

static enum MHD_Result http_answer(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                   const char *version, const char *body, size_t *body_bytes, void **state)
{
    struct gp_http *http = arg;
    static const char plain[] = "text/plain; charset=utf-8";
    char why[256], text[300];
    (void)version;
    (void)body;
    (void)state;
    *body_bytes = 0; /* request bodies are ignored; the connection ends with the answer */
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return http_send(connection, MHD_HTTP_METHOD_NOT_ALLOWED, plain, "only GET and HEAD are allowed\n");
    if (strcmp(url, "/metrics") == 0)
        return http_metrics(http, connection);
    if (strcmp(url, "/healthz") == 0) {
        if (gp_metrics_healthy(http->metrics, why, sizeof(why)))
            return http_send(connection, MHD_HTTP_OK, plain, "ok\n");
        snprintf(text, sizeof(text), "%s\n", why);
        return http_send(connection, MHD_HTTP_SERVICE_UNAVAILABLE, plain, text);
    }
    if (strcmp(url, "/") == 0)
        return http_send(connection, MHD_HTTP_OK, "text/html; charset=utf-8", http_landing);
    return http_send(connection, MHD_HTTP_NOT_FOUND, plain, "not found: see /\n");
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static void http_notify(void *arg, struct MHD_Connection *connection, void **socket_state,
                        enum MHD_ConnectionNotificationCode code)
{
    struct gp_http *http = arg;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        for (unsigned i = 0; i < GP_HTTP_CONNECTIONS; i++) {
            if (http->slots[i].connection)
                continue;
            http->slots[i] = (struct gp_http_slot){.connection = connection, .since_ns = gp_clock_ns()};
            *socket_state = &http->slots[i];
            http->used++;
            return;
        }
        return;
    }
    struct gp_http_slot *slot = *socket_state;
    if (slot) {
        slot->connection = NULL;
        http->used--;
    }
}

/* Ends connections that took too long. The library sees a closed socket and cleans up in its next
 * round. */
static void http_sweep(struct gp_http *http)
{
    uint64_t now = gp_clock_ns();
    uint64_t deadline = http->used >= GP_HTTP_CROWDED ? GP_HTTP_CROWDED_DEADLINE_NS : GP_HTTP_DEADLINE_NS;
    for (unsigned i = 0; http->used && i < GP_HTTP_CONNECTIONS; i++) {
        struct gp_http_slot *slot = &http->slots[i];
        if (!slot->connection || slot->shut || now - slot->since_ns < deadline)
            continue;
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(slot->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        slot->shut = true;
        if (info)
            shutdown(info->connect_fd, SHUT_RDWR);
    }
}

static void *http_loop(void *arg)
{
    struct gp_http *http = arg;
    pthread_setname_np(pthread_self(), "gpuprof-http");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd fds[2] = {{.fd = http->stop, .events = POLLIN}, {.fd = info->epoll_fd, .events = POLLIN}};
    bool again = false;
    while (!(fds[0].revents & POLLIN)) {
        MHD_UNSIGNED_LONG_LONG ms;
        /* When idle, it waits for a client without a timeout. At its connection limit the library
         * stops listening, and listens again only in the round after one in which connections
         * ended; no event triggers that round. */
        int wait = again ? 0 : http->used ? 100 : -1;
        if (MHD_get_timeout(http->daemon, &ms) == MHD_YES && (wait < 0 || ms < (MHD_UNSIGNED_LONG_LONG)wait))
            wait = ms < 1000 ? (int)ms : 1000;
        if (poll(fds, 2, wait) < 0 && errno != EINTR)
            break;
        http_sweep(http);
        unsigned before = http->used;
        MHD_run(http->daemon);
        again = http->used < before;
    }
    return NULL;
}

static struct MHD_Daemon *http_daemon(struct gp_http *http, int fd)
{
    /* Its own messages would go to stderr, for clients that disconnected. */
    return MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, http_answer, http, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)GP_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)GP_HTTP_CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(GP_HTTP_DEADLINE_NS / 1000000000u),
        MHD_OPTION_NOTIFY_CONNECTION, http_notify, http, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
}

static int http_thread(struct gp_http *http)
{
    /* The agent's main thread handles signals. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(&http->thread, NULL, http_loop, http);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

int gp_http_start(struct gp_http **out, const struct gp_http_address *address, struct gp_metrics *metrics, char *why,
                  size_t why_bytes)
{
    struct gp_http *http = calloc(1, sizeof(*http));
    int rc = -ENOMEM, fd = -1;
    if (!http) {
        snprintf(why, why_bytes, "out of memory");
        return rc;
    }
    http->metrics = metrics;
    http->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fd = http->stop < 0 ? -errno : http_listen(address, &http->port);
    if (fd < 0) {
        rc = fd;
        snprintf(why, why_bytes, "cannot listen: %s", strerror(-rc));
        goto undo_stop;
    }
    http->daemon = http_daemon(http, fd);
    if (!http->daemon) {
        snprintf(why, why_bytes, "cannot start libmicrohttpd");
        close(fd);
        goto undo_stop;
    }
    rc = http_thread(http);
    if (rc != 0) {
        snprintf(why, why_bytes, "cannot create a thread: %s", strerror(-rc));
        MHD_stop_daemon(http->daemon);
        goto undo_stop;
    }
    *out = http;
    return 0;
undo_stop:
    if (http->stop >= 0)
        close(http->stop);
    free(http);
    return rc;
}

void gp_http_stop(struct gp_http *http)
{
    if (!http)
        return;
    eventfd_write(http->stop, 1);
    pthread_join(http->thread, NULL);
    MHD_stop_daemon(http->daemon);
    for (int i = 0; i < 2; i++) {
        if (http->pages[i].response)
            MHD_destroy_response(http->pages[i].response);
    }
    close(http->stop);
    free(http);
}

unsigned gp_http_port(const struct gp_http *http)
{
    return http->port;
}
