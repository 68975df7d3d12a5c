/* SPDX-License-Identifier: MIT
 * debugfile.c: finds the files that hold an object's debug information (internal.h). */
#include <symbol/internal.h>

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <errno.h>
#include <limits.h>
#include <read/common/elfimage.h>
#include <read/common/foreign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEBUG_FOLDER   "/usr/lib/debug"
#define DEBUG_CRC_MOST (1u << 30) /* bytes that are read for a checksum; a sparse file may be larger */

struct debug_want { /* the build ID, or if there is none the checksum */
    const unsigned char *id;
    size_t id_bytes;
    uint32_t crc;
    bool has_crc;
};

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* The checksum of .gnu_debuglink: CRC-32 as in zlib. */
static bool debug_crc(int fd, uint32_t want)
{
    unsigned char bytes[65536];
    uint32_t table[256], crc = ~0u;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320u : table[i] >> 1;
    }
    off_t at = 0;
    ssize_t got;
    for (; at < DEBUG_CRC_MOST && (got = pread(fd, bytes, sizeof(bytes), at)) > 0; at += got)
        for (ssize_t i = 0; i < got; i++)
            crc = table[(crc ^ bytes[i]) & 255] ^ crc >> 8;
    return at < DEBUG_CRC_MOST && ~crc == want;
}

static bool debug_has_id(int fd, const struct debug_want *want)
{
    const void *id;
    Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
    ssize_t bytes = elf ? dwelf_elf_gnu_build_id(elf, &id) : -1;
    bool fits = bytes > 0 && (size_t)bytes == want->id_bytes && memcmp(id, want->id, want->id_bytes) == 0;
    elf_end(elf);
    return fits;
}

/* A private copy of the file, if it is the one that is wanted (-EBADMSG); closes the file. */
static int debug_copy(struct gp_object *object, const struct debug_want *want, int file)
{
    uint64_t before = *object->room;
    bool is_cut, fits = want->id_bytes || (want->has_crc && debug_crc(file, want->crc));
    int fd = fits ? gp_elf_image(file, GP_ELF_NAMES, object->room, &is_cut) : -EBADMSG;
    close(file);
    if (fd >= 0 && want->id_bytes && !debug_has_id(fd, want)) {
        close(fd);
        *object->room = before;
        return -EBADMSG;
    }
    object->is_cut |= fd == -EFBIG || (fd >= 0 && is_cut);
    return fd;
}

/* The file is there: it is another build's, is no ELF file, or its file system does not answer. */
static void debug_refused(struct gp_object *object, const char *path, int error)
{
    if ((error == -EBADMSG || error == -ENOEXEC || error == -ETIMEDOUT) && !object->refused)
        object->refused = strdup(path);
}

/* Tries the user's folder, the process's own root and then ours. */
static int debug_try(struct gp_object *object, const struct debug_want *want, const char *path)
{
    const char *roots[] = {object->root, ""};
    int below = object->symfs ? gp_foreign_below(object->symfs, path) : -1;
    if (below >= 0 && (below = debug_copy(object, want, below)) >= 0)
        return below;
    if (object->symfs)
        debug_refused(object, path, below);
    for (int i = object->root[0] ? 0 : 1; i < 2; i++) {
        int file = gp_foreign_open(roots[i], path), fd = file < 0 ? file : debug_copy(object, want, file);
        if (fd >= 0)
            return fd;
        debug_refused(object, path, fd);
    }
    return -1;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static int debug_by_id(struct gp_object *object, const struct debug_want *want, char path[PATH_MAX])
{
    if (want->id_bytes < 2 || want->id_bytes > 64)
        return -1;
    int at = snprintf(path, PATH_MAX, "%s/.build-id/%02x/", DEBUG_FOLDER, want->id[0]);
    for (size_t i = 1; i < want->id_bytes; i++)
        at += snprintf(path + at, PATH_MAX - (size_t)at, "%02x", want->id[i]);
    snprintf(path + at, PATH_MAX - (size_t)at, ".debug");
    return debug_try(object, want, path);
}

static int debug_by_link(struct gp_object *object, const struct debug_want *want, const char *link, char path[PATH_MAX])
{
    static const char *const forms[] = {"%.*s/%s", "%.*s/.debug/%s", DEBUG_FOLDER "%.*s/%s"};
    const char *slash = strrchr(object->path, '/');
    for (int i = 0; slash && i < 3; i++) {
        int fd, folder = (int)(slash - object->path);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        if (snprintf(path, PATH_MAX, forms[i], folder, object->path, link) >= PATH_MAX)
            continue;
#pragma GCC diagnostic pop
        if ((fd = debug_try(object, want, path)) >= 0)
            return fd;
    }
    return -1;
}

int gp_debugfile_find(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, const char *file,
                      const char *link, GElf_Word crc, char **found)
{
    struct gp_object *object = *userdata;
    struct debug_want want = {.crc = crc, .has_crc = link != NULL};
    char path[PATH_MAX];
    GElf_Addr address;
    (void)file;
    if (!object || (link && !crc)) /* the name of a .gnu_debugaltlink, which dwarf.c follows */
        return -1;
    int bytes = dwfl_module_build_id(module, &want.id, &address);
    want.id_bytes = bytes > 0 ? (size_t)bytes : 0;
    int fd = debug_by_id(object, &want, path);
    if (fd < 0 && link)
        fd = debug_by_link(object, &want, link, path);
    if (fd >= 0) {
        *found = strdup(path);
        object->debug_fd = fd;
        return fd;
    }
    /* Without a file's name, and with a search path that has no folder (object.c), elfutils only asks
     * debuginfod. */
    const char *servers = getenv("DEBUGINFOD_URLS");
    if (!servers || !servers[0])
        return -1;
    fd = dwfl_standard_find_debuginfo(module, userdata, name, base, NULL, NULL, 0, found);
    if (fd >= 0)
        fd = debug_copy(object, &want, fd);
    if (fd < 0) {
        free(*found);
        *found = NULL; /* elfutils would open the file of that name */
    }
    return object->debug_fd = fd < 0 ? -1 : fd;
}

int gp_debugfile_shared(struct gp_object *object, const char *beside, const char *name, const void *id, size_t id_bytes)
{
    struct debug_want want = {.id = id, .id_bytes = id_bytes};
    char path[PATH_MAX];
    const char *slash = strrchr(beside, '/');
    int fd = debug_by_id(object, &want, path);
    if (fd >= 0 || !id_bytes)
        return fd;
    int bytes = name[0] == '/' || !slash ? snprintf(path, sizeof(path), "%s", name)
                                         : snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - beside), beside, name);
    return bytes < (int)sizeof(path) ? debug_try(object, &want, path) : -1;
}

