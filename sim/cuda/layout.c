/* SPDX-License-Identifier: MIT
 * What the cubin of a module says of its kernels: the sizes of their parameters, and the stack that a thread needs.  A
 * fat binary holds a cubin for each generation, compressed.  Neither format is documented: what is used here, tools that
 * read cubins have found out.  Everything is checked against the sizes at hand, and what does not fit is not known. */
#include "module.h"
#include "stream.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define SIM_CUBIN_MOST (512 * SIM_MIB)

struct sim_layout {
    size_t count;
    struct sim_layout_kernel {
        uint64_t name; /* hash */
        uint32_t first;
        int count;
        uint32_t stack; /* bytes of a thread */
    } * kernels;
    uint16_t *sizes; /* of all kernels' parameters */
    size_t size_count;
};

/* An entry of a fat binary, and what lies behind it. */
struct sim_fat_entry {
    uint16_t kind, version;
    uint32_t header;
    uint64_t size; /* of what lies behind it, with padding */
    uint32_t compressed, reserved[2], generation, reserved2[2];
    uint64_t flags, reserved3, decompressed;
};
_Static_assert(sizeof(struct sim_fat_entry) == 64, "as in every binary");
#define SIM_FAT_PTX   1
#define SIM_FAT_CUBIN 2
#define SIM_FAT_LZ4   0x2000u
#define SIM_FAT_ZSTD  0x8000u

/* ---- decompression ----------------------------------------------------------------------------------------------- */

/* Compilers since CUDA 13 use Zstandard.  Its library is on every distribution; without it such
 * kernels' parameters are not known. */
static size_t (*sim_zstd)(void *to, size_t room, const void *from, size_t size);

void sim_layout_setup(void)
{
    void *library = dlopen("libzstd.so.1", RTLD_NOW);
    if (library)
        *(void **)&sim_zstd = dlsym(library, "ZSTD_decompress");
}

/* A length of which the token held 15: bytes follow, the last one is below 255. */
static bool sim_lz4_length(const uint8_t **at, const uint8_t *end, size_t *length)
{
    uint8_t byte = 255;
    for (; byte == 255 && *at < end; *length += byte)
        byte = *(*at)++;
    return byte != 255;
}

/* One LZ4 block (lz4_Block_format.md of the LZ4 project). */
static bool sim_lz4(const uint8_t *at, size_t size, uint8_t *to, size_t room)
{
    const uint8_t *end = at + size;
    size_t done = 0;
    while (at < end) {
        uint8_t token = *at++;
        size_t literals = token >> 4, match = token & 15;
        if (literals == 15 && !sim_lz4_length(&at, end, &literals))
            return false;
        if (literals > (size_t)(end - at) || literals > room - done)
            return false;
        memcpy(to + done, at, literals);
        at += literals;
        done += literals;
        if (at == end)
            break;
        if (end - at < 2)
            return false;
        size_t distance = at[0] | (size_t)at[1] << 8;
        at += 2;
        if (match == 15 && !sim_lz4_length(&at, end, &match))
            return false;
        match += 4;
        if (distance == 0 || distance > done || match > room - done)
            return false;
        for (; match; match--, done++) /* may overlap itself */
            to[done] = to[done - distance];
    }
    return done == room;
}

/* Returns one entry and its bytes per call: *at starts at SIM_FATBIN_HEADER.  False: no more. */
static bool sim_fat_next(const char *image, size_t size, size_t *at, struct sim_fat_entry *entry, const char **bytes)
{
    if (size < *at || size - *at < sizeof *entry)
        return false;
    memcpy(entry, image + *at, sizeof *entry);
    if (entry->header < sizeof *entry || entry->header > size - *at || entry->size > size - *at - entry->header)
        return false;
    *bytes = image + *at + entry->header;
    *at += entry->header + entry->size;
    return true;
}

/* Compiled code runs on its own generation and later ones of the same major number; PTX is compiled for any that is not
 * older (CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility").  Compiled code goes first, and of each
 * the newest. */
struct sim_generation sim_fat_generation(const char *image, size_t size, int capability)
{
    struct sim_fat_entry entry;
    const char *bytes;
    int compiled = 0, source = 0, below = 0, oldest = 0;
    for (size_t at = SIM_FATBIN_HEADER; sim_fat_next(image, size, &at, &entry, &bytes);) {
        int one = (int)(entry.generation % 1000);
        bool is_text = entry.kind == SIM_FAT_PTX;
        if (!one || (entry.kind != SIM_FAT_CUBIN && !is_text))
            continue;
        oldest = !oldest || one < oldest ? one : oldest;
        if (one > capability)
            continue;
        below = one > below ? one : below;
        if (is_text && one > source)
            source = one;
        if (!is_text && one / 10 == capability / 10 && one > compiled)
            compiled = one;
    }
    if (compiled || source)
        return (struct sim_generation){.ptx = compiled ? compiled : source, .binary = compiled ? compiled : capability};
    int nearest = below ? below : oldest;
    return (struct sim_generation){nearest ? nearest : capability, nearest ? nearest : capability, nearest};
}

