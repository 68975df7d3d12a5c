/* SPDX-License-Identifier: MIT
 *
 * Runs with libgpuprof-shim.so preloaded on the real driver library, and compares what the program
 * gets with what the driver has: by dlsym, by the loader's search, and by cuGetProcAddress with every version
 * and flag.  Prints "N passed, N failed", and the rows of the hook table that this driver lacks as
 * "lacks NAME".
 */
#define _GNU_SOURCE
#include "inject/shimtable.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOOKS_NAMES 4096
/* More than there are; a driver answers later versions as it answers its own. */
#define HOOKS_FIRST 11000
#define HOOKS_LAST  13000
#define HOOKS_STEP  10

struct hooks_name {
    const char *name;
    void *real;
};

static struct hooks_name names[HOOKS_NAMES];
static unsigned name_count, passed, failed, wrapped;

static const struct {
    const char *name;
    size_t offset;
} rows[] = {
#define GP_HOOK(_id, _name, _handler, ...) {#_name, offsetof(struct gp_private, _name)},
#define GP_WRAP(_name, ...)                {#_name, offsetof(struct gp_private, _name)},
#define GP_SELF(_name, ...)                {#_name, offsetof(struct gp_private, _name)},
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP
};
#define HOOKS_ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct gp_private *table;
static void *row_reals[HOOKS_ROWS]; /* the driver's function of each row */

static void *row_wrapper(size_t row)
{
    void *wrapper;

    memcpy(&wrapper, (const char *)table + rows[row].offset, sizeof(wrapper));
    return wrapper;
}

static int row_of(const char *name)
{
    size_t i;

    for (i = 0; i < HOOKS_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return (int)i;
    return -1;
}

static void hooks_expect(int right, const char *how, const char *name, void *got, void *real)
{
    Dl_info info = {0};

    if (right) {
        passed++;
        return;
    }
    if (got)
        dladdr(got, &info);
    if (failed++ < 50)
        printf("%s: %s: the program gets %p (%s %s), the driver has %p\n", how, name, got,
               info.dli_fname ? info.dli_fname : "", info.dli_sname ? info.dli_sname : "", real);
}

/* ---- the driver's own symbols, read without any dlsym ------------------------------------------------------ */

static unsigned hooks_symbol_count(const uint32_t *hash)
{
    uint32_t buckets = hash[0], first = hash[1], last = 0, i;
    const uint32_t *bucket = hash + 4 + hash[2] * 2, *chain = bucket + buckets;

    for (i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

static void hooks_read_driver(const struct link_map *map)
{
    const ElfW(Dyn) * entry;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *hash = NULL;
    unsigned i, count;

    for (entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB)
            strings = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_GNU_HASH)
            hash = (const uint32_t *)entry->d_un.d_ptr;
    }
    count = symbols && strings && hash ? hooks_symbol_count(hash) : 0;
    for (i = 0; i < count && name_count < HOOKS_NAMES; i++) {
        const ElfW(Sym) *symbol = &symbols[i];
        if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
            strncmp(strings + symbol->st_name, "cu", 2) != 0)
            continue;
        names[name_count].name = strings + symbol->st_name;
        names[name_count++].real = (void *)(map->l_addr + symbol->st_value);
    }
}

static void *real_of(const char *name)
{
    unsigned i;

    for (i = 0; i < name_count; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].real;
    return NULL;
}

/* ---- the three ways --------------------------------------------------------------------------------------- */

/* A name with a row gives its wrapper, any other the driver's own function. */
static void hooks_by_handle(void *driver)
{
    unsigned i;

    for (i = 0; i < name_count; i++) {
        int row = row_of(names[i].name);
        void *got = dlsym(driver, names[i].name);
        wrapped += row >= 0;
        hooks_expect(got == (row >= 0 ? row_wrapper((size_t)row) : names[i].real), "dlsym", names[i].name, got,
                     names[i].real);
    }
    for (i = 0; i < HOOKS_ROWS; i++)
        if (!row_reals[i]) {
            hooks_expect(dlsym(driver, rows[i].name) == NULL, "dlsym of what the driver lacks", rows[i].name, NULL,
                         NULL);
            printf("lacks %s\n", rows[i].name);
        }
    hooks_expect(dlsym(driver, "cuNoSuchFunction") == NULL, "dlsym", "cuNoSuchFunction", NULL, NULL);
}

/* The loader's search finds the shim's function of that name first. */
static void hooks_by_search(void)
{
    unsigned i;

    for (i = 0; i < name_count; i++) {
        void *got = dlsym(RTLD_DEFAULT, names[i].name);
        Dl_info info = {0};
        int is_stub = got && dladdr(got, &info) && strstr(info.dli_fname, "libgpuprof-shim") && info.dli_sname &&
                      strcmp(info.dli_sname, names[i].name) == 0;
        hooks_expect(row_of(names[i].name) >= 0 ? is_stub : got == names[i].real, "search", names[i].name, got,
                     names[i].real);
    }
}

