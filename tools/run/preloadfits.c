/* SPDX-License-Identifier: MIT
 *
 * preloadfits.c: whether a library may be preloaded into a program, judged by the program's file;
 * see launch.h.  Called by preload.c.
 */
#include <base/compiler.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <run/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define GP_FIT_MACHINE EM_X86_64
#else
#define GP_FIT_MACHINE EM_AARCH64
#endif
/* Of a file that the user starts; what lies beyond is not looked at. */
#define GP_FIT_PARTS   64u
#define GP_FIT_ENTRIES 512u
#define GP_FIT_NAME    64u

struct gp_fit {
    int fd;
    bool sanitized;
    unsigned parts;
    Elf64_Phdr part[GP_FIT_PARTS];
};

/* As execvp does: a name with a slash is a path, any other is searched for in PATH. */
static int fit_open(const char *program)
{
    char path[PATH_MAX];
    if (strchr(program, '/'))
        return open(program, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const char *at = getenv("PATH");
    for (at = at ? at : "/bin:/usr/bin"; *at; at += strspn(at, ":")) {
        size_t length = strcspn(at, ":");
        int n = snprintf(path, sizeof(path), "%.*s/%s", (int)length, at, program);
        if (n > 0 && (size_t)n < sizeof(path) && access(path, X_OK) == 0)
            return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        at += length;
    }
    return -1;
}

static bool fit_read(const struct gp_fit *fit, void *to, size_t bytes, uint64_t offset)
{
    return offset <= INT64_MAX && pread(fit->fd, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Reads a text of the file; a longer one is cut. */
static void fit_text(const struct gp_fit *fit, char text[GP_FIT_NAME], uint64_t offset)
{
    ssize_t n = offset <= INT64_MAX ? pread(fit->fd, text, GP_FIT_NAME - 1, (off_t)offset) : 0;
    text[n > 0 ? n : 0] = '\0';
}

static uint64_t fit_offset(const struct gp_fit *fit, uint64_t address)
{
    for (unsigned i = 0; i < fit->parts; i++)
        if (fit->part[i].p_type == PT_LOAD && address >= fit->part[i].p_vaddr &&
            address - fit->part[i].p_vaddr < fit->part[i].p_filesz)
            return address - fit->part[i].p_vaddr + fit->part[i].p_offset;
    return UINT64_MAX;
}

/* A sanitizer's runtime ends the program if any library was loaded before it. */
static bool fit_is_sanitizer(const char *name)
{
    static const char *const runtimes[] = {"libasan.so", "libhwasan.so", "libtsan.so", "libclang_rt."};
    for (size_t i = 0; i < GP_COUNT(runtimes); i++)
        if (strncmp(name, runtimes[i], strlen(runtimes[i])) == 0)
            return true;
    return false;
}

static bool fit_needs_sanitizer(const struct gp_fit *fit, const Elf64_Phdr *dynamic)
{
    Elf64_Dyn entry[GP_FIT_ENTRIES];
    uint64_t strings = UINT64_MAX;
    char name[GP_FIT_NAME];
    size_t count = dynamic->p_filesz / sizeof(entry[0]);
    count = count < GP_FIT_ENTRIES ? count : GP_FIT_ENTRIES;
    if (!fit_read(fit, entry, count * sizeof(entry[0]), dynamic->p_offset))
        return false;
    for (size_t i = 0; i < count; i++)
        if (entry[i].d_tag == DT_STRTAB)
            strings = fit_offset(fit, entry[i].d_un.d_ptr);
    for (size_t i = 0; i < count && strings != UINT64_MAX && entry[i].d_tag != DT_NULL; i++) {
        if (entry[i].d_tag != DT_NEEDED)
            continue;
        fit_text(fit, name, strings + entry[i].d_un.d_val);
        if (fit_is_sanitizer(name))
            return true;
    }
    return false;
}

static bool fit_check(struct gp_fit *fit)
{
    Elf64_Ehdr head;
    char name[GP_FIT_NAME];
    if (!fit_read(fit, &head, sizeof(head), 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return true; /* a script */
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != GP_FIT_MACHINE)
        return false;
    fit->parts = head.e_phnum < GP_FIT_PARTS ? head.e_phnum : GP_FIT_PARTS;
    if (head.e_phentsize != sizeof(fit->part[0]) ||
        !fit_read(fit, fit->part, fit->parts * sizeof(fit->part[0]), head.e_phoff))
        return false;
    for (unsigned i = 0; i < fit->parts; i++) {
        if (fit->part[i].p_type == PT_INTERP) {
            fit_text(fit, name, fit->part[i].p_offset);
            if (strstr(name, "ld-musl"))
                return false;
        }
        if (fit->part[i].p_type == PT_DYNAMIC)
            fit->sanitized |= fit_needs_sanitizer(fit, &fit->part[i]);
    }
    return true;
}

static bool fit_look(const char *program, bool *sanitized)
{
    struct gp_fit fit = {.fd = fit_open(program)};
    bool fits = fit.fd >= 0 && fit_check(&fit);
    if (fit.fd >= 0)
        close(fit.fd);
    *sanitized = fits && fit.sanitized;
    return fits;
}

bool gp_preload_fits(const char *program)
{
    bool sanitized;
    return fit_look(program, &sanitized) && !sanitized;
}

bool gp_preload_is_sanitized(const char *program)
{
    bool sanitized;
    return fit_look(program, &sanitized) && sanitized;
}