/* ---- split DWARF ------------------------------------------------------------------------------------------------- */

/* Whether a file or folder is root's or ours; *is_shared: others may make entries in it, but not
 * replace those of others (sticky). */
static bool split_is_ours(const struct stat *st, bool *is_shared)
{
    bool others = st->st_mode & S_IWOTH || (st->st_mode & S_IWGRP && st->st_gid != getegid());
    *is_shared = S_ISDIR(st->st_mode) && others;
    return (st->st_uid == 0 || st->st_uid == geteuid()) && (!*is_shared || st->st_mode & S_ISVTX);
}

static bool split_is_safe(const char *path)
{
    char at[PATH_MAX];
    bool is_shared = false;
    size_t length = strlen(path);
    if (path[0] != '/' || length >= sizeof(at))
        return false;
    for (size_t end = 1; end <= length; end++) {
        struct stat st;
        if (end < length && end > 1 && path[end] != '/')
            continue;
        memcpy(at, path, end);
        at[end] = '\0';
        if (lstat(at, &st) != 0)
            return errno == ENOENT && !is_shared;
        bool is_link = S_ISLNK(st.st_mode);
        if (is_link && ((st.st_uid != 0 && st.st_uid != geteuid()) || end == length || stat(at, &st) != 0))
            return false;
        if (!split_is_ours(&st, &is_shared) || !(S_ISDIR(st.st_mode) || (end == length && S_ISREG(st.st_mode))))
            return false;
    }
    return true;
}

bool gp_debugfile_is_package(int fd)
{
    char link[32], path[PATH_MAX + 8];
    struct stat file, named;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX);
    if (n <= 0 || n >= PATH_MAX)
        return false;
    path[n] = '\0';
    bool is_safe = split_is_safe(path) && fstat(fd, &file) == 0 && stat(path, &named) == 0 &&
                   file.st_dev == named.st_dev && file.st_ino == named.st_ino;
    memcpy(path + n, ".dwp", sizeof(".dwp"));
    return is_safe && access(path, F_OK) == 0 && split_is_safe(path);
}

static bool split_join(const char *folder, const char *between, const char *name)
{
    char path[PATH_MAX];
    const char *start = name[0] == '/' ? "" : between[0] == '/' ? between : folder;
    const char *middle = name[0] == '/' || between[0] == '/' ? "" : between;
    return snprintf(path, sizeof(path), "%s/%s/%s", start, middle, name) < (int)sizeof(path) && split_is_safe(path);
}

/* libdw looks beside the file that it reads, for NAME and in newer versions for FILE.dwp, then in
 * the unit's own folder. */
static bool split_beside(int fd, const char *folder, const char *name)
{
    char link[32], path[PATH_MAX + 8];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX);
    if (n <= 0 || n >= PATH_MAX)
        return false;
    memcpy(path + n, ".dwp", sizeof(".dwp"));
    if (!split_is_safe(path))
        return false;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return split_join(path, "", name) && split_join(path, folder, name);
}

bool gp_debugfile_split(const struct gp_object *object, Dwarf_Die *unit)
{
    Dwarf_Attribute attribute;
    const char *name = dwarf_formstring(dwarf_attr(unit, DW_AT_dwo_name, &attribute));
    if (!name)
        name = dwarf_formstring(dwarf_attr(unit, DW_AT_GNU_dwo_name, &attribute));
    const char *folder = dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
    return name && split_beside(object->fd, folder ? folder : "", name) &&
           (object->debug_fd < 0 || split_beside(object->debug_fd, folder ? folder : "", name));
}
