/* SPDX-License-Identifier: MIT
 *
 * simgpus.c: the value of --sim, checked before a program starts, and the GPUs that it takes by
 * name. The simulator has the list: a function of its driver returns it as text; see launch.h.
 */
#include <base/text.h>
#include <common/messages.h>
#include <common/values.h>
#include <dlfcn.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <limits.h>
#include <read/common/parse.h>
#include <run/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIMSPEC_LEDGER "GPUPROF_SIM_LEDGER"
#define SIMSPEC_NAME   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

/* A line of the list. */
struct simspec_gpu {
    char *key, *name, *capability, *multiprocessors, *memory, *known, *l2, *bandwidth, *threads;
};

/* The next line of *rest, which is cut into its fields.  False: no more. */
static bool simspec_next(char **rest, struct simspec_gpu *gpu)
{
    char **const fields[] = {&gpu->key,   &gpu->name, &gpu->capability, &gpu->multiprocessors, &gpu->memory,
                             &gpu->known, &gpu->l2,   &gpu->bandwidth,  &gpu->threads};
    char *line = strsep(rest, "\n");
    for (size_t i = 0; i < GP_COUNT(fields); i++) {
        *fields[i] = strsep(&line, "\t");
        if (!*fields[i])
            return false;
    }
    return true;
}

#define SIMSPEC_KEYS 2048

struct simspec_driver {
    void *library; /* NULL: it cannot be loaded */
    char *ledger;
};

/* The driver writes its ledger when it is unloaded; that of this process would be in the way. */
static struct simspec_driver simspec_open(const char *path)
{
    const char *ledger = getenv(SIMSPEC_LEDGER);
    struct simspec_driver driver = {NULL, ledger ? strdup(ledger) : NULL};
    if (ledger && !driver.ledger)
        return driver;
    unsetenv(SIMSPEC_LEDGER);
    driver.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return driver;
}

static void simspec_close(struct simspec_driver *driver)
{
    if (driver->library)
        dlclose(driver->library);
    if (driver->ledger)
        setenv(SIMSPEC_LEDGER, driver->ledger, 1);
    free(driver->ledger);
}

/* What the driver says, to be freed: the list, or the keys that `name` may mean; NULL after a message. */
static char *simspec_ask(const char *command, const char *path, const char *name)
{
    const char *(*list)(void) = NULL;
    void (*named)(const char *, char *, size_t) = NULL;
    struct simspec_driver driver = simspec_open(path);
    char *said = NULL;
    if (driver.library) {
        *(void **)&list = dlsym(driver.library, "sim_gpu_table");
        *(void **)&named = dlsym(driver.library, "sim_gpu_named");
    }
    if (!list || !named)
        gp_error(command, "%s has no list of GPUs: install the simulated GPU that belongs to this gpuprof", path);
    else if (!name)
        said = strdup(list());
    else if ((said = calloc(1, SIMSPEC_KEYS)))
        named(name, said, SIMSPEC_KEYS);
    simspec_close(&driver);
    return said;
}

static int simspec_key(const char *command, const char *driver, const char *option, const char *name,
                       char key[GP_SIM_KEY])
{
    char *keys = simspec_ask(command, driver, name), *last;
    int rc = keys ? GP_EXIT_OK : GP_EXIT_FAILED;
    key[0] = '\0';
    if (keys && (last = strrchr(keys, ',')))
        rc = gp_usage_error(command, "%s%s: which one: %.*s or %s?", option, name, (int)(last - keys), keys, last + 2);
    else if (keys)
        snprintf(key, GP_SIM_KEY, "%s", keys);
    free(keys);
    return rc;
}

static int spec_gpu(const char *command, const char *name, const char *driver)
{
    char key[GP_SIM_KEY];
    int rc = simspec_key(command, driver, "--sim: gpu=", name, key);
    if (!rc && !key[0])
        rc = gp_usage_error(command, "--sim: gpu=%s: no GPU of that name; --sim=gpu=list shows the names", name);
    return rc;
}

static int simspec_list(const char *command, const char *driver)
{
    struct simspec_gpu gpu;
    char text[GP_SIZE_TEXT];
    char *table = simspec_ask(command, driver, NULL), *rest = table;
    if (!table)
        return GP_EXIT_FAILED;
    printf("%-15s %-45s %10s %4s %11s %14s  %-9s %9s\n", "NAME", "DEVICE", "CAPABILITY", "SMS", "MEMORY", "BYTES",
           "PRECISION", "GB/S");
    while (simspec_next(&rest, &gpu))
        printf("%-15s %-45s %10s %4s %11s %14s  %-9s %9lld\n", gpu.key, gpu.name, gpu.capability, gpu.multiprocessors,
               gp_size_text(text, atoll(gpu.memory)), gpu.memory, gpu.known, atoll(gpu.bandwidth) / 1000000000);
    free(table);
    return GP_EXIT_OK;
}

