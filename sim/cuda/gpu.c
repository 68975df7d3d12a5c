/* SPDX-License-Identifier: MIT
 * The table of GPUs: look-up, the attributes that a row decides, and its text form for other
 * programs. */
#include "gpu.h"
#include "sim.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SIM_KNOWN_EXACT    SIM_EXACT
#define SIM_KNOWN_MIB      SIM_MIB_KNOWN
#define SIM_KNOWN_ESTIMATE SIM_ESTIMATE

/* Capability 9.0: a generation that has every memory feature which the simulator offers. */
static const struct sim_gpu sim_unnamed = {.key = "",
                                           .capability = 90,
                                           .multiprocessors = 132,
                                           .memory = 16 * SIM_GIB, /* a common inference card's */
                                           .l2 = 52428800,
                                           .clock = 1755000,
                                           .memory_clock = 2619000,
                                           .bus = 5120,
                                           .ecc = 1};

static const struct sim_gpu sim_gpus[] = {
#define SIM_ARCH(...)
#define SIM_NVLINK(...)
#define SIM_BOARD(...)
#define SIM_USUAL(...)
#define SIM_GPU(key_, name_, capability_, multiprocessors_, memory_, known_, l2_, clock_, memory_clock_, bus_, ecc_)   \
    {key_,          name_, capability_, multiprocessors_, UINT64_C(1) * memory_, SIM_KNOWN_##known_, l2_, clock_,      \
     memory_clock_, bus_,  ecc_},
#include "gpus.def"
#undef SIM_GPU
#undef SIM_ARCH
};

static const struct sim_arch {
    int capability, threads, blocks, shared, shared_block, ratio, smallest, step;
} sim_archs[] = {
#define SIM_ARCH(...) {__VA_ARGS__},
#define SIM_GPU(...)
#include "gpus.def"
#undef SIM_GPU
#undef SIM_ARCH
#undef SIM_NVLINK
};

static const struct {
    const char *key;
    uint64_t mib;
} sim_boards[] = {
#define SIM_ARCH(...)
#define SIM_GPU(...)
#define SIM_NVLINK(...)
#undef SIM_BOARD
#define SIM_BOARD(...) {__VA_ARGS__},
#include "gpus.def"
#undef SIM_BOARD
#undef SIM_NVLINK
#undef SIM_GPU
#undef SIM_ARCH
#define SIM_BOARD(...)
};

static const struct {
    const char *name, *key;
} sim_usual[] = {
#define SIM_ARCH(...)
#define SIM_GPU(...)
#define SIM_NVLINK(...)
#undef SIM_USUAL
#define SIM_USUAL(...) {__VA_ARGS__},
#include "gpus.def"
#undef SIM_USUAL
#undef SIM_NVLINK
#undef SIM_GPU
#undef SIM_ARCH
#define SIM_USUAL(...)
};

static const struct {
    const char *key;
    int links, version;
} sim_nvlinks[] = {
#define SIM_ARCH(...)
#define SIM_GPU(...)
#define SIM_NVLINK(...) {__VA_ARGS__},
#include "gpus.def"
#undef SIM_NVLINK
#undef SIM_GPU
#undef SIM_ARCH
};

#define SIM_GPUS  (sizeof sim_gpus / sizeof sim_gpus[0])
#define SIM_ARCHS (sizeof sim_archs / sizeof sim_archs[0])

/* ---- names --------------------------------------------------------------------------------------------------------- */
/* People write "4090", "RTX4090", "a100 80GB" or "H100 SXM".  A name is cut into words of small letters and digits: without
 * the maker's and the brands' names, "rtx" apart from what is glued to it, and "80gb" as "80". */

#define SIM_NAME_WORDS 8
#define SIM_NAME_WORD  24

struct sim_name {
    char words[SIM_NAME_WORDS][SIM_NAME_WORD];
    int count;                                /* SIM_NAME_WORDS + 1: too long for a GPU's */
    char all[SIM_NAME_WORDS * SIM_NAME_WORD]; /* the words without "rtx", one behind the other */
};

