/* SPDX-License-Identifier: MIT
 *
 * plain.c: finds a function of a C library without symbol versions, which is musl, for dlsym.c.
 *
 * A preload reaches every program of a system, and this library's dlsym then precedes libc's.  By
 * name only dlsym itself finds the next one, so this file reads libc's table of symbols.
 */
#include "source/shim/internal.h"
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct preload_symbols {
    const ElfW(Sym) * at;
    const char *names;
    uint32_t count;
};

/* A table in GNU's format does not have the number of symbols: the last one ends the chain of the last bucket. */
static uint32_t plain_count(const uint32_t *gnu)
{
    uint32_t buckets = gnu[0], first = gnu[1], last = 0;
    const uint32_t *bucket = gnu + 4 + gnu[2] * (sizeof(ElfW(Addr)) / 4);
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    const uint32_t *chain = bucket + buckets;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

static void plain_read(struct preload_symbols *symbols, ElfW(Addr) base, const ElfW(Dyn) * entry)
{
    for (; entry->d_tag != DT_NULL; entry++) {
        /* glibc adds the base to these addresses in memory, musl does not. */
        const void *at = (const void *)(entry->d_un.d_ptr + (entry->d_un.d_ptr < base ? base : 0));
        if (entry->d_tag == DT_SYMTAB)
            symbols->at = at;
        else if (entry->d_tag == DT_STRTAB)
            symbols->names = at;
        else if (entry->d_tag == DT_HASH)
            symbols->count = ((const uint32_t *)at)[1];
        else if (entry->d_tag == DT_GNU_HASH && !symbols->count)
            symbols->count = plain_count(at);
    }
}

struct preload_search {
    const char *name;
    void *found;
};

static int plain_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    struct preload_search *search = arg;
    const ElfW(Dyn) *dynamic = NULL;
    bool is_libc = false;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (uintptr_t)dlerror - info->dlpi_addr - part->p_vaddr < part->p_memsz)
            is_libc = true;
        else if (part->p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + part->p_vaddr);
    }
    if (!is_libc || !dynamic)
        return 0;
    struct preload_symbols symbols = {0};
    plain_read(&symbols, info->dlpi_addr, dynamic);
    for (uint32_t i = 0; symbols.at && symbols.names && i < symbols.count; i++) {
        const ElfW(Sym) *symbol = &symbols.at[i];
        if (symbol->st_shndx != SHN_UNDEF && !strcmp(symbols.names + symbol->st_name, search->name))
            search->found = (void *)(info->dlpi_addr + symbol->st_value);
    }
    return 1;
}

void *gp_shim_plain(const char *name)
{
    struct preload_search search = {.name = name};
    dl_iterate_phdr(plain_visit, &search);
    return search.found;
}