static int simspec_gpus(const char *command, const char *driver, struct gp_sim_gpu **gpus, uint32_t *count)
{
    struct simspec_gpu gpu;
    char *table = simspec_ask(command, driver, NULL), *rest = table;
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
        one->threads = atoll(gpu.multiprocessors) * atoll(gpu.threads);
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
    char why[GP_TEXT_WHY];
    if (strcmp(key, "devices") == 0 && gp_parse_number(value, 1, GP_WIRE_GPUS, &number) != 0)
        return gp_usage_error(command, "--sim: devices=%s: from 1 to %u", value, GP_WIRE_GPUS);
    if ((strcmp(key, "memory") == 0 || strcmp(key, "limit") == 0) &&
        (gp_text_size_parse(value, &number) != 0 || number <= 0))
        return gp_usage_error(command, "--sim: %s=%s: %s", key, value, gp_text_size_why(why, value));
    if (strcmp(key, "gpu") == 0)
        return spec_gpu(command, value, driver);
    if (strcmp(key, "latency") == 0 && strcmp(value, "zero") != 0 && strcmp(value, "typical") != 0)
        return gp_usage_error(command, "--sim: latency=%s: zero or typical", value);
    if (strcmp(key, "contents") == 0 && strcmp(value, "keep") != 0 && strcmp(value, "none") != 0)
        return gp_usage_error(command, "--sim: contents=%s: keep or none", value);
    if (strcmp(key, "fill") == 0 && strcmp(value, "zeros") != 0 && strcmp(value, "random") != 0)
        return gp_usage_error(command, "--sim: fill=%s: zeros or random", value);
    if (strcmp(key, "shared") == 0 && (!value[0] || strlen(value) > 32 || value[strspn(value, SIMSPEC_NAME)]))
        return gp_usage_error(command, "--sim: shared=%s: not a name of 1 to 32 letters, digits, - and _", value);
    if (strcmp(key, "node") == 0 && gp_parse_number(value, 1, 65536, &number) != 0)
        return gp_usage_error(command, "--sim: node=%s: from 1 to 65536 ranks", value);
    if (strcmp(key, "faults") == 0 && access(value, R_OK) != 0)
        return gp_usage_error(command, "--sim: faults=%s: %s", value, strerror(errno));
    return GP_EXIT_OK;
}

int gp_launch_sim_check(const char *command, const char *spec, const char *driver)
{
    static const char *const keys[] = {"devices",  "gpu",  "memory", "limit", "latency",
                                       "contents", "fill", "shared", "node",  "faults"};
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
                "contents=keep|none, fill=zeros|random, shared[=NAME], node=RANKS, faults=FILE",
                word);
        else
            rc = spec_word(command, word, value, driver);
    }
    free(copy);
    return rc;
}

int gp_launch_driver(const char *command, char path[PATH_MAX])
{
    if (gp_launch_find(path, PATH_MAX, "gpuprof/sim/libcuda.so.1") == 0)
        return GP_EXIT_OK;
    gp_launch_missing(command, "gpuprof/sim/libcuda.so.1",
                      "install the simulated GPU with gpuprof (in a source tree: make sim)");
    return GP_EXIT_USAGE;
}

int gp_launch_gpus(const char *command)
{
    char path[PATH_MAX];
    int rc = gp_launch_driver(command, path);
    return rc ? rc : simspec_list(command, path);
}

int gp_launch_gpu_table(const char *command, struct gp_sim_gpu **gpus, uint32_t *count)
{
    char path[PATH_MAX];
    int rc = gp_launch_driver(command, path);
    return rc ? rc : simspec_gpus(command, path, gpus, count);
}

int gp_launch_gpu_key(const char *command, const char *option, const char *name, char key[GP_SIM_KEY])
{
    char path[PATH_MAX];
    int rc = gp_launch_driver(command, path);
    return rc ? rc : simspec_key(command, path, option, name, key);
}

void gp_launch_sim_end(const struct gp_launch *launch)
{
    char path[PATH_MAX];
    const char *spec = getenv("GPUPROF_SIM");
    if (!launch->sim || !spec || !strstr(spec, "shared") ||
        gp_launch_find(path, sizeof(path), "gpuprof/sim/libcuda.so.1") != 0)
        return;
    void (*sweep)(void) = NULL;
    struct simspec_driver driver = simspec_open(path);
    if (driver.library)
        *(void **)&sweep = dlsym(driver.library, "sim_share_sweep");
    if (sweep)
        sweep();
    simspec_close(&driver);
}
