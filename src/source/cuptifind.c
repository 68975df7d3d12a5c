/* SPDX-License-Identifier: MIT
 *
 * cuptifind.c: the copies of CUPTI that this process could use, and the name of the one that is
 * loaded; see internal.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "source/cuptifind.h"
#include "base/compiler.h"
#include "base/image.h"
#include "base/loader.h"
#include "source/internal.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ==== the name of a library ======================================================================================= */
/* Called by cupti.c, once for each copy that it loads.
 *
 * The loader reads the soname from the object's dynamic section each time that it looks for a name,
 * so one word changes the answer.  Another thread that waited for our dlopen may look in the
 * microseconds before that word is written.  A copy in a memory file could be changed before it is
 * loaded, but it would be a second copy beside the program's, and $ORIGIN and symbol readers would
 * not find its file. */

#define GP_SONAME_SKIP 3 /* "lib" */

struct gp_soname_look {
    const struct link_map *map;
    uintptr_t page, page_bytes;
    bool is_constant; /* the loader had made the page read-only after relocation */
};

static int soname_visit(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    struct gp_soname_look *look = arg;
    (void)bytes;
    if (info->dlpi_addr != look->map->l_addr || !info->dlpi_name || strcmp(info->dlpi_name, look->map->l_name) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type != PT_GNU_RELRO)
            continue;
        begin &= ~(look->page_bytes - 1);
        end &= ~(look->page_bytes - 1); /* the loader protects whole pages */
        look->is_constant = look->page >= begin && look->page < end;
    }
    return 1;
}

/* glibc has relocated the pointers of the dynamic section, musl has not. */
static const char *soname_text(const struct link_map *map, uintptr_t strings, uintptr_t offset)
{
    return (const char *)(strings < map->l_addr ? map->l_addr + strings : strings) + offset;
}

static bool soname_write(const struct link_map *map, ElfW(Dyn) * entry)
{
    struct gp_soname_look look = {.map = map, .page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE)};
    look.page = (uintptr_t)&entry->d_un & ~(look.page_bytes - 1);
    if (mprotect((void *)look.page, look.page_bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    /* One store: the loader may read it on another thread. */
    __atomic_store_n(&entry->d_un.d_val, entry->d_un.d_val + GP_SONAME_SKIP, __ATOMIC_RELEASE);
    /* While the process forks the list cannot be walked, and the page stays writable. */
    if (gp_loader_look(soname_visit, &look) && look.is_constant)
        mprotect((void *)look.page, look.page_bytes, PROT_READ);
    return true;
}

bool gp_cupti_hide_soname(void *handle)
{
    struct link_map *map = NULL;
    ElfW(Dyn) *name = NULL;
    uintptr_t strings = 0;
    if (GP_LOADER(dlinfo(handle, RTLD_DI_LINKMAP, &map)) != 0 || !map->l_ld)
        return false;
    for (ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SONAME)
            name = entry;
        if (entry->d_tag == DT_STRTAB)
            strings = entry->d_un.d_ptr;
    }
    if (!name)
        return true;
    if (!strings || strncmp(soname_text(map, strings, name->d_un.d_val), "lib", GP_SONAME_SKIP) != 0)
        return true; /* not a name that programs ask for, or shortened already */
    return soname_write(map, name);
}

/* ==== the search ================================================================================================== */
/* The loader's own search is repeated here by path, because a library that was opened by a bare name
 * keeps that name for the whole process (internal.h). */

/* Before CUDA 12 the soname has the minor version too. */
static const char *const cupti_names[] = {
    "libcupti.so.15",   "libcupti.so.14",   "libcupti.so.13",   "libcupti.so.12",   "libcupti.so.11.8",
    "libcupti.so.11.7", "libcupti.so.11.6", "libcupti.so.11.5", "libcupti.so.11.4", "libcupti.so.11.3",
    "libcupti.so.11.2", "libcupti.so.11.1", "libcupti.so.11.0", "libcupti.so",
};

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* CUPTI's file is named libcupti.so.2024.1.1, so the major version is in the name of the link. */
static uint32_t cupti_major(const char *path)
{
    const char *name = strstr(strrchr(path, '/') ? strrchr(path, '/') : path, "libcupti.so.");
    unsigned long major = name ? strtoul(name + strlen("libcupti.so."), NULL, 10) : 0;
    return major < 1000 ? (uint32_t)major : 0;
}