static void sim_name_word(struct sim_name *to, const char *from, size_t length)
{
    static const char *const brands[] = {"nvidia", "tesla", "geforce", "quadro", "gpu"};
    char word[SIM_NAME_WORD] = "";
    if (length >= sizeof word || to->count >= SIM_NAME_WORDS) {
        to->count = SIM_NAME_WORDS + 1;
        return;
    }
    for (size_t i = 0; i < length; i++)
        word[i] = (char)tolower((unsigned char)from[i]);
    for (size_t i = 0; i < sizeof brands / sizeof brands[0]; i++)
        if (!strcmp(word, brands[i]))
            return;
    if (!strncmp(word, "rtx", 3) && word[3]) {
        sim_name_word(to, "rtx", 3);
        sim_name_word(to, word + 3, strlen(word + 3));
        return;
    }
    size_t digits = strspn(word, "0123456789");
    if (digits && (!strcmp(word + digits, "g") || !strcmp(word + digits, "gb")))
        word[digits] = '\0';
    if (strcmp(word, "rtx"))
        strcat(to->all, word);
    strcpy(to->words[to->count++], word);
}

static struct sim_name sim_name_cut(const char *name)
{
    struct sim_name cut = {.count = 0};
    while (*name && cut.count <= SIM_NAME_WORDS) {
        size_t length = 0;
        while (isalnum((unsigned char)name[length]))
            length++;
        if (length)
            sim_name_word(&cut, name, length);
        name += length ? length : 1;
    }
    return cut;
}

/* Whether each word that was asked for is one of the GPU's. */
static bool sim_name_within(const struct sim_name *asked, const struct sim_name *key, const struct sim_name *name)
{
    for (int i = 0; i < asked->count; i++) {
        bool found = false;
        for (int k = 0; k < SIM_NAME_WORDS && !found; k++)
            found = !strcmp(asked->words[i], key->words[k]) || !strcmp(asked->words[i], name->words[k]);
        if (!found)
            return false;
    }
    return true;
}

/* The GPUs that a name may mean, into found[SIM_GPUS]. */
static size_t sim_gpu_match(const char *name, const struct sim_gpu **found)
{
    const struct sim_name asked = sim_name_cut(name);
    size_t same = 0, within = 0;
    for (const struct sim_gpu *gpu = sim_gpus; gpu < sim_gpus + SIM_GPUS; gpu++) {
        if (strcasecmp(name, gpu->key))
            continue;
        *found = gpu;
        return 1;
    }
    if (asked.count == 0 || asked.count > SIM_NAME_WORDS)
        return 0;
    for (size_t i = 0; i < sizeof sim_usual / sizeof sim_usual[0]; i++)
        if (!strcmp(sim_name_cut(sim_usual[i].name).all, asked.all))
            return sim_gpu_match(sim_usual[i].key, found);
    for (const struct sim_gpu *gpu = sim_gpus; gpu < sim_gpus + SIM_GPUS; gpu++) {
        const struct sim_name key = sim_name_cut(gpu->key), full = sim_name_cut(gpu->name);
        bool equal = asked.all[0] && (!strcmp(asked.all, key.all) || !strcmp(asked.all, full.all));
        /* A row that has the whole name goes before those that have more in theirs: an RTX 4080 is no RTX 4080 SUPER. */
        if (equal && same++ == 0)
            within = 0;
        if (equal || (!same && sim_name_within(&asked, &key, &full)))
            found[within++] = gpu;
    }
    return within;
}

const struct sim_gpu *sim_gpu_find(const char *name)
{
    const struct sim_gpu *found[SIM_GPUS];
    return sim_gpu_match(name, found) == 1 ? found[0] : NULL;
}

/* The keys of the GPUs that a name may mean, with ", " in between, cut to `bytes`; "" if there is none.  For programs
 * that do not run on the simulator, as the table below. */
