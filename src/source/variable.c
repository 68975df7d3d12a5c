/* SPDX-License-Identifier: MIT
 *
 * variable.c: libraries that have variables with the names of driver calls.
 *
 * Some libraries load the driver into variables of the calls' own names, and export them:
 *
 *      int (*cuInit)(unsigned);   ...   cuInit = dlsym(driver, "cuInit");
 *
 * The loader binds such a library's use of its own variable to the first definition of the name, and
 * that is libgpuprof-shim.so's function: the library would write into our code.  A preloaded library
 * cannot be made to define less, but the loader reads its table of symbols in memory at each look-up:
 * a symbol without a value is no definition.  So a name that is a variable in some library is taken
 * out of that table:
 *
 *  - before dlopen relocates the library: the shim's dlopen (shim/dlsym.c) reads the file first, and
 *    those that it needs;
 *  - of a library that is loaded with the program, in the shim's constructor, before any other one.
 *    The loader has bound it already, so what it bound to the shim is bound to the variable instead.
 *
 * Calls through such variables are counted: their values come from dlsym or cuGetProcAddress.  A
 * library that is linked to the driver and loaded afterwards is bound to the driver itself for these
 * names; gp_hooks_past tells of it.  One that was there before, and has not made its first call, is
 * bound to the shim now.
 */
#include "base/compiler.h"
#include "base/elfnames.h"
#include "base/image.h"
#include "base/loader.h"
#include "base/sandbox.h"
#include "source/hooks.h"
#include "source/internal.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define VARIABLE_JUMP   R_X86_64_JUMP_SLOT
#define VARIABLE_GLOBAL R_X86_64_GLOB_DAT
#define VARIABLE_WORD   R_X86_64_64
#define VARIABLE_COPY   R_X86_64_COPY
#define VARIABLE_LIB    "lib/x86_64-linux-gnu"
#else
#define VARIABLE_JUMP   R_AARCH64_JUMP_SLOT
#define VARIABLE_GLOBAL R_AARCH64_GLOB_DAT
#define VARIABLE_WORD   R_AARCH64_ABS64
#define VARIABLE_COPY   R_AARCH64_COPY
#define VARIABLE_LIB    "lib/aarch64-linux-gnu"
#endif

extern void *gpuprof_preload_next(const char *name) __attribute__((weak));

/* ---- the shim's own names ---------------------------------------------------------------------------------------- */

#define VARIABLE_NAMES 256u /* more than hooks.def and wrap.def have */

/* Filled by the shim's constructor, before the program has a second thread. */
static struct variable {
    const char *name;
    uint32_t hash;
    uint32_t x_hidden;
    ElfW(Sym) * symbol;      /* in the shim's table */
    uint64_t function;       /* the shim's */
    uint64_t address, bytes; /* start only: the first definition after the shim, if it is a variable */
    bool is_decided;         /* start only */
} variables[VARIABLE_NAMES];
static unsigned variable_count; /* 0: the shim is not in front of the driver */

bool gp_variable_is_hidden(const char *name)
{
    for (unsigned i = 0; i < variable_count; i++)
        if (strcmp(variables[i].name, name) == 0)
            return __atomic_load_n(&variables[i].x_hidden, __ATOMIC_RELAXED);
    return false;
}

static const struct variable *variable_of(const char *name)
{
    for (unsigned i = 0; name[0] == 'c' && name[1] == 'u' && i < variable_count; i++)
        if (strcmp(variables[i].name, name) == 0)
            return &variables[i];
    return NULL;
}

static void variable_take(const struct gp_image *shim)
{
    struct gp_image_hash hash;
    if (!gp_image_hash(shim, &hash))
        return;
    uint32_t last = 0;
    for (uint32_t i = 0; i < hash.count; i++)
        last = hash.buckets[i] > last ? hash.buckets[i] : last;
    for (uint32_t i = hash.first; variable_count < VARIABLE_NAMES; i++) {
        ElfW(Sym) *symbol = (ElfW(Sym) *)(uintptr_t)&shim->symbols[i];
        const char *name = shim->strings + symbol->st_name;
        if (name[0] == 'c' && name[1] == 'u')
            variables[variable_count++] = (struct variable){
                .name = name, .hash = gp_elf_hash(name), .symbol = symbol, .function = shim->base + symbol->st_value};
        if (i >= last && hash.chains[i - hash.first] & 1)
            return;
    }
}

static uint64_t variable_page(void)
{
    return getauxval(AT_PAGESZ);
}

