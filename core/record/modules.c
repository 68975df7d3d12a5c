/* SPDX-License-Identifier: MIT
 * modules.c: executable mappings and build IDs; see modules.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include "record/modules.h"
#include "base/vma.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Paths of GP_MODULES_MOST objects of 256 bytes each; pages are used only as they fill. */
#define GP_MODULES_PATHS (1u << 20)
/* An object has a dozen program headers, and the note of its build ID is among the first few
 * hundred bytes of its segment. */
#define GP_MODULES_HEADERS 128u
#define GP_MODULES_NOTES   4096u

struct gp_modules_work { /* scratch memory, in the arena behind the rows and paths */
    const char *proc;
    gp_modules_open *open;
    char lines[GP_VMA_LINE];
    Elf64_Phdr headers[GP_MODULES_HEADERS];
    uint8_t notes[GP_MODULES_NOTES];
};

static size_t modules_arena(void)
{
    return GP_MODULES_MOST * sizeof(struct gp_module) + GP_MODULES_PATHS + sizeof(struct gp_modules_work);
}

/* ---- build ids --------------------------------------------------------------------------------------------------- */

static bool modules_pread(int fd, void *into, size_t bytes, uint64_t offset)
{
    return offset <= INT64_MAX - bytes && pread(fd, into, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Takes the build ID from the note NT_GNU_BUILD_ID among `bytes` of notes. */
static void modules_note(struct gp_module *module, const uint8_t *notes, size_t bytes)
{
    Elf64_Nhdr note;
    for (size_t at = 0; bytes - at >= sizeof(note);) {
        memcpy(&note, notes + at, sizeof(note));
        at += sizeof(note);
        uint64_t name = ((uint64_t)note.n_namesz + 3) & ~3ull, text = ((uint64_t)note.n_descsz + 3) & ~3ull;
        if (name > bytes - at || text > bytes - at - name)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + at, "GNU", 4) == 0 &&
            note.n_descsz > 0 && note.n_descsz <= sizeof(module->build_id)) {
            module->build_id_bytes = (uint8_t)note.n_descsz;
            memcpy(module->build_id, notes + at + name, note.n_descsz);
            return;
        }
        at += name + text;
    }
}

static void modules_elf(struct gp_module *module, struct gp_modules_work *work, int fd)
{
    Elf64_Ehdr elf;
    if (!modules_pread(fd, &elf, sizeof(elf), 0) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 ||
        elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_ident[EI_DATA] != ELFDATA2LSB ||
        elf.e_phentsize != sizeof(Elf64_Phdr))
        return;
    size_t count = elf.e_phnum < GP_MODULES_HEADERS ? elf.e_phnum : GP_MODULES_HEADERS;
    if (!modules_pread(fd, work->headers, count * sizeof(Elf64_Phdr), elf.e_phoff))
        return;
    for (size_t i = 0; i < count && !module->build_id_bytes; i++) {
        const Elf64_Phdr *header = &work->headers[i];
        if (header->p_type != PT_NOTE)
            continue;
        size_t bytes = header->p_filesz < sizeof(work->notes) ? header->p_filesz : sizeof(work->notes);
        if (modules_pread(fd, work->notes, bytes, header->p_offset))
            modules_note(module, work->notes, bytes);
    }
}

/* The path is valid in the process's own root. The file there may have been replaced since it was
 * mapped, by a pipe or a device too, so it is held (O_PATH) before it is opened. Only the inode is
 * compared: on layered file systems (overlay, btrfs) maps and stat disagree about the device. */
