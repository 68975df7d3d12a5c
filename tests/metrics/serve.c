/* SPDX-License-Identifier: MIT
 * serve.c: serves the metrics of a simulated machine until its stdin ends, for tests that need a real scraper.
 *
 *      serve [off|comm|pid]    prints "port N"; then reads lines: "set PID BYTES", "end PID", "fail N",
 *                              "beat", and answers "ok" to each
 */
#include <agent/metrics/metrics.h>
#include <lib/fakeview.h>

#include <base/clock.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The server's thread reads the machine while lines change it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int read_locked(void *machine, struct gp_system_view **out, char *why, size_t why_bytes)
{
    pthread_mutex_lock(&lock);
    int rc = gp_fake_read(machine, out, why, why_bytes);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int gpus(struct gp_nvml_gpu **out, int *count, char problem[GP_NVML_PROBLEM_BYTES])
{
    (void)problem;
    struct gp_nvml_gpu *all = calloc(2, sizeof(*all));
    for (int i = 0; all && i < 2; i++) {
        snprintf(all[i].uuid, sizeof(all[i].uuid), "GPU-00111111-1111-1111-1111-1111111111%02x", i);
        snprintf(all[i].name, sizeof(all[i].name), "NVIDIA \"Made Up\" \\%d", i);
        all[i].total_bytes = 80ll << 30;
        all[i].used_bytes = 30ll << 30;
    }
    *out = all;
    *count = 2;
    return all ? 0 : -1;
}

static void obey(struct gp_fake_machine *machine, const char *line)
{
    uint32_t pid = 0;
    long long value = 0;
    if (strncmp(line, "beat", 4) == 0)
        machine->dead = !machine->dead;
    if (sscanf(line, "fail %lld", &value) == 1)
        machine->error = (int)-value;
    for (uint32_t i = 0; i < machine->count; i++) {
        struct gp_fake_process *p = &machine->processes[i];
        if (sscanf(line, "set %u %lld", &pid, &value) == 2 && p->tgid == pid) {
            p->allocated = p->reserved = value;
            p->calls += 100;
        } else if (sscanf(line, "end %u", &pid) == 1 && p->tgid == pid) {
            machine->past[machine->past_count++] = *p;
            *p = machine->processes[--machine->count];
            return;
        }
    }
}

int main(int argc, char **argv)
{
    struct gp_fake_machine machine = {.meta = {.batches = 100, .events = 20000, .ring_dropped = 3, .heartbeat_ns = 1}};
    struct gp_metrics_options options = {.root = "/nonexistent", .version = "0.0.0"};
    struct gp_metrics_source source = {.read = read_locked, .free = gp_fake_free, .gpus = gpus, .arg = &machine};
    struct gp_http_address address;
    struct gp_metrics *metrics;
    struct gp_http *http;
    char why[256], line[256];
    machine.meta.heartbeat_ns = gp_clock_ns();
    gp_fake_add(&machine, 10, 100, 0, 3ll << 30, 4ll << 30, "train");
    gp_fake_add(&machine, 11, 100, 1, 3ll << 30, 4ll << 30, "train");
    gp_fake_add(&machine, 12, 101, 0, 1ll << 30, 2ll << 30, "a\"b\\c \xc3\xa9");
    if (argc > 1 && gp_metrics_processes_parse(argv[1], &options.processes) != 0)
        return 2;
    if (gp_metrics_open(&metrics, &options, &source) != 0 || gp_http_parse("0", &address, why, sizeof(why)) != 0 ||
        gp_http_start(&http, &address, metrics, why, sizeof(why)) != 0)
        return 1;
    printf("port %u\n", gp_http_port(http));
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        pthread_mutex_lock(&lock);
        obey(&machine, line);
        pthread_mutex_unlock(&lock);
        puts("ok");
        fflush(stdout);
    }
    gp_http_stop(http);
    gp_metrics_close(metrics);
    free(machine.processes);
    return 0;
}