/* Which row has this function of the driver?  Several names may be one function. */
static int hooks_is_wrapper_of(void *got, void *real)
{
    size_t i;

    for (i = 0; i < HOOKS_ROWS; i++)
        if (row_wrapper(i) == got && row_reals[i] == real)
            return 1;
    return 0;
}

static int hooks_has_row(void *real)
{
    size_t i;

    for (i = 0; i < HOOKS_ROWS; i++)
        if (row_reals[i] == real)
            return 1;
    return 0;
}

typedef unsigned (*proc_fn)(const char *, void **, int, uint64_t);
typedef unsigned (*proc2_fn)(const char *, void **, int, uint64_t, int *);

static void hooks_ask(const char *name, int version, uint64_t flags, proc_fn ours, proc_fn real, proc2_fn ours2,
                      proc2_fn real2)
{
    void *got = (void *)1, *had = (void *)1;
    int got_status = -1, had_status = -1;
    unsigned one, two;
    char how[96];

    snprintf(how, sizeof(how), "cuGetProcAddress, version %d, flags %d", version, (int)flags);
    if (real2) {
        one = ours2(name, &got, version, flags, &got_status);
        two = real2(name, &had, version, flags, &had_status);
        hooks_expect(one == two && got_status == had_status, how, name, got, had);
    } else {
        one = ours(name, &got, version, flags);
        two = real(name, &had, version, flags);
        hooks_expect(one == two, how, name, got, had);
    }
    if (got == had)
        hooks_expect(!had || had == (void *)1 || !hooks_has_row(had), how, name, got, had);
    else
        hooks_expect(hooks_is_wrapper_of(got, had), how, name, got, had);
}

/* The base of NAME_v2, NAME_ptsz, NAME_v3_ptds ... is what programs ask for. */
static size_t hooks_base(const char *name)
{
    size_t length = strlen(name);

    if (length > 5 && (strcmp(name + length - 5, "_ptsz") == 0 || strcmp(name + length - 5, "_ptds") == 0))
        length -= 5;
    if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v' && name[length - 1] >= '2' &&
        name[length - 1] <= '9')
        length -= 3;
    return length;
}

static void hooks_by_address(void *driver)
{
    proc_fn real = (proc_fn)real_of("cuGetProcAddress"), ours = (proc_fn)dlsym(driver, "cuGetProcAddress");
    proc2_fn real2 = (proc2_fn)real_of("cuGetProcAddress_v2"), ours2 = (proc2_fn)dlsym(driver, "cuGetProcAddress_v2");
    uint64_t flags;
    unsigned i, j;
    int version;

    for (i = 0; i < name_count; i++) {
        char base[128];
        snprintf(base, sizeof(base), "%.*s", (int)hooks_base(names[i].name), names[i].name);
        for (j = 0; j < i && strncmp(names[j].name, base, strlen(base) + 1) != 0; j++)
            ;
        if (j < i)
            continue; /* asked for already */
        for (version = HOOKS_FIRST; version <= HOOKS_LAST; version += HOOKS_STEP)
            for (flags = 0; flags < 4; flags++)
                hooks_ask(base, version, flags, ours, real, ours2, real2);
    }
    hooks_ask("cuNoSuchFunction", HOOKS_FIRST, 0, ours, real, ours2, real2);
    hooks_ask("", HOOKS_FIRST, 0, ours, real, ours2, real2);
    hooks_ask("cu", HOOKS_FIRST, 0, ours, real, ours2, real2);
    hooks_ask("cuMemAlloc", 0, 0, ours, real, ours2, real2);
    hooks_ask("cuMemAlloc", -1, 0, ours, real, ours2, real2);
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    struct link_map *map;
    size_t i;

    if (!driver || dlinfo(driver, RTLD_DI_LINKMAP, &map) != 0) {
        printf("hooks: %s\n", dlerror());
        return 77;
    }
    table = dlvsym(RTLD_DEFAULT, "gpuprof_private", "GPUPROF_PRIVATE");
    hooks_read_driver(map);
    if (!table || name_count < 400) {
        printf("hooks: %s, and %u functions in the driver\n", table ? "the shim" : "no shim", name_count);
        return 1;
    }
    for (i = 0; i < HOOKS_ROWS; i++)
        row_reals[i] = real_of(rows[i].name);
    hooks_by_handle(driver);
    hooks_by_search();
    hooks_by_address(driver);
    printf("%u functions of the driver, %u of them wrapped\n", name_count, wrapped);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