/* The cubin of that generation, else the first. */
static bool sim_fat_entry_of(const char *image, size_t size, int generation, struct sim_fat_entry *out,
                             const char **bytes)
{
    struct sim_fat_entry entry;
    const char *at_bytes;
    bool found = false;
    for (size_t at = SIM_FATBIN_HEADER; sim_fat_next(image, size, &at, &entry, &at_bytes);) {
        const bool is_it = (int)(entry.generation % 1000) == generation;
        if (entry.kind != SIM_FAT_CUBIN || (found && !is_it))
            continue;
        *out = entry;
        *bytes = at_bytes;
        found = true;
        if (is_it)
            break;
    }
    return found;
}

char *sim_fat_cubin(const char *image, size_t size, int generation, size_t *out)
{
    struct sim_fat_entry entry;
    const char *bytes;
    if (!sim_fat_entry_of(image, size, generation, &entry, &bytes))
        return NULL;
    bool packed = entry.flags & (SIM_FAT_LZ4 | SIM_FAT_ZSTD);
    size_t from = packed ? entry.compressed : entry.size;
    *out = packed ? entry.decompressed : entry.size;
    if (from > entry.size || *out == 0 || *out > SIM_CUBIN_MOST)
        return NULL;
    char *cubin = malloc(*out);
    bool good = cubin;
    if (good && !packed)
        memcpy(cubin, bytes, *out);
    else if (good && entry.flags & SIM_FAT_LZ4)
        good = sim_lz4((const uint8_t *)bytes, from, (uint8_t *)cubin, *out);
    else if (good)
        good = sim_zstd && sim_zstd(cubin, *out, bytes, from) == *out;
    if (good)
        return cubin;
    free(cubin);
    return NULL;
}

/* ---- the sections .nv.info.NAME and .nv.info of a cubin ----------------------------------------------------------- */
/* Entries of format, attribute, size and value.  Format 4 has a value.  In the section of a kernel, attribute 0x17 is one
 * parameter: its number, its offset and, in the upper 14 bits, its size.  In .nv.info, 0x12 is a symbol's number and the
 * least stack of a thread of that kernel, with what it calls. */
#define SIM_INFO_VALUE     4
#define SIM_INFO_STACK     0x12
#define SIM_INFO_PARAMETER 0x17
struct sim_info {
    uint8_t format, attribute;
    uint16_t size;
};
struct sim_info_parameter {
    uint32_t index;
    uint16_t ordinal, offset;
    uint32_t space : 18, bytes : 14;
};
#define SIM_PARAMETERS 64 /* what struct sim_function has room for */

/* One entry with a value per call: *at starts at the section.  False: no more; *at is NULL if the section is not whole. */
static bool sim_info_next(const char **at, const char *end, struct sim_info *info, const char **value)
{
    while ((size_t)(end - *at) >= sizeof *info) {
        memcpy(info, *at, sizeof *info);
        *at += sizeof *info;
        if (info->format != SIM_INFO_VALUE)
            continue;
        *value = *at;
        *at = info->size > end - *at ? NULL : *at + info->size;
        return *at;
    }
    return false;
}

static int sim_info_read(const char *at, const char *end, uint16_t sizes[SIM_PARAMETERS])
{
    int count = 0;
    struct sim_info info;
    struct sim_info_parameter parameter;
    memset(sizes, 0, SIM_PARAMETERS * sizeof *sizes);
    for (const char *value; sim_info_next(&at, end, &info, &value);) {
        if (info.attribute != SIM_INFO_PARAMETER || info.size < sizeof parameter)
            continue;
        memcpy(&parameter, value, sizeof parameter);
        if (parameter.ordinal >= SIM_PARAMETERS)
            return -1;
        sizes[parameter.ordinal] = parameter.bytes;
        if (parameter.ordinal >= count)
            count = parameter.ordinal + 1;
    }
    return at ? count : -1;
}

