/* SPDX-License-Identifier: MIT
 * GPUPROF_SIM: devices=2,gpu=NAME,memory=16GiB,limit=4GiB,latency=zero|typical,contents=keep|none,fill=zeros|random,
 * reset=keep|pools,capture=real|strict,shared[=NAME],node=RANKS,faults=FILE.
 * capture=strict: relaxed mode excuses no thread but the capturing one, as if cuThreadExchangeStreamCaptureMode had no effect
 * elsewhere.
 * reset=pools: pools do not outlive the primary context of their device, and a call with such a pool aborts.
 * GPUPROF_SIM_MACHINE: any text, the same for the processes of one machine: its GPUs have UUIDs of their own.  Without
 * it, devices that are shared have those of their name.
 * node: how many ranks of the job share a node, for libraries that communicate (machine.h).
 * limit: what one process may take of each device, as a driver of CUDA 13.4 enforces it for a cgroup.
 * Read by cuInit, and before it when another library asks (machine.c).  A value that it cannot read is reported on stderr and cuInit fails. */
#define _GNU_SOURCE
#include "sim.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

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

/* Bytes of a unit in any case: "" and B; K, Ki, KiB to T, Ti, TiB (powers of two); KB to TB (powers of ten).  0: none. */
static uint64_t sim_size_unit(const char *unit)
{
    static const char letters[] = "KMGT";
    uint64_t decimal = 1000;
    if (!*unit || !strcasecmp(unit, "B"))
        return 1;
    for (int i = 0; letters[i]; i++, decimal *= 1000)
        if (letters[i] == toupper((unsigned char)*unit)) {
            if (!unit[1] || !strcasecmp(unit + 1, "i") || !strcasecmp(unit + 1, "iB"))
                return UINT64_C(1) << 10 * (i + 1);
            return strcasecmp(unit + 1, "B") ? 0 : decimal;
        }
    return 0;
}

/* "16GiB", "7.5 GiB", "8GB": what is less than a byte is left out. */
static int sim_size_read(const char *text, uint64_t *size)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || errno)
        return -EINVAL;
    const char *fraction = *end == '.' ? end + 1 : end, *unit = fraction;
    while (unit > end && isdigit((unsigned char)*unit))
        unit++;
    if (unit == fraction && unit > end)
        return -EINVAL;
    const char *tens = unit;
    unsigned long exponent = 0;
    if (tolower((unsigned char)*unit) == 'e' && isdigit((unsigned char)unit[1])) /* 16e9 */
        exponent = strtoul(unit + 1, (char **)&tens, 10);
    uint64_t one = exponent > 15 ? 0 : sim_size_unit(tens + strspn(tens, " "));
    uint64_t part = 0;
    for (; one && exponent; exponent--)
        one = one > UINT64_MAX / 100 ? 0 : one * 10;
    if (!one || value > UINT64_MAX / one - 1)
        return -EINVAL;
    for (const char *digit = unit; digit > fraction; digit--) /* each place is a tenth of the one before it */
        part = ((uint64_t)(digit[-1] - '0') * one + part) / 10;
    *size = value * one + part;
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
            return sim_spec_bad(item, "no one GPU of that name; 'gpuprof run --sim=gpu=list' shows the names");
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

/* FNV-1a. */
static uint64_t sim_spec_hash(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t sim_spec_machine(void)
{
    const char *machine = secure_getenv("GPUPROF_SIM_MACHINE");
    const uint64_t begin = UINT64_C(0xcbf29ce484222325);
    char user[16];
    if (machine && *machine)
        return sim_spec_hash(begin, machine);
    snprintf(user, sizeof user, "%u ", (unsigned)geteuid());
    return sim_spec.shared[0] ? sim_spec_hash(sim_spec_hash(begin, user), sim_spec.shared) : 0;
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
    sim_spec.machine = sim_spec_machine();
    return error;
}