/* Two names of one file are one copy. */
static bool cupti_is_known(const struct gp_cupti_list *list, const char *path)
{
    static char mine[PATH_MAX], other[PATH_MAX]; /* of the one thread that starts the library; its stack may be small */
    if (!realpath(path, mine))
        return false;
    for (unsigned i = 0; i < list->count; i++)
        if (realpath(list->copies[i].path, other) && strcmp(mine, other) == 0)
            return true;
    return false;
}

static void cupti_add(struct gp_cupti_list *list, const char *path, enum gp_cupti_origin origin)
{
    if (strlen(path) >= GP_CUPTI_PATH || cupti_is_known(list, path))
        return;
    if (list->count == GP_CUPTI_COPIES) {
        list->left_out++;
        return;
    }
    struct gp_cupti_copy *copy = &list->copies[list->count];
    *copy = (struct gp_cupti_copy){.origin = origin, .major = cupti_major(path), .ordinal = list->count++};
    memcpy(copy->path, path, strlen(path) + 1);
}

static void cupti_folder(struct gp_cupti_list *list, const char *folder, size_t length, const char *below,
                         enum gp_cupti_origin origin)
{
    unsigned n = list->folder_count;
    if (n == GP_CUPTI_FOLDERS || length == 0 || length + strlen(below) >= GP_CUPTI_PATH ||
        (folder[0] != '/' && origin != GP_CUPTI_LOADED))
        return;
    snprintf(list->folders[n].path, GP_CUPTI_PATH, "%.*s%s", (int)length, folder, below);
    for (unsigned i = 0; i < n; i++)
        if (strcmp(list->folders[i].path, list->folders[n].path) == 0)
            return;
    list->folders[n].origin = origin;
    list->folder_count++;
}

/* ---- where to look ----------------------------------------------------------------------------------------------- */

static void cupti_beside_runtime(struct gp_cupti_list *list, const char *path)
{
    static const char *const below[] = {"", "/../../cuda_cupti/lib", "/../../cu13/lib", "/../extras/CUPTI/lib64"};
    size_t length = (size_t)(strrchr(path, '/') - path);
    for (size_t i = 0; i < GP_COUNT(below); i++)
        cupti_folder(list, path, length, below[i], GP_CUPTI_RUNTIME);
}

/* The folder of Python packages that a loaded object belongs to.  Extension modules of the standard
 * library lie beside that folder. */
static void cupti_wheels(struct gp_cupti_list *list, const char *path)
{
    static const struct {
        const char *part;
        size_t keep; /* of the part */
        const char *below;
    } places[] = {{"/site-packages/", 14, ""}, {"/dist-packages/", 14, ""}, {"/lib-dynload/", 0, "/site-packages"}};
    char folder[GP_CUPTI_PATH];
    for (size_t i = 0; i < GP_COUNT(places); i++) {
        const char *at = strstr(path, places[i].part);
        if (!at || (size_t)(at - path) + 64 > sizeof(folder))
            continue;
        snprintf(folder, sizeof(folder), "%.*s%s", (int)((size_t)(at - path) + places[i].keep), path, places[i].below);
        cupti_folder(list, folder, strlen(folder), "/nvidia/cuda_cupti/lib", GP_CUPTI_WHEEL);
        cupti_folder(list, folder, strlen(folder), "/nvidia/cu13/lib", GP_CUPTI_WHEEL);
    }
}