/* The page of the table stays writable: a second thread may be hiding another name in it. */
static void variable_erase(struct variable *variable)
{
    uint64_t page = variable_page(), at = (uint64_t)(uintptr_t)&variable->symbol->st_value;
    if (mprotect((void *)(uintptr_t)(at & ~(page - 1)), page, PROT_READ | PROT_WRITE) != 0)
        return;
    __atomic_store_n(&variable->symbol->st_value, 0, __ATOMIC_RELAXED); /* a look-up sees the one or the other */
    __atomic_store_n(&variable->x_hidden, 1, __ATOMIC_RELAXED);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static void variable_slots(const struct gp_image *image, const ElfW(Rela) * relas, uint64_t bytes,
                           void (*visit)(const struct gp_image *image, const ElfW(Rela) * rela, void *arg), void *arg)
{
    for (uint64_t i = 0; i < bytes / sizeof(*relas); i++)
        if (ELF64_R_SYM(relas[i].r_info))
            visit(image, &relas[i], arg);
}

static const struct variable *slot_of(const struct gp_image *image, const ElfW(Rela) * rela)
{
    return variable_of(image->strings + image->symbols[ELF64_R_SYM(rela->r_info)].st_name);
}

/* The loader has made whole pages of the object's relocated data unwritable. */
static void slot_write(const struct gp_image *image, uint64_t *slot, const void *from, size_t bytes)
{
    uint64_t page = variable_page(), at = (uint64_t)(uintptr_t)slot & ~(page - 1);
    bool is_relro = at >= (image->relro_low & ~(page - 1)) && at < (image->relro_high & ~(page - 1));
    if (is_relro && mprotect((void *)(uintptr_t)at, page, PROT_READ | PROT_WRITE) != 0)
        return;
    memcpy(slot, from, bytes);
    if (is_relro)
        mprotect((void *)(uintptr_t)at, page, PROT_READ);
}

/* ---- loaded with the program ------------------------------------------------------------------------------------- */

struct variable_start {
    uint64_t shim, libc; /* addresses in them */
    bool is_behind;      /* the shim has been visited */
    unsigned found;
};

static bool start_has(const struct gp_image *image, uint64_t address)
{
    return address >= image->low && address < image->high;
}

static void start_decide(struct variable_start *start, const struct gp_image *image)
{
    struct gp_elf_names names;
    gp_elf_of_image(&names, image);
    for (unsigned i = 0; i < variable_count; i++) {
        struct variable *variable = &variables[i];
        const ElfW(Sym) *symbol = variable->is_decided ? NULL : gp_elf_find(&names, variable->name, variable->hash);
        if (!symbol)
            continue;
        variable->is_decided = true;
        if (gp_elf_is_variable(symbol) && (symbol->st_info & 15) != STT_TLS) {
            variable->address = image->base + symbol->st_value;
            variable->bytes = symbol->st_size;
            start->found++;
        }
    }
}

static int start_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct variable_start *start = arg;
    struct gp_image image;
    (void)size;
    if (!gp_image_read(&image, info))
        return 0;
    if (start_has(&image, start->libc) && !start->is_behind)
        return 1; /* the shim was opened later */
    if (start_has(&image, start->shim)) {
        start->is_behind = true;
        variable_take(&image);
    } else if (start->is_behind) {
        start_decide(start, &image);
    }
    return 0;
}

static void start_slot(const struct gp_image *image, const ElfW(Rela) * rela, void *arg)
{
    uint64_t type = ELF64_R_TYPE(rela->r_info), *slot = (uint64_t *)(uintptr_t)(image->base + rela->r_offset);
    (void)arg;
    if (type != VARIABLE_GLOBAL && type != VARIABLE_WORD && type != VARIABLE_COPY)
        return;
    const struct variable *variable = slot_of(image, rela);
    if (!variable || !variable->address)
        return;
    uint64_t addend = type == VARIABLE_WORD ? (uint64_t)rela->r_addend : 0, bound = variable->address + addend;
    uint64_t bytes = image->symbols[ELF64_R_SYM(rela->r_info)].st_size;
    if (type == VARIABLE_COPY)
        memcpy(slot, (const void *)(uintptr_t)variable->address, bytes < variable->bytes ? bytes : variable->bytes);
    else if (*slot == variable->function + addend)
        slot_write(image, slot, &bound, sizeof(bound));
}

static int start_repair(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct gp_image image;
    (void)size;
    if (gp_image_read(&image, info))
        variable_slots(&image, image.relas, image.rela_bytes, start_slot, arg);
    return 0;
}

void gp_variable_start(void)
{
    struct variable_start start = {.shim = (uint64_t)(uintptr_t)gpuprof_preload_next,
                                   .libc = (uint64_t)(uintptr_t)sysconf};
    gp_loader_look(start_visit, &start);
    if (!start.found)
        return;
    gp_loader_look(start_repair, NULL);
    for (unsigned i = 0; i < variable_count; i++)
        if (variables[i].address)
            variable_erase(&variables[i]);
}

/* ---- loaded by dlopen -------------------------------------------------------------------------------------------- */

