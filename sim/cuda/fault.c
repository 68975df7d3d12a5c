/* SPDX-License-Identifier: MIT
 * The fault script: which call of which entry point fails or is slow.
 * One rule per line (or ';'):  NAME|* COUNT[+] fail CURESULT   |   NAME|* COUNT[+] delay NUMBER(us|ms|s)
 *   cuMemAlloc_v2 3 fail 2      the third call fails        cuMemAlloc_v2 3+ fail 2     every call from the third on
 *   * 17 fail 2                 the 17th counted call of all  cuMemFree_v2 1 delay 5ms    a real sleep before the call
 * `*` counts every entry point but those of bootstrap and lookup (cuInit, cuGetProcAddress, cuGetExportTable,
 * cuDriverGetVersion, cuGetError*): their number depends on the way a program finds the driver.
 * Read in cuInit from the file of `faults=` and from GPUPROF_SIM_FAULTS; consulted by every call, without the lock. */
#define _GNU_SOURCE
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIM_RULES 256 /* a script longer than this is refused, not cut */

struct sim_rule {
    char name[64];
    uint64_t count;
    bool onwards;
    CUresult fail;  /* 0: a delay */
    uint64_t delay; /* ns */
    uint64_t seen;  /* calls so far, atomic */
};
static struct sim_rule sim_rules[SIM_RULES];
static int sim_rule_count;
int sim_fault_active;

static int sim_rule_delay(const char *text, uint64_t *ns)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    uint64_t unit = !strcmp(end, "ns")   ? 1
                    : !strcmp(end, "us") ? 1000
                    : !strcmp(end, "ms") ? 1000000
                    : !strcmp(end, "s")  ? 1000000000
                                         : 0;
    if (end == text || unit == 0 || value == 0)
        return -EINVAL;
    *ns = value * unit;
    return 0;
}

static int sim_rule_read(const char *line)
{
    struct sim_rule rule = {0};
    char count[32], verb[16], value[32], rest;
    int fields = sscanf(line, "%63s %31s %15s %31s %c", rule.name, count, verb, value, &rest);
    if (fields < 1 || *rule.name == '#')
        return 0;
    char *end;
    rule.count = strtoull(count, &end, 10);
    rule.onwards = *end == '+';
    if (fields != 4 || rule.count == 0 || end[rule.onwards] != 0 || sim_rule_count == SIM_RULES)
        return -EINVAL;
    if (!strcmp(verb, "fail")) {
        rule.fail = (CUresult)strtoul(value, &end, 10);
        if (*end || rule.fail == CUDA_SUCCESS)
            return -EINVAL;
    } else if (strcmp(verb, "delay") || sim_rule_delay(value, &rule.delay) != 0) {
        return -EINVAL;
    }
    sim_rules[sim_rule_count++] = rule;
    return 0;
}

static int sim_rules_read(const char *origin, const char *text)
{
    char *copy = strdup(text), *state = NULL;
    if (!copy)
        return -ENOMEM;
    int error = 0;
    for (char *line = strtok_r(copy, ";\n", &state); line && !error; line = strtok_r(NULL, ";\n", &state)) {
        error = sim_rule_read(line);
        if (error)
            fprintf(stderr,
                    "gpuprof: sim: %s: \"%s\": not a fault; write e.g. \"cuMemAlloc_v2 3 fail 2\" or \"cuMemFree_v2 1+ "
                    "delay 5ms\", at most %d of them\n",
                    origin, line, SIM_RULES);
    }
    free(copy);
    return error;
}

static int sim_rules_file(const char *path)
{
    static char text[65536]; /* SIM_RULES lines of ~100 characters fit twice */
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "gpuprof: sim: faults=%s: %s; name a readable file\n", path, strerror(errno));
        return -errno;
    }
    size_t length = fread(text, 1, sizeof text - 1, file);
    bool whole = feof(file);
    fclose(file);
    text[length] = 0;
    if (!whole) {
        fprintf(stderr, "gpuprof: sim: faults=%s: longer than %zu bytes; split it\n", path, sizeof text - 1);
        return -EFBIG;
    }
    return sim_rules_read(path, text);
}

int sim_fault_load(void)
{
    sim_rule_count = 0;
    const char *inline_rules = secure_getenv("GPUPROF_SIM_FAULTS");
    int error = *sim_spec.faults ? sim_rules_file(sim_spec.faults) : 0;
    if (!error && inline_rules)
        error = sim_rules_read("GPUPROF_SIM_FAULTS", inline_rules);
    __atomic_store_n(&sim_fault_active, !error && sim_rule_count > 0, __ATOMIC_RELAXED);
    return error;
}

static bool sim_fault_exempt(const struct sim_entry *entry)
{
    return entry->flags & SIM_ENTRY_EARLY;
}

CUresult sim_fault_check(const struct sim_entry *entry)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < sim_rule_count; i++) {
        struct sim_rule *rule = &sim_rules[i];
        bool any = rule->name[0] == '*' && !rule->name[1];
        if (any ? sim_fault_exempt(entry) : strcmp(rule->name, entry->name) != 0)
            continue;
        uint64_t seen = __atomic_add_fetch(&rule->seen, 1, __ATOMIC_RELAXED);
        if (seen < rule->count || (seen > rule->count && !rule->onwards))
            continue;
        if (rule->delay) {
            struct timespec time = {(time_t)(rule->delay / 1000000000), (long)(rule->delay % 1000000000)};
            while (nanosleep(&time, &time) != 0 && errno == EINTR)
                continue;
        } else if (result == CUDA_SUCCESS) {
            result = rule->fail;
        }
    }
    return result;
}
