/* SPDX-License-Identifier: MIT
 *
 * Runs our reader of unwind tables over every function of the given libraries, at many places of each, and compares its
 * answers with those of elfutils.  The files are mapped as the loader does, and none of their code runs.
 * Prints per library how many functions it cannot follow, and "N passed, N failed".
 */
#define _GNU_SOURCE
#include "stack/internal.h"

#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Places of a function that are asked about: its first and last bytes, and every so many between. */
#define RULES_STEP 5

struct library {
    const char *name;
    uint8_t *base; /* where address 0 of the file lies */
    struct gp_cfi_table table;
    Dwarf_CFI *theirs;
    unsigned functions, places, ends, nones, compared, unread, differ;
};

static unsigned passed, failed;

static int library_map(struct library *library, int fd, const Elf64_Ehdr *file, const Elf64_Phdr *segments)
{
    uint64_t end = 0, at = 0;
    unsigned i;

    for (i = 0; i < file->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr + segments[i].p_memsz > end)
            end = segments[i].p_vaddr + segments[i].p_memsz;
    library->base = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (library->base == MAP_FAILED)
        return -1;
    for (i = 0; i < file->e_phnum; i++) {
        const Elf64_Phdr *s = &segments[i];
        if (s->p_type == PT_LOAD && pread(fd, library->base + s->p_vaddr, s->p_filesz, (off_t)s->p_offset) < 0)
            return -1;
        if (s->p_type == PT_GNU_EH_FRAME)
            at = s->p_vaddr;
    }
    for (i = 0; at && i < file->e_phnum; i++) {
        const Elf64_Phdr *s = &segments[i];
        if (s->p_type != PT_LOAD || at - s->p_vaddr >= s->p_memsz)
            continue;
        library->table.begin = library->base + s->p_vaddr;
        library->table.end = library->table.begin + s->p_filesz;
        library->table.header = library->base + at;
        return 0;
    }
    return -1;
}

/* ---- theirs --------------------------------------------------------------------------------------------------- */

/* Only these forms are compared: CFA = register + offset, and a register at CFA + offset. */
static int cfa_is(const Dwarf_Op *op, size_t n, unsigned *reg, int64_t *offset)
{
    if (n != 1)
        return 0;
    if (op->atom == DW_OP_bregx) {
        *reg = (unsigned)op->number;
        *offset = (int64_t)op->number2;
        return 1;
    }
    if (op->atom < DW_OP_breg0 || op->atom > DW_OP_breg31)
        return 0;
    *reg = op->atom - DW_OP_breg0;
    *offset = (int64_t)op->number;
    return 1;
}

static int saved_is(const Dwarf_Op *op, size_t n, int64_t *offset)
{
    if (n == 0 || op[0].atom != DW_OP_call_frame_cfa)
        return 0;
    *offset = 0;
    if (n == 1)
        return 1;
    *offset = (int64_t)op[1].number;
    return n == 2 && op[1].atom == DW_OP_plus_uconst;
}

static void rule_compare(struct library *library, uint64_t address, enum gp_cfi_answer answer,
                         const struct gp_cfi_rule *rule)
{
    Dwarf_Frame *frame = NULL;
    Dwarf_Op *ops, memory[3], memory2[3], *bp_ops, *ra_ops;
    size_t n, bp_n, ra_n;
    unsigned reg = 0;
    int64_t offset = 0, bp_offset = 0, ra_offset = 0;
    int right = 1, simple;

    if (dwarf_cfi_addrframe(library->theirs, address, &frame) != 0) {
        library->unread++;
        return;
    }
    if (dwarf_frame_cfa(frame, &ops, &n) != 0 || dwarf_frame_register(frame, 6, memory, &bp_ops, &bp_n) != 0 ||
        dwarf_frame_register(frame, 16, memory2, &ra_ops, &ra_n) != 0) {
        library->unread++;
        free(frame);
        return;
    }
    simple = cfa_is(ops, n, &reg, &offset) && saved_is(ra_ops, ra_n, &ra_offset) && (reg == 6 || reg == 7);
    if (simple) {
        library->compared++;
        right = answer == GP_CFI_RULE && !rule->deref && rule->offset == offset && rule->ra == GP_CFI_CFA &&
                rule->ra_offset == ra_offset && rule->base == (reg == 6 ? GP_CFI_BP : GP_CFI_SP);
        if (saved_is(bp_ops, bp_n, &bp_offset))
            right &= rule->bp == GP_CFI_CFA && rule->bp_offset == bp_offset;
        else if (bp_n == 0 && bp_ops == NULL) /* unchanged, or not said, which our reader takes for unchanged */
            right &= rule->bp == GP_CFI_SAME;
    }
    if (!right && library->differ++ < 10)
        printf(
            "%s: %#lx: ours %d: base %d offset %d ra %d%+d bp %d%+d; theirs register %u offset %ld ra %+ld bp %+ld\n",
            library->name, (unsigned long)address, answer, rule->base, rule->offset, rule->ra, rule->ra_offset,
            rule->bp, rule->bp_offset, reg, (long)offset, (long)ra_offset, (long)bp_offset);
    free(frame);
}