/* Under the loader's lock: only notes names.  A loaded copy is kept as a folder until then. */
static int cupti_visit(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    struct gp_cupti_list *list = arg;
    const char *path = info->dlpi_name, *name = path ? strrchr(path, '/') : NULL;
    (void)bytes;
    if (!name || strlen(path) >= GP_CUPTI_PATH)
        return 0;
    if (strncmp(name, "/libcupti.so", strlen("/libcupti.so")) == 0)
        cupti_folder(list, path, strlen(path), "", GP_CUPTI_LOADED);
    if (strncmp(name, "/libcudart.so", strlen("/libcudart.so")) == 0)
        cupti_beside_runtime(list, path);
    cupti_wheels(list, path);
    return 0;
}

static void cupti_library_path(struct gp_cupti_list *list)
{
    const char *at = secure_getenv("LD_LIBRARY_PATH");
    while (at && *at) {
        size_t length = strcspn(at, ":;");
        cupti_folder(list, at, length, "", GP_CUPTI_PATH_LIST);
        at += length + (at[length] != '\0');
    }
}

/* The loader's cache has the path of each library as a string.  The entry
 * that fits this process need not be known: a library for another machine fails to load. */
static void cupti_loader_cache(struct gp_cupti_list *list)
{
    static const char wanted[] = "/libcupti.so";
    int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    const char *text = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (text == MAP_FAILED)
        return;
    const char *at = text, *end = text + bytes;
    while ((at = memmem(at, (size_t)(end - at), wanted, strlen(wanted)))) {
        const char *begin = at;
        while (begin > text && begin[-1])
            begin--;
        cupti_folder(list, begin, (size_t)(at - begin), "", GP_CUPTI_SYSTEM);
        at += strlen(wanted);
    }
    munmap((void *)(uintptr_t)text, (size_t)bytes);
}

static void cupti_toolkit(struct gp_cupti_list *list, const char *home, enum gp_cupti_origin origin)
{
    static const char *const below[] = {"/extras/CUPTI/lib64", "/lib64", "/lib", "/targets/x86_64-linux/lib",
                                        "/targets/sbsa-linux/lib"};
    for (size_t i = 0; home && i < GP_COUNT(below); i++)
        cupti_folder(list, home, strlen(home), below[i], origin);
}

/* A Python that has loaded no extension module yet does not show where its packages are. */
static void cupti_environment(struct gp_cupti_list *list, const char *root)
{
    char folder[GP_CUPTI_PATH];
    for (unsigned minor = 8; root && minor < 20; minor++) {
        int n = snprintf(folder, sizeof(folder), "%s/lib/python3.%u/site-packages/nvidia", root, minor);
        if (n < 0 || (size_t)n >= sizeof(folder) || access(folder, X_OK) != 0)
            continue;
        cupti_folder(list, folder, (size_t)n, "/cuda_cupti/lib", GP_CUPTI_NAMED);
        cupti_folder(list, folder, (size_t)n, "/cu13/lib", GP_CUPTI_NAMED);
    }
}

