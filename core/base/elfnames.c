/* SPDX-License-Identifier: MIT
 * elfnames.c: which symbols an object defines; see elfnames.h. Called by source/variable.c. */
#include "base/elfnames.h"
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ELF_MACHINE EM_X86_64
#else
#define ELF_MACHINE EM_AARCH64
#endif

/* ---- hash tables ------------------------------------------------------------------------------------------------- */

uint32_t gp_elf_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static uint32_t elf_sysv_hash(const char *name)
{
    uint32_t hash = 0;
    for (; *name; name++) {
        hash = (hash << 4) + (unsigned char)*name;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    return hash;
}

/* Whether symbol `i` is a definition of the name for others. */
static bool elf_defines(const struct gp_elf_names *names, uint32_t i, const char *name)
{
    const ElfW(Sym) *symbol = &names->symbols[i];
    size_t length = strlen(name) + 1;
    unsigned visibility = symbol->st_other & 3;
    return symbol->st_shndx != SHN_UNDEF && (visibility == STV_DEFAULT || visibility == STV_PROTECTED) &&
           symbol->st_name < names->string_bytes && names->string_bytes - symbol->st_name >= length &&
           memcmp(names->strings + symbol->st_name, name, length) == 0;
}

/* Bucket count, first hashed symbol, words of the filter (64 bits each), shift; filter, buckets, chains. */
static const ElfW(Sym) * elf_find_gnu(const struct gp_elf_names *names, const char *name, uint32_t hash)
{
    const uint32_t *gnu = names->gnu;
    uint64_t filter_words = names->gnu_words >= 4 ? gnu[2] : 0, buckets = 4 + 2 * filter_words;
    if (!filter_words || !gnu[0] || buckets + gnu[0] > names->gnu_words)
        return NULL;
    uint64_t word, bits = 1ull << hash % 64 | 1ull << (hash >> (gnu[3] & 31)) % 64;
    memcpy(&word, gnu + 4 + 2 * (hash / 64 % filter_words), sizeof(word));
    if ((word & bits) != bits)
        return NULL;
    uint64_t i = gnu[buckets + hash % gnu[0]], chains = buckets + gnu[0];
    for (; i >= gnu[1] && i < names->symbol_count && chains + (i - gnu[1]) < names->gnu_words; i++) {
        uint32_t chain = gnu[chains + (i - gnu[1])];
        if ((chain ^ hash) >> 1 == 0 && elf_defines(names, (uint32_t)i, name))
            return &names->symbols[i];
        if (chain & 1)
            return NULL;
    }
    return NULL;
}

/* Bucket count, chain count; buckets, chains. */
static const ElfW(Sym) * elf_find_sysv(const struct gp_elf_names *names, const char *name)
{
    const uint32_t *sysv = names->sysv;
    if (names->sysv_words < 2 || !sysv[0] || 2ull + sysv[0] + sysv[1] > names->sysv_words)
        return NULL;
    uint32_t i = sysv[2 + elf_sysv_hash(name) % sysv[0]];
    for (uint32_t steps = 0; i && i < sysv[1] && i < names->symbol_count && steps < sysv[1]; steps++) {
        if (elf_defines(names, i, name))
            return &names->symbols[i];
        i = sysv[2 + sysv[0] + i];
    }
    return NULL;
}

const ElfW(Sym) * gp_elf_find(const struct gp_elf_names *names, const char *name, uint32_t hash)
{
    if (!names->symbols || !names->strings)
        return NULL;
    return names->gnu ? elf_find_gnu(names, name, hash) : names->sysv ? elf_find_sysv(names, name) : NULL;
}

bool gp_elf_is_variable(const ElfW(Sym) * symbol)
{
    unsigned type = symbol->st_info & 15;
    return type == STT_OBJECT || type == STT_COMMON || type == STT_TLS;
}

void gp_elf_of_image(struct gp_elf_names *names, const struct gp_image *image)
{
    *names = (struct gp_elf_names){.symbols = image->symbols,
                                   .symbol_count = UINT32_MAX,
                                   .strings = image->strings,
                                   .string_bytes = UINT32_MAX,
                                   .gnu = image->hash,
                                   .gnu_words = UINT32_MAX,
                                   .sysv = image->sysv,
                                   .sysv_words = UINT32_MAX};
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* What lies at an address of the object, and how many bytes of its segment follow it in the file. */
static const void *elf_at(const struct gp_elf_file *file, uint64_t address, uint64_t *room)
{
    const ElfW(Ehdr) *head = (const void *)file->map;
    const ElfW(Phdr) *part = (const void *)(file->map + head->e_phoff);
    for (unsigned i = 0; i < head->e_phnum; i++) {
        uint64_t in = address - part[i].p_vaddr;
        if (part[i].p_type != PT_LOAD || address < part[i].p_vaddr || in >= part[i].p_filesz ||
            part[i].p_offset > file->bytes || in >= file->bytes - part[i].p_offset)
            continue;
        uint64_t segment = part[i].p_filesz - in, rest = file->bytes - part[i].p_offset - in;
        *room = segment < rest ? segment : rest;
        return file->map + part[i].p_offset + in;
    }
    *room = 0;
    return NULL;
}

static void elf_tables(struct gp_elf_file *file)
{
    struct gp_elf_names *names = &file->names;
    uint64_t room;
    for (uint64_t i = 0; i < file->dynamic_count && file->dynamic[i].d_tag != DT_NULL; i++) {
        uint64_t value = file->dynamic[i].d_un.d_val;
        switch (file->dynamic[i].d_tag) {
        case DT_SYMTAB:
            names->symbols = elf_at(file, value, &room);
            names->symbol_count = room / sizeof(ElfW(Sym));
            break;
        case DT_STRTAB:
            names->strings = elf_at(file, value, &room);
            names->string_bytes = room;
            break;
        case DT_GNU_HASH:
            names->gnu = elf_at(file, value, &room);
            names->gnu_words = room / 4;
            break;
        case DT_HASH:
            names->sysv = elf_at(file, value, &room);
            names->sysv_words = room / 4;
            break;
        default:
            break;
        }
    }
    names->symbols = (uintptr_t)names->symbols % 8 ? NULL : names->symbols;
    names->gnu = (uintptr_t)names->gnu % 4 ? NULL : names->gnu;
    names->sysv = (uintptr_t)names->sysv % 4 ? NULL : names->sysv;
}

static bool elf_read(struct gp_elf_file *file)
{
    const ElfW(Ehdr) *head = (const void *)file->map;
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64 ||
        head->e_machine != ELF_MACHINE || head->e_phentsize != sizeof(ElfW(Phdr)) || head->e_phoff % 8 ||
        head->e_phoff > file->bytes || head->e_phnum > (file->bytes - head->e_phoff) / sizeof(ElfW(Phdr)))
        return false;
    const ElfW(Phdr) *part = (const void *)(file->map + head->e_phoff);
    for (unsigned i = 0; i < head->e_phnum; i++)
        if (part[i].p_type == PT_DYNAMIC && part[i].p_offset % 8 == 0 && part[i].p_offset < file->bytes) {
            uint64_t rest = file->bytes - part[i].p_offset;
            file->dynamic = (const void *)(file->map + part[i].p_offset);
            file->dynamic_count = (part[i].p_filesz < rest ? part[i].p_filesz : rest) / sizeof(ElfW(Dyn));
        }
    elf_tables(file);
    return file->names.symbols && file->names.strings;
}

bool gp_elf_open(struct gp_elf_file *file, const char *path)
{
    memset(file, 0, sizeof(*file));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    void *map =
        bytes >= (off_t)sizeof(ElfW(Ehdr)) ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return false;
    file->map = map;
    file->bytes = (uint64_t)bytes;
    if (elf_read(file))
        return true;
    gp_elf_close(file);
    return false;
}

void gp_elf_close(struct gp_elf_file *file)
{
    munmap((void *)(uintptr_t)file->map, (size_t)file->bytes);
    file->map = NULL;
}

const char *gp_elf_text(const struct gp_elf_file *file, int64_t tag, uint64_t *at)
{
    const struct gp_elf_names *names = &file->names;
    while (*at < file->dynamic_count && file->dynamic[*at].d_tag != DT_NULL) {
        const ElfW(Dyn) *entry = &file->dynamic[(*at)++];
        uint64_t text = entry->d_un.d_val;
        if (entry->d_tag == tag && text < names->string_bytes &&
            memchr(names->strings + text, '\0', names->string_bytes - text))
            return names->strings + text;
    }
    return NULL;
}