/* ---- every function ------------------------------------------------------------------------------------------- */

static void function_ask(struct library *library, uint64_t begin, uint64_t bytes)
{
    unsigned ends = 0, nones = 0;
    uint64_t at;

    for (at = 0; at < bytes; at += at + RULES_STEP < bytes || at == bytes - 1 ? RULES_STEP : bytes - 1 - at) {
        struct gp_cfi_rule rule = {0};
        /* The lookup takes a return address, and looks at the byte before it. */
        enum gp_cfi_answer answer =
            gp_cfi_find(&library->table, (uint64_t)(uintptr_t)library->base + begin + at + 1, &rule);
        library->places++;
        ends += answer == GP_CFI_END;
        nones += answer == GP_CFI_NONE;
        rule_compare(library, begin + at, answer, &rule);
    }
    library->functions++;
    library->ends += ends > 0;
    library->nones += nones > 0;
}

static void library_walk(struct library *library, Elf *elf, const Elf64_Phdr *segments, unsigned count)
{
    unsigned i;

    /* The section is found by its name: .eh_frame_hdr's table names each entry, but not its length. */
    Elf_Scn *section = NULL;
    size_t names = 0;
    GElf_Ehdr header;
    Elf_Data *data = NULL;
    uint64_t start = 0;

    (void)segments;
    (void)count;
    elf_getshdrstrndx(elf, &names);
    gelf_getehdr(elf, &header);
    while ((section = elf_nextscn(elf, section))) {
        GElf_Shdr shape;
        const char *name = gelf_getshdr(section, &shape) ? elf_strptr(elf, names, shape.sh_name) : NULL;
        if (name && strcmp(name, ".eh_frame") == 0 && shape.sh_type != SHT_NOBITS) {
            data = elf_getdata(section, NULL);
            start = shape.sh_addr;
        }
    }
    for (Dwarf_Off at = 0, next; data; at = next) {
        Dwarf_CFI_Entry entry;
        int32_t first;
        uint32_t length;
        if (dwarf_next_cfi((const unsigned char *)header.e_ident, data, true, at, &next, &entry) != 0)
            break;
        if (dwarf_cfi_cie_p(&entry))
            continue;
        /* Both numbers have 4 bytes and the first is relative to its place: the only form in these
         * libraries, and elfutils would answer for no address otherwise. */
        memcpy(&first, entry.fde.start, 4);
        memcpy(&length, entry.fde.start + 4, 4);
        i = (unsigned)(entry.fde.start - (const uint8_t *)data->d_buf);
        function_ask(library, start + i + (uint64_t)(int64_t)first, length);
    }
}

static void library_check(const char *path)
{
    struct library library = {.name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf *elf = fd >= 0 ? elf_begin(fd, ELF_C_READ_MMAP, NULL) : NULL;
    Elf64_Ehdr *header = elf ? elf64_getehdr(elf) : NULL;
    Elf64_Phdr *segments = header ? elf64_getphdr(elf) : NULL;

    if (!segments || library_map(&library, fd, header, segments) != 0 || !(library.theirs = dwarf_getcfi_elf(elf))) {
        printf("%s: cannot be read, or has no unwind table\n", path);
        failed++;
        return;
    }
    library_walk(&library, elf, segments, header->e_phnum);
    printf("%s: %u functions, %u places; without an answer at some place: %u, outermost or not to be followed: %u; "
           "%u places compared with elfutils, %u differ\n",
           library.name, library.functions, library.places, library.nones, library.ends, library.compared,
           library.differ);
    passed += library.compared - library.differ;
    failed += library.differ + (library.functions < 50) + library.nones;
    elf_end(elf);
    close(fd);
}

int main(int argc, char **argv)
{
    int i;

    elf_version(EV_CURRENT);
    for (i = 1; i < argc; i++)
        library_check(argv[i]);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