static uint64_t sim_name_hash(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

static void sim_layout_add(struct sim_layout *layout, const char *name, const char *at, const char *end)
{
    uint16_t sizes[SIM_PARAMETERS];
    int count = sim_info_read(at, end, sizes);
    if (count < 0)
        return;
    layout->kernels = sim_grow(layout->kernels, (layout->count + 1) * sizeof *layout->kernels);
    layout->sizes = sim_grow(layout->sizes, (layout->size_count + (size_t)count + 1) * sizeof *layout->sizes);
    layout->kernels[layout->count++] =
        (struct sim_layout_kernel){sim_name_hash(name), (uint32_t)layout->size_count, count, 0};
    memcpy(&layout->sizes[layout->size_count], sizes, (size_t)count * sizeof *sizes);
    layout->size_count += (size_t)count;
}

static bool sim_section_named(const char *cubin, size_t size, const char *name, struct sim_section *section)
{
    for (size_t at = 0; sim_image_section(cubin, size, name, &at, section);)
        if (!section->name[0]) /* else its name is longer */
            return true;
    return false;
}

/* The name of a symbol by its number.  NULL: there is none. */
static const char *sim_symbol_name(const struct sim_section *symbols, const struct sim_section *strings,
                                   uint32_t number)
{
    Elf64_Sym symbol;
    if (number >= symbols->size / sizeof symbol)
        return NULL;
    memcpy(&symbol, symbols->bytes + number * sizeof symbol, sizeof symbol);
    if (symbol.st_name >= strings->size || !memchr(strings->bytes + symbol.st_name, 0, strings->size - symbol.st_name))
        return NULL;
    return strings->bytes + symbol.st_name;
}

static void sim_layout_stack(struct sim_layout *layout, const char *name, uint32_t stack)
{
    const uint64_t hash = sim_name_hash(name);
    for (size_t i = 0; i < layout->count; i++)
        if (layout->kernels[i].name == hash)
            layout->kernels[i].stack = stack;
}

static void sim_layout_stacks(struct sim_layout *layout, const char *cubin, size_t size)
{
    struct sim_section all, symbols, strings;
    struct sim_info info;
    if (!sim_section_named(cubin, size, ".nv.info", &all) || !sim_section_named(cubin, size, ".symtab", &symbols) ||
        !sim_section_named(cubin, size, ".strtab", &strings))
        return;
    const char *at = all.bytes;
    for (const char *value; sim_info_next(&at, all.bytes + all.size, &info, &value);) {
        uint32_t pair[2]; /* symbol, bytes */
        if (info.attribute != SIM_INFO_STACK || info.size < sizeof pair)
            continue;
        memcpy(pair, value, sizeof pair);
        const char *name = sim_symbol_name(&symbols, &strings, pair[0]);
        if (name && pair[1] <= SIM_STACK_MOST)
            sim_layout_stack(layout, name, pair[1]);
    }
}

static void sim_layout_read(struct sim_layout *layout, const char *cubin, size_t size)
{
    struct sim_section section;
    for (size_t at = 0; sim_image_section(cubin, size, ".nv.info.", &at, &section);)
        sim_layout_add(layout, section.name, section.bytes, section.bytes + section.size);
    sim_layout_stacks(layout, cubin, size);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static struct sim_layout *sim_layout_of(struct sim_module *module)
{
    if (module->layout)
        return module->layout;
    module->layout = sim_grow(NULL, sizeof *module->layout);
    *module->layout = (struct sim_layout){0};
    size_t size = module->size;
    const bool fat = sim_image_fat(module->image);
    const int capability = sim_spec.gpu->capability;
    char *cubin = NULL;
    if (fat)
        cubin = sim_fat_cubin(module->image, size, sim_fat_generation(module->image, size, capability).binary, &size);
    if (cubin || !fat)
        sim_layout_read(module->layout, cubin ? cubin : module->image, size);
    free(cubin);
    return module->layout;
}

int sim_layout_find(struct sim_module *module, const char *name, uint16_t *sizes, int most)
{
    const struct sim_layout *layout = sim_layout_of(module);
    uint64_t hash = sim_name_hash(name);
    for (size_t i = 0; i < layout->count; i++)
        if (layout->kernels[i].name == hash && layout->kernels[i].count <= most) {
            memcpy(sizes, &layout->sizes[layout->kernels[i].first], (size_t)layout->kernels[i].count * sizeof *sizes);
            return layout->kernels[i].count;
        }
    return -1;
}

uint32_t sim_layout_stack_of(struct sim_module *module, const char *name)
{
    const struct sim_layout *layout = sim_layout_of(module);
    const uint64_t hash = sim_name_hash(name);
    uint32_t stack = 0;
    for (size_t i = 0; !stack && i < layout->count; i++)
        if (layout->kernels[i].name == hash)
            stack = layout->kernels[i].stack;
    return stack;
}

void sim_layout_free(struct sim_module *module)
{
    if (!module->layout)
        return;
    free(module->layout->kernels);
    free(module->layout->sizes);
    free(module->layout);
}