struct variable_hide {
    struct variable *variable;
    bool is_ours; /* no object before the shim defines the name */
    uint64_t shim;
    bool is_behind;
};

/* A slot of a call that was not made yet leads back into the object. */
static void hide_slot(const struct gp_image *image, const ElfW(Rela) * rela, void *arg)
{
    const struct variable_hide *hide = arg;
    uint64_t *slot = (uint64_t *)(uintptr_t)(image->base + rela->r_offset);
    if (ELF64_R_TYPE(rela->r_info) != VARIABLE_JUMP || slot_of(image, rela) != hide->variable)
        return;
    if (start_has(image, __atomic_load_n(slot, __ATOMIC_RELAXED)))
        __atomic_store_n(slot, hide->variable->function, __ATOMIC_RELAXED); /* as the loader does */
}

static int hide_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct variable_hide *hide = arg;
    struct gp_image image;
    struct gp_elf_names names;
    (void)size;
    if (!gp_image_read(&image, info))
        return 0;
    gp_elf_of_image(&names, &image);
    bool is_shim = start_has(&image, hide->shim);
    bool defines = gp_elf_find(&names, hide->variable->name, hide->variable->hash) != NULL;
    hide->is_behind |= is_shim;
    if (defines && !hide->is_behind)
        hide->is_ours = false;
    if (!defines && hide->is_ours && gp_image_needs(&image, "libcuda.so"))
        variable_slots(&image, image.jumps, image.jump_bytes, hide_slot, hide);
    return 0;
}

static void variable_hide(struct variable *variable)
{
    struct variable_hide hide = {
        .variable = variable, .is_ours = true, .shim = (uint64_t)(uintptr_t)gpuprof_preload_next};
    if (__atomic_load_n(&variable->x_hidden, __ATOMIC_RELAXED))
        return;
    gp_loader_look(hide_visit, &hide);
    variable_erase(variable);
}

/* ---- the files that dlopen will load ----------------------------------------------------------------------------- */

#define OPENING_FILES 128u
#define OPENING_BYTES (256u << 10)

/* Names to look at, each with the file that needs it. */
struct opening {
    struct {
        uint32_t name, needer; /* offsets in `text` */
    } files[OPENING_FILES];
    unsigned count;
    uint32_t used, caller;
    char path[4096];
    char text[OPENING_BYTES];
};

static uint32_t opening_keep(struct opening *o, const char *text)
{
    size_t length = strlen(text) + 1;
    if (length > sizeof(o->text) - o->used)
        return 0;
    memcpy(o->text + o->used, text, length);
    o->used += (uint32_t)length;
    return o->used - (uint32_t)length;
}

static const char *opening_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void opening_add(struct opening *o, const char *name, uint32_t needer)
{
    for (unsigned i = 0; i < o->count; i++)
        if (strcmp(o->text + o->files[i].name, name) == 0)
            return;
    uint32_t kept = o->count < OPENING_FILES ? opening_keep(o, name) : 0;
    if (kept) {
        o->files[o->count].name = kept;
        o->files[o->count++].needer = needer;
    }
}

struct opening_loaded {
    const char *name;
    bool is_path, is_loaded;
};

static int loaded_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct opening_loaded *loaded = arg;
    const char *path = info->dlpi_name ? info->dlpi_name : "";
    (void)size;
    loaded->is_loaded = strcmp(loaded->is_path ? path : opening_base(path), loaded->name) == 0;
    return loaded->is_loaded;
}

static bool opening_is_loaded(const char *name)
{
    struct opening_loaded loaded = {.name = name, .is_path = strchr(name, '/') != NULL};
    gp_loader_look(loaded_visit, &loaded);
    return loaded.is_loaded;
}

/* Whether there is such a file. */
static bool opening_file(struct opening *o, const char *path)
{
    struct gp_elf_file file;
    if (!gp_elf_open(&file, path))
        return false;
    for (unsigned i = 0; i < variable_count; i++) {
        const ElfW(Sym) *symbol = gp_elf_find(&file.names, variables[i].name, variables[i].hash);
        if (symbol && gp_elf_is_variable(symbol))
            variable_hide(&variables[i]);
    }
    uint32_t needer = opening_keep(o, path);
    const char *needed;
    for (uint64_t at = 0; needer && (needed = gp_elf_text(&file, DT_NEEDED, &at));)
        opening_add(o, needed, needer);
    gp_elf_close(&file);
    return true;
}

/* How many bytes of `text` are a word that the loader replaces, and by what. */
static size_t opening_word(const char *text, size_t left, const char *needer, const char **instead, size_t *length)
{
    static const char *const words[] = {"$ORIGIN", "${ORIGIN}", "$LIB", "${LIB}"};
    for (size_t i = 0; i < GP_COUNT(words); i++) {
        size_t word = strlen(words[i]);
        if (left < word || strncmp(text, words[i], word) != 0)
            continue;
        *instead = i < 2 ? needer : VARIABLE_LIB;
        *length = i < 2 ? (size_t)(opening_base(needer) - needer) : strlen(VARIABLE_LIB);
        return word;
    }
    *instead = text;
    *length = 1;
    return 1;
}