SIM_EXPORT void sim_gpu_named(const char *name, char *keys, size_t bytes);
void sim_gpu_named(const char *name, char *keys, size_t bytes)
{
    const struct sim_gpu *found[SIM_GPUS];
    size_t count = sim_gpu_match(name, found), at = 0;
    keys[0] = '\0';
    for (size_t i = 0; i < count && at < bytes; i++)
        at += (size_t)snprintf(keys + at, bytes - at, "%s%s", i ? ", " : "", found[i]->key);
}

/* -------------------------------------------------------------------------------------------------------------------- */

const struct sim_gpu *sim_gpu_default(void)
{
    return &sim_unnamed;
}

static const struct sim_arch *sim_gpu_arch(const struct sim_gpu *gpu)
{
    const struct sim_arch *arch = sim_archs;
    while (arch->capability != gpu->capability)
        arch++;
    return arch;
}

bool sim_gpu_attribute(const struct sim_gpu *gpu, CUdevice_attribute attribute, int *value)
{
    const struct sim_arch *arch = sim_gpu_arch(gpu);
    const int since_90 = gpu->capability >= 90;
    const struct {
        CUdevice_attribute attribute;
        int value;
    } decided[] = {
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, gpu->clock},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->multiprocessors},
        {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, gpu->ecc},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, gpu->memory_clock},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, gpu->bus},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, gpu->l2},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, arch->threads},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu->capability / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu->capability % 10},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, arch->shared},
        {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, arch->ratio},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, arch->shared_block},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, arch->blocks},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, gpu->capability >= 80 ? 1024 : 0},
        {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, since_90},
        {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, since_90 ? 4 : 1},
        {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, since_90},
        /* NVLink with switches: not on cards of capability 12. */
        {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, since_90 && gpu->capability < 120},
    };
    for (size_t i = 0; i < sizeof decided / sizeof decided[0]; i++)
        if (decided[i].attribute == attribute) {
            *value = decided[i].value;
            return true;
        }
    return false;
}

void sim_gpu_links(const struct sim_gpu *gpu, int *links, int *version)
{
    *links = *version = 0;
    for (size_t i = 0; i < sizeof sim_nvlinks / sizeof sim_nvlinks[0]; i++)
        if (!strcmp(sim_nvlinks[i].key, gpu->key)) {
            *links = sim_nvlinks[i].links;
            *version = sim_nvlinks[i].version;
        }
}

uint64_t sim_gpu_board(const struct sim_gpu *gpu)
{
    for (size_t i = 0; i < sizeof sim_boards / sizeof sim_boards[0]; i++)
        if (!strcmp(sim_boards[i].key, gpu->key))
            return sim_boards[i].mib * SIM_MIB;
    return gpu->memory;
}

void sim_gpu_groups(const struct sim_gpu *gpu, unsigned *smallest, unsigned *step)
{
    *smallest = (unsigned)sim_gpu_arch(gpu)->smallest;
    *step = (unsigned)sim_gpu_arch(gpu)->step;
}

/* The table for programs that do not run on the simulator, found with dlsym: a line per GPU with
 * tabs between key, the driver's name, compute capability, multiprocessors, bytes of memory, how they
 * are known (exact, MiB or estimate), bytes of L2, bytes per second, and the threads that a
 * multiprocessor can hold.  Static; any thread. */
SIM_EXPORT const char *sim_gpu_table(void);
const char *sim_gpu_table(void)
{
    static const char *const known[] = {"exact", "MiB", "estimate"};
    static char text[SIM_GPUS * 160];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    size_t at = *text ? sizeof text : 0;
    for (const struct sim_gpu *gpu = sim_gpus; gpu < sim_gpus + SIM_GPUS && at < sizeof text; gpu++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\t%s\t%d.%d\t%d\t%llu\t%s\t%d\t%llu\t%d\n", gpu->key,
                               gpu->name, gpu->capability / 10, gpu->capability % 10, gpu->multiprocessors,
                               (unsigned long long)gpu->memory, known[gpu->known], gpu->l2,
                               2000ull * (unsigned)gpu->memory_clock * (unsigned)gpu->bus / 8,
                               sim_gpu_arch(gpu)->threads);
    pthread_mutex_unlock(&lock);
    return text;
}
