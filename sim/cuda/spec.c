/* SPDX-License-Identifier: MIT
 * GPUPROF_SIM: devices=2,gpu=NAME,memory=16GiB,limit=4GiB,latency=zero|typical,contents=keep|none,fill=zeros|random,
 * reset=keep|pools,capture=real|strict,shared[=NAME],node=RANKS,faults=FILE.
 * capture=strict: relaxed mode excuses no thread but the capturing one, as if cuThreadExchangeStreamCaptureMode had no effect
 * elsewhere.
 * reset=pools: pools do not outlive the primary context of their device, and a call with such a pool aborts.
 * node: how many ranks of the job share a node, for libraries that communicate (machine.h).
 * limit: what one process may take of each device, as a driver of CUDA 13.4 enforces it for a cgroup.
 * Read by cuInit, and before it when another library asks (machine.c).  A value that it cannot read is reported on stderr and cuInit fails. */
#define _GNU_SOURCE
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIM_SHARED_NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

#define SIM_MAX_NODE 65536 /* ranks */

struct sim_spec sim_spec = {.devices = 1};

static int sim_spec_bad(const char *item, const char *why)
{
    fprintf(stderr,
            "gpuprof: sim: GPUPROF_SIM: \"%s\": %s; it takes "
            "devices=1..%d,gpu=NAME,memory=SIZE,limit=SIZE,latency=zero|typical,"
            "contents=keep|none,fill=zeros|random,reset=keep|pools,capture=real|strict,shared[=NAME],node=RANKS,"
            "faults=FILE\n",
            item, why, SIM_MAX_DEVICES);
    return -EINVAL;
}

/* B, KiB..TiB or K..T, powers of two. */
static int sim_size_read(const char *text, uint64_t *size)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || errno || *text == '-')
        return -EINVAL;
    int shift = 0;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        shift = 10 * (int)(unit - units + 1);
        end++;
        if (!strcmp(end, "iB"))
            end += 2;
    } else if (!strcmp(end, "B")) {
        end++;
    }
    if (*end || value > UINT64_MAX >> shift)
        return -EINVAL;
    *size = (uint64_t)value << shift;
    return 0;
}

static int sim_spec_item(char *item)
{
    char *value = strchr(item, '=');
    if (!strcmp(item, "shared")) {
        strcpy(sim_spec.shared, "default");
        return 0;
    }
    if (!value)
        return sim_spec_bad(item, "no value");
    size_t key = (size_t)(value++ - item);
    char *end;
    if (key == 7 && !strncmp(item, "devices", key)) {
        long count = strtol(value, &end, 10);
        if (end == value || *end || count < 1 || count > SIM_MAX_DEVICES)
            return sim_spec_bad(item, "not a number of devices");
        sim_spec.devices = (int)count;
    } else if (key == 6 && !strncmp(item, "memory", key)) {
        /* A few 2 MiB pages must remain after the context's share; 1 TiB is beyond any device of
         * today. */
        if (sim_size_read(value, &sim_spec.memory) != 0 || sim_spec.memory < 64 * SIM_MIB ||
            sim_spec.memory > 1024 * SIM_GIB)
            return sim_spec_bad(item, "not a size between 64MiB and 1TiB");
    } else if (key == 5 && !strncmp(item, "limit", key)) {
        if (sim_size_read(value, &sim_spec.limit) != 0 || sim_spec.limit < 64 * SIM_MIB)
            return sim_spec_bad(item, "not a size of at least 64MiB");
    } else if (key == 7 && !strncmp(item, "latency", key)) {
        if (strcmp(value, "zero") && strcmp(value, "typical"))
            return sim_spec_bad(item, "neither zero nor typical");
        sim_spec.latency = !strcmp(value, "typical");
    } else if (key == 3 && !strncmp(item, "gpu", key)) {
        sim_spec.gpu = sim_gpu_find(value);
        if (!sim_spec.gpu)
            return sim_spec_bad(item, "no GPU of that name; 'gpuprof run --sim=gpu=list' shows the names");
    } else if (key == 6 && !strncmp(item, "shared", key)) {
        if (!*value || strlen(value) >= sizeof sim_spec.shared || value[strspn(value, SIM_SHARED_NAME)])
            return sim_spec_bad(item, "not a name of 1 to 32 letters, digits, - and _");
        strcpy(sim_spec.shared, value);
    } else if (key == 8 && !strncmp(item, "contents", key)) {
        if (strcmp(value, "keep") && strcmp(value, "none"))
            return sim_spec_bad(item, "neither keep nor none");
        sim_spec.dropped = !strcmp(value, "none");
    } else if (key == 4 && !strncmp(item, "fill", key)) {
        if (strcmp(value, "zeros") && strcmp(value, "random"))
            return sim_spec_bad(item, "neither zeros nor random");
        sim_spec.filled = !strcmp(value, "random");
    } else if (key == 7 && !strncmp(item, "capture", key)) {
        if (strcmp(value, "real") && strcmp(value, "strict"))
            return sim_spec_bad(item, "neither real nor strict");
        sim_spec.capture_strict = !strcmp(value, "strict");
    } else if (key == 5 && !strncmp(item, "reset", key)) {
        if (strcmp(value, "keep") && strcmp(value, "pools"))
            return sim_spec_bad(item, "neither keep nor pools");
        sim_spec.reset_pools = !strcmp(value, "pools");
    } else if (key == 4 && !strncmp(item, "node", key)) {
        long ranks = strtol(value, &end, 10);
        if (end == value || *end || ranks < 1 || ranks > SIM_MAX_NODE)
            return sim_spec_bad(item, "not a number of ranks");
        sim_spec.node = (int)ranks;
    } else if (key == 6 && !strncmp(item, "faults", key)) {
        if (strlen(value) >= sizeof sim_spec.faults)
            return sim_spec_bad(item, "path too long");
        strcpy(sim_spec.faults, value);
    } else {
        return sim_spec_bad(item, "unknown key");
    }
    return 0;
}

int sim_spec_read(void)
{
    const char *text = secure_getenv("GPUPROF_SIM");
    char *copy = strdup(text ? text : "");
    if (!copy)
        return -ENOMEM;
    sim_spec = (struct sim_spec){.devices = 1, .gpu = sim_gpu_default()};
    int error = 0;
    char *state = NULL;
    for (char *item = strtok_r(copy, ",", &state); item && !error; item = strtok_r(NULL, ",", &state))
        error = sim_spec_item(item);
    free(copy);
    if (!error && sim_spec.filled && !sim_spec.dropped)
        error = sim_spec_bad("fill=random", "needs contents=none");
    if (!error && !sim_spec.memory)
        sim_spec.memory = sim_spec.gpu->memory;
    return error;
}
