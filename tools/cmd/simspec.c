/* SPDX-License-Identifier: MIT
 * simspec.c: the value of --sim, checked before a program starts, and the list of GPUs by name.  The
 * simulator has the list: a function of its driver returns it as text. */
#include <cmd/cmd.h>

#include <dlfcn.h>
#include <errno.h>
#include <show/text/write.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SIMSPEC_LEDGER "GPUPROF_SIM_LEDGER"
#define SIMSPEC_NAME   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

/* A line of the list. */
struct simspec_gpu {
    char *key, *name, *capability, *multiprocessors, *memory, *known, *l2, *bandwidth;
};

/* The next line of *rest, which is cut into its fields.  False: no more. */
static bool simspec_next(char **rest, struct simspec_gpu *gpu)
{
    char **const fields[] = {&gpu->key,    &gpu->name,  &gpu->capability, &gpu->multiprocessors,
                             &gpu->memory, &gpu->known, &gpu->l2,         &gpu->bandwidth};
    char *line = strsep(rest, "\n");
    for (size_t i = 0; i < GP_COUNT(fields); i++) {
        *fields[i] = strsep(&line, "\t");
        if (!*fields[i])
            return false;
    }
    return true;
}

/* A copy of the list, to be freed; NULL after a message. */
static char *simspec_table(const char *command, const char *driver)
{
    /* The driver writes its ledger when it is unloaded; that of this process would be in the way. */
    char *ledger = getenv(SIMSPEC_LEDGER), *table = NULL;
    if (ledger && !(ledger = strdup(ledger)))
        return NULL;
    unsetenv(SIMSPEC_LEDGER);
    void *library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    const char *(*list)(void) = NULL;
    if (library)
        *(void **)&list = dlsym(library, "sim_gpu_table");
    if (list)
        table = strdup(list());
    else
        gp_error(command, "%s has no list of GPUs: install the simulated GPU that belongs to this gpuprof", driver);
    if (library)
        dlclose(library);
    if (ledger)
        setenv(SIMSPEC_LEDGER, ledger, 1);
    free(ledger);
    return table;
}

static int spec_gpu(const char *command, const char *name, const char *driver)
{
    struct simspec_gpu gpu;
    char *table = simspec_table(command, driver), *rest = table;
    bool found = false;
    if (!table)
        return GP_EXIT_FAILED;
    while (!found && simspec_next(&rest, &gpu))
        found = strcasecmp(gpu.key, name) == 0 || strcasecmp(gpu.name, name) == 0;
    free(table);
    return found ? GP_EXIT_OK
                 : gp_usage_error(command, "--sim: gpu=%s: no GPU of that name; --sim=gpu=list shows the names", name);
}

int gp_simspec_list(const char *command, const char *driver)
{
    struct simspec_gpu gpu;
    char text[GP_SIZE_TEXT];
    char *table = simspec_table(command, driver), *rest = table;
    if (!table)
        return GP_EXIT_FAILED;
    printf("%-15s %-45s %10s %4s %11s %14s  %-8s %9s\n", "NAME", "DEVICE", "CAPABILITY", "SMS", "MEMORY", "BYTES",
           "KNOWN", "GB/S");
    while (simspec_next(&rest, &gpu))
        printf("%-15s %-45s %10s %4s %11s %14s  %-8s %9lld\n", gpu.key, gpu.name, gpu.capability, gpu.multiprocessors,
               gp_size_text(text, atoll(gpu.memory)), gpu.memory, gpu.known, atoll(gpu.bandwidth) / 1000000000);
    free(table);
    return GP_EXIT_OK;
}

int gp_simspec_gpus(const char *command, const char *driver, struct gp_sim_gpu **gpus, uint32_t *count)
{
    struct simspec_gpu gpu;
    char *table = simspec_table(command, driver), *rest = table;
    size_t lines = 1;
    *count = 0;
    for (const char *at = table; at && *at; at++)
        lines += *at == '\n';
    *gpus = calloc(lines, sizeof(**gpus));
    while (table && *gpus && simspec_next(&rest, &gpu)) {
        struct gp_sim_gpu *one = &(*gpus)[(*count)++];
        snprintf(one->key, sizeof(one->key), "%s", gpu.key);
        snprintf(one->name, sizeof(one->name), "%s", gpu.name);
        snprintf(one->capability, sizeof(one->capability), "%s", gpu.capability);
        one->total_bytes = atoll(gpu.memory);
    }
    free(table);
    if (table && *gpus)
        return GP_EXIT_OK;
    free(*gpus);
    *gpus = NULL;
    return GP_EXIT_FAILED;
}

static int spec_word(const char *command, const char *key, const char *value, const char *driver)
{
    int64_t number;
    if (strcmp(key, "devices") == 0 && gp_parse_number(value, 1, GP_WIRE_GPUS, &number) != 0)
        return gp_usage_error(command, "--sim: devices=%s: from 1 to %u", value, GP_WIRE_GPUS);
    if ((strcmp(key, "memory") == 0 || strcmp(key, "limit") == 0) &&
        (gp_size_parse(value, &number) != 0 || number <= 0))
        return gp_usage_error(command, "--sim: %s=%s: not a size (like 512MiB or 16GiB), or out of range", key, value);
    if (strcmp(key, "gpu") == 0)
        return spec_gpu(command, value, driver);
    if (strcmp(key, "latency") == 0 && strcmp(value, "zero") != 0 && strcmp(value, "typical") != 0)
        return gp_usage_error(command, "--sim: latency=%s: zero or typical", value);
    if (strcmp(key, "contents") == 0 && strcmp(value, "keep") != 0 && strcmp(value, "none") != 0)
        return gp_usage_error(command, "--sim: contents=%s: keep or none", value);
    if (strcmp(key, "shared") == 0 && (!value[0] || strlen(value) > 32 || value[strspn(value, SIMSPEC_NAME)]))
        return gp_usage_error(command, "--sim: shared=%s: not a name of 1 to 32 letters, digits, - and _", value);
    if (strcmp(key, "faults") == 0 && access(value, R_OK) != 0)
        return gp_usage_error(command, "--sim: faults=%s: %s", value, strerror(errno));
    return GP_EXIT_OK;
}

int gp_simspec_check(const char *command, const char *spec, const char *driver)
{
    static const char *const keys[] = {"devices", "gpu", "memory", "limit", "latency", "contents", "shared", "faults"};
    char *copy = strdup(spec), *state = copy, *word;
    int rc = copy ? GP_EXIT_OK : GP_EXIT_FAILED;
    while (!rc && spec[0] && (word = strsep(&state, ","))) {
        char *value = strchr(word, '=');
        bool known = false;
        if (value)
            *value++ = '\0';
        for (size_t i = 0; i < GP_COUNT(keys); i++)
            known |= strcmp(word, keys[i]) == 0;
        if (!value && strcmp(word, "shared") == 0)
            continue;
        if (!known || !value)
            rc = gp_usage_error(
                command,
                "--sim: '%s': expected devices=N, gpu=NAME, memory=SIZE, limit=SIZE, latency=zero|typical, "
                "contents=keep|none, shared[=NAME], faults=FILE",
                word);
        else
            rc = spec_word(command, word, value, driver);
    }
    free(copy);
    return rc;
}