int gp_modules_open_file(const char *proc, const struct gp_vma *file)
{
    struct stat status;
    char held_path[64], full[GP_VMA_LINE + 64];
    snprintf(full, sizeof(full), "%s/root%s", proc, file->path);
    int held = open(full, O_PATH | O_CLOEXEC), fd = -1;
    if (held < 0)
        return -1;
    if (fstat(held, &status) == 0 && S_ISREG(status.st_mode) && (uint64_t)status.st_ino == file->inode) {
        /* The recorder in the profiled process has a table of descriptors of its own, so this is not
         * /proc/self/fd. Before Linux 3.17 there is no thread-self. */
        snprintf(held_path, sizeof(held_path), "/proc/thread-self/fd/%d", held);
        fd = open(held_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 && errno == ENOENT) {
            snprintf(held_path, sizeof(held_path), "/proc/self/task/%d/fd/%d", (int)syscall(SYS_gettid), held);
            fd = open(held_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        }
    }
    close(held);
    return fd;
}

static void modules_build_id(struct gp_module *module, struct gp_modules_work *work, const struct gp_vma *file)
{
    int fd = module->path[0] == '/' ? work->open(work->proc, file) : -1;
    if (fd < 0)
        return;
    modules_elf(module, work, fd);
    close(fd);
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

struct modules_reader {
    struct gp_modules *modules;
    struct gp_modules_work *work;
};

static bool modules_add(void *context, const struct gp_vma *mapping)
{
    const struct modules_reader *reader = context;
    struct gp_modules *modules = reader->modules;
    if (mapping->rights[2] != 'x')
        return true;
    const struct gp_module *last = modules->count ? &modules->rows[modules->count - 1] : NULL;
    size_t length = strlen(mapping->path) + 1;
    bool same = last && strcmp(last->path, mapping->path) == 0 && *mapping->path == '/';
    if (modules->count == GP_MODULES_MOST || (!same && length > GP_MODULES_PATHS - modules->path_bytes) ||
        (last && mapping->start < last->end)) {
        modules->truncated = true;
        return true;
    }
    struct gp_module *module = &modules->rows[modules->count++];
    *module = (struct gp_module){.start = mapping->start, .end = mapping->end, .offset = mapping->offset};
    if (same) {
        module->path = last->path;
        module->build_id_bytes = last->build_id_bytes;
        memcpy(module->build_id, last->build_id, sizeof(module->build_id));
        return true;
    }
    module->path = memcpy(modules->paths + modules->path_bytes, mapping->path, length);
    modules->path_bytes += (uint32_t)length;
    modules_build_id(module, reader->work, mapping);
    return true;
}

int gp_modules_read(struct gp_modules *modules, const char *proc, gp_modules_open *open_file)
{
    char name[64];
    memset(modules, 0, sizeof(*modules));
    snprintf(name, sizeof(name), "%.50s/maps", proc);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    char *arena = mmap(NULL, modules_arena(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int error = arena == MAP_FAILED ? -ENOMEM : 0;
    if (!error) {
        modules->rows = (struct gp_module *)(void *)arena;
        modules->paths = arena + GP_MODULES_MOST * sizeof(struct gp_module);
        struct gp_modules_work *work = (struct gp_modules_work *)(void *)(modules->paths + GP_MODULES_PATHS);
        work->proc = proc;
        work->open = open_file ? open_file : gp_modules_open_file;
        error = gp_vma_walk(fd, work->lines, sizeof(work->lines), SIZE_MAX, modules_add,
                            &(struct modules_reader){modules, work});
        if (error == -E2BIG) { /* damage: the rest is left out */
            modules->truncated = true;
            error = 0;
        }
        if (error)
            gp_modules_free(modules);
    }
    close(fd);
    return error;
}

const struct gp_module *gp_modules_find(const struct gp_modules *modules, uint64_t pc)
{
    uint32_t low = 0, high = modules->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (modules->rows[middle].end <= pc)
            low = middle + 1;
        else
            high = middle;
    }
    return low < modules->count && modules->rows[low].start <= pc ? &modules->rows[low] : NULL;
}

void gp_modules_free(struct gp_modules *modules)
{
    if (modules->rows)
        munmap(modules->rows, modules_arena());
    memset(modules, 0, sizeof(*modules));
}
