/* SPDX-License-Identifier: MIT
 *
 * probe.c: finds gpuprof:batch in an ELF file by its SystemTap note. The file may come from any
 * container: every offset is checked against the file, every table is bounded, and the file is not
 * mapped (one that shrinks would kill the agent).
 */
#include "agent/kernel/bpf.h"
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECTIONS_MOST        4096u
#define PROBE_SEGMENTS_LIMIT 256u
#define PROBE_NOTES_LIMIT    65536u /* bytes; the library has one note of less than 100 */
#define NAMES_MOST           262144u

/* "8@%rdi -4@$12": encodes the first two arguments as the attach cookie of loaderabi.h. 0 or
 * -EINVAL. */
static int bpf_arguments(const char *text, uint64_t *cookie)
{
    return gp_bpf_arguments_of(GP_BPF_MACHINE, text, cookie);
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

static int read_at(int fd, uint64_t offset, void *to, size_t bytes)
{
    if (offset > INT64_MAX - bytes)
        return -ENOEXEC;
    ssize_t got;
    do
        got = pread(fd, to, bytes, (off_t)offset);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    return (size_t)got == bytes ? 0 : -ENOEXEC;
}

/* Reads a table of the file into malloc'ed memory, followed by a NUL. */
static int table_read(int fd, uint64_t offset, uint64_t bytes, uint64_t most, char **out)
{
    if (bytes == 0)
        return -ENOENT;
    if (bytes > most)
        return -EFBIG;
    char *table = malloc(bytes + 1);
    if (!table)
        return -ENOMEM;
    int error = read_at(fd, offset, table, bytes);
    table[bytes] = '\0';
    if (error)
        free(table);
    else
        *out = table;
    return error;
}

/* The file offset of an address, or 0. */
static uint64_t offset_of(const Elf64_Phdr *segments, unsigned count, uint64_t address)
{
    for (unsigned i = 0; i < count; i++)
        if (segments[i].p_type == PT_LOAD && address >= segments[i].p_vaddr &&
            address - segments[i].p_vaddr < segments[i].p_filesz)
            return segments[i].p_offset + (address - segments[i].p_vaddr);
    return 0;
}

/* Finds our note and returns its three addresses and its arguments. */
static int note_find(const char *notes, size_t bytes, uint64_t addresses[3], const char **arguments)
{
    static const char ours[] = "gpuprof\0batch"; /* and its NUL */
    for (size_t at = 0; bytes - at >= sizeof(Elf64_Nhdr);) {
        Elf64_Nhdr head;
        memcpy(&head, notes + at, sizeof head);
        at += sizeof head;
        size_t name = ((size_t)head.n_namesz + 3) & ~(size_t)3, body = ((size_t)head.n_descsz + 3) & ~(size_t)3;
        if (name > bytes - at || body > bytes - at - name)
            return -ENOEXEC;
        const char *text = notes + at + name;
        if (head.n_type == 3 && head.n_namesz == 8 && !memcmp(notes + at, "stapsdt", 8) &&
            head.n_descsz > 24 + sizeof ours && !memcmp(text + 24, ours, sizeof ours)) {
            memcpy(addresses, text, 24);
            *arguments = text + 24 + sizeof ours;
            return memchr(*arguments, '\0', head.n_descsz - 24 - sizeof ours) ? 0 : -ENOEXEC;
        }
        at += name + body;
    }
    return -ENOENT;
}

static int probe_fill(struct gp_bpf_probe *out, const Elf64_Phdr *segments, unsigned count, const uint64_t addresses[3],
                      uint64_t base, const char *arguments)
{
    /* Prelinking moves addresses but not those in the notes; the section .stapsdt.base tells by how
     * much. */
    uint64_t by = base ? base - addresses[1] : 0;
    out->offset = offset_of(segments, count, addresses[0] + by);
    out->semaphore_offset = addresses[2] ? offset_of(segments, count, addresses[2] + by) : 0;
    if (!out->offset || (addresses[2] && !out->semaphore_offset) || bpf_arguments(arguments, &out->cookie))
        return -ENOEXEC;
    return 0;
}

static int sections_search(int fd, const Elf64_Ehdr *head, const Elf64_Shdr *sections, const Elf64_Phdr *segments,
                           struct gp_bpf_probe *out)
{
    char *names = NULL, *notes = NULL;
    const Elf64_Shdr *table = &sections[head->e_shstrndx], *found = NULL;
    int error = table_read(fd, table->sh_offset, table->sh_size, NAMES_MOST, &names);
    if (error)
        return error;
    uint64_t base = 0, addresses[3];
    const char *arguments;
    for (unsigned i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_name >= table->sh_size)
            continue;
        const char *name = names + sections[i].sh_name;
        if (!strcmp(name, ".note.stapsdt") && sections[i].sh_type == SHT_NOTE)
            found = &sections[i];
        else if (!strcmp(name, ".stapsdt.base"))
            base = sections[i].sh_addr;
    }
    error = found ? table_read(fd, found->sh_offset, found->sh_size, PROBE_NOTES_LIMIT, &notes) : -ENOENT;
    if (!error)
        error = note_find(notes, found->sh_size, addresses, &arguments);
    if (!error)
        error = probe_fill(out, segments, head->e_phnum, addresses, base, arguments);
    free(notes);
    free(names);
    return error;
}

int gp_bpf_probe_find(int fd, struct gp_bpf_probe *out)
{
    Elf64_Ehdr head;
    int error = read_at(fd, 0, &head, sizeof head);
    if (error)
        return error;
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_machine != GP_BPF_MACHINE ||
        head.e_phentsize != sizeof(Elf64_Phdr) || head.e_shentsize != sizeof(Elf64_Shdr) ||
        head.e_phnum > PROBE_SEGMENTS_LIMIT || head.e_shnum > SECTIONS_MOST || head.e_shstrndx >= head.e_shnum)
        return -ENOEXEC;
    char *segments = NULL, *sections = NULL;
    error = table_read(fd, head.e_phoff, head.e_phnum * sizeof(Elf64_Phdr), PROBE_SEGMENTS_LIMIT * sizeof(Elf64_Phdr),
                       &segments);
    if (!error)
        error = table_read(fd, head.e_shoff, head.e_shnum * sizeof(Elf64_Shdr), SECTIONS_MOST * sizeof(Elf64_Shdr),
                           &sections);
    if (!error)
        error = sections_search(fd, &head, (const Elf64_Shdr *)sections, (const Elf64_Phdr *)segments, out);
    free(segments);
    free(sections);
    return error;
}