static void cupti_named(struct gp_cupti_list *list)
{
    static const char *const homes[] = {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"};
    for (size_t i = 0; i < GP_COUNT(homes); i++)
        cupti_toolkit(list, secure_getenv(homes[i]), GP_CUPTI_NAMED);
    cupti_environment(list, secure_getenv("VIRTUAL_ENV"));
    cupti_environment(list, secure_getenv("CONDA_PREFIX"));
}

static void cupti_system(struct gp_cupti_list *list)
{
    static const char *const folders[] = {
#if defined(__x86_64__)
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
#else
        "/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
#endif
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    };
    cupti_loader_cache(list);
    for (size_t i = 0; i < GP_COUNT(folders); i++)
        cupti_folder(list, folders[i], strlen(folders[i]), "", GP_CUPTI_SYSTEM);
    cupti_toolkit(list, "/usr/local/cuda", GP_CUPTI_SYSTEM);
    cupti_toolkit(list, "/opt/cuda", GP_CUPTI_SYSTEM);
}

static void cupti_look(struct gp_cupti_list *list, unsigned folder)
{
    char path[GP_CUPTI_PATH + 32];
    if (list->folders[folder].origin == GP_CUPTI_LOADED) {
        cupti_add(list, list->folders[folder].path, GP_CUPTI_LOADED);
        return;
    }
    if (access(list->folders[folder].path, X_OK) != 0)
        return;
    for (size_t i = 0; i < GP_COUNT(cupti_names); i++) {
        snprintf(path, sizeof(path), "%s/%s", list->folders[folder].path, cupti_names[i]);
        if (access(path, R_OK) == 0)
            cupti_add(list, path, list->folders[folder].origin);
    }
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

struct cupti_user {
    const char *function;
    bool found;
};

static void cupti_user_slot(void *arg, const char *symbol, uint64_t *slot)
{
    struct cupti_user *user = arg;
    (void)slot;
    user->found |= strcmp(symbol, user->function) == 0;
}

static int cupti_user_visit(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    struct cupti_user *user = arg;
    struct gp_image image;
    (void)bytes;
    if (gp_image_read(&image, info) && gp_image_needs(&image, "libcupti.so"))
        gp_image_slots(&image, cupti_user_slot, user);
    return user->found;
}

bool gp_cupti_find_user(const char *function)
{
    struct cupti_user user = {function, false};
    gp_loader_look(cupti_user_visit, &user);
    return user.found;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* A copy that is loaded is tried first, whatever its version: if the program uses it, it fits.  An
 * older CUPTI works under a newer driver; a newer one under an older driver returns an error, so it
 * comes last. */
static bool cupti_precedes(const struct gp_cupti_copy *a, const struct gp_cupti_copy *b)
{
    if (a->is_too_new != b->is_too_new)
        return b->is_too_new;
    if (a->origin != b->origin)
        return a->origin < b->origin;
    if (a->major != b->major)
        return a->major > b->major;
    return a->ordinal < b->ordinal;
}

/* Returns the best copy that was not returned before, or NULL.  too_new: include copies that are
 * too new for the driver. */
static struct gp_cupti_copy *cupti_best(struct gp_cupti_list *list, bool too_new)
{
    struct gp_cupti_copy *best = NULL;
    for (unsigned i = 0; i < list->count; i++) {
        struct gp_cupti_copy *copy = &list->copies[i];
        if (copy->is_given || (copy->is_too_new && !too_new))
            continue;
        if (!best || cupti_precedes(copy, best))
            best = copy;
    }
    return best;
}

static void cupti_look_at(struct gp_cupti_list *list, enum gp_cupti_origin origin)
{
    unsigned first = list->count;
    if (origin == GP_CUPTI_PATH_LIST)
        cupti_library_path(list);
    if (origin == GP_CUPTI_NAMED)
        cupti_named(list);
    if (origin == GP_CUPTI_SYSTEM)
        cupti_system(list);
    for (unsigned i = 0; i < list->folder_count; i++)
        if (list->folders[i].origin == origin)
            cupti_look(list, i);
    for (unsigned i = first; i < list->count; i++)
        list->copies[i].is_too_new =
            origin != GP_CUPTI_LOADED && list->driver_version && list->copies[i].major > list->driver_version / 1000;
}

void gp_cupti_find_begin(struct gp_cupti_list *list, uint32_t driver_version)
{
    list->count = list->left_out = list->folder_count = 0;
    list->driver_version = driver_version;
    gp_loader_look(cupti_visit, list);
    list->looked = GP_CUPTI_LOADED;
    cupti_look_at(list, GP_CUPTI_LOADED);
}

const char *gp_cupti_find_next(struct gp_cupti_list *list)
{
    struct gp_cupti_copy *copy;
    while (!(copy = cupti_best(list, list->looked == GP_CUPTI_SYSTEM)) && list->looked < GP_CUPTI_SYSTEM)
        cupti_look_at(list, ++list->looked);
    if (!copy)
        return NULL;
    copy->is_given = true;
    return copy->path;
}