/* Writes a path of the needer's to o->path; its length, or SIZE_MAX: there is no room. */
static size_t opening_expand(struct opening *o, const char *text, size_t length, const char *needer)
{
    size_t used = 0, bytes;
    for (size_t i = 0; i < length; used += bytes) {
        const char *instead;
        i += opening_word(text + i, length - i, needer, &instead, &bytes);
        if (bytes >= sizeof(o->path) - used)
            return SIZE_MAX;
        memcpy(o->path + used, instead, bytes);
    }
    o->path[used] = '\0';
    return used;
}

static bool opening_folder(struct opening *o, const char *folder, size_t length, const char *needer, const char *name)
{
    size_t used = opening_expand(o, folder, length, needer), room = sizeof(o->path) - used;
    int n = used == SIZE_MAX ? -1 : snprintf(o->path + used, room, "%s%s", used ? "/" : "", name);
    return n > 0 && (size_t)n < room && opening_file(o, o->path);
}

static bool opening_list(struct opening *o, const char *list, const char *needer, const char *name)
{
    while (list && *list) {
        size_t length = strcspn(list, ":;");
        if (opening_folder(o, list, length, needer, name))
            return true;
        list += length + (list[length] != '\0');
    }
    return false;
}

/* RPATH or RUNPATH of the file that needs it. */
static bool opening_beside(struct opening *o, const char *needer, const char *name)
{
    struct gp_elf_file file;
    bool found = false;
    if (!*needer || !gp_elf_open(&file, needer))
        return false;
    for (int i = 0; i < 2 && !found; i++) {
        uint64_t at = 0;
        const char *list = gp_elf_text(&file, i ? DT_RUNPATH : DT_RPATH, &at);
        found = opening_list(o, list, needer, name);
    }
    gp_elf_close(&file);
    return found;
}

/* The loader's cache has the path of each library as a string. */
static bool opening_cache(struct opening *o, const char *name)
{
    char wanted[256];
    bool found = false;
    int length = snprintf(wanted, sizeof(wanted), "/%s", name);
    int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    const char *text = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (text == MAP_FAILED || length >= (int)sizeof(wanted)) {
        if (text != MAP_FAILED)
            munmap((void *)(uintptr_t)text, (size_t)bytes);
        return false;
    }
    const char *at = text, *end = text + bytes;
    /* With the NUL at its end. */
    while (!found && (at = memmem(at, (size_t)(end - at), wanted, (size_t)length + 1))) {
        const char *begin = at;
        while (begin > text && begin[-1])
            begin--;
        found = opening_file(o, begin);
        at += length;
    }
    munmap((void *)(uintptr_t)text, (size_t)bytes);
    return found;
}

/* The places are those of the loader, without its folders for kinds of processors. */
static void opening_name(struct opening *o, const char *name, const char *needer)
{
    static const char usual[] = "/" VARIABLE_LIB ":/usr/" VARIABLE_LIB ":/lib64:/usr/lib64:/lib:/usr/lib";
    if (opening_is_loaded(name))
        return;
    if (strchr(name, '/')) {
        if (opening_expand(o, name, strlen(name), needer) != SIZE_MAX)
            opening_file(o, o->path);
        return;
    }
    if (!opening_beside(o, needer, name) && !opening_beside(o, o->text + o->caller, name) &&
        !opening_list(o, secure_getenv("LD_LIBRARY_PATH"), needer, name) && !opening_cache(o, name))
        opening_list(o, usual, needer, name);
}

void gp_variable_opening(const char *name, int flags, const void *caller)
{
    Dl_info info;
    int saved_errno = errno;
    if (!variable_count || !name || !*name || flags & RTLD_NOLOAD || gp_sandboxed() || opening_is_loaded(name))
        return;
    struct opening *o = mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (o != MAP_FAILED) {
        o->used = 1; /* 0: nothing was kept */
        bool is_known = GP_LOADER(dladdr(caller, &info)) && info.dli_fname && info.dli_fname[0] == '/';
        ssize_t length = is_known ? 0 : readlink("/proc/self/exe", o->path, sizeof(o->path) - 1);
        o->path[length > 0 ? length : 0] = '\0';
        o->caller = opening_keep(o, is_known ? info.dli_fname : o->path);
        opening_add(o, name, o->caller);
        for (unsigned i = 0; i < o->count; i++)
            opening_name(o, o->text + o->files[i].name, o->text + o->files[i].needer);
        munmap(o, sizeof(*o));
    }
    errno = saved_errno;
}
