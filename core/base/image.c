/* SPDX-License-Identifier: MIT
 * image.c: reads the dynamic section of an object that is loaded. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* struct dl_phdr_info */
#endif
#include "base/image.h"
#include <elf.h>
#include <string.h>

#if defined(__x86_64__)
#define IMAGE_JUMP   R_X86_64_JUMP_SLOT
#define IMAGE_GLOBAL R_X86_64_GLOB_DAT
#elif defined(__aarch64__)
#define IMAGE_JUMP   R_AARCH64_JUMP_SLOT
#define IMAGE_GLOBAL R_AARCH64_GLOB_DAT
#else
#error "unknown relocation types"
#endif

/* The loader has made these addresses absolute in most objects (not in the vDSO, nor on some
 * systems). */
static const void *image_at(const struct gp_image *image, uint64_t value)
{
    return (const void *)(uintptr_t)(value >= image->low && value < image->high ? value : image->base + value);
}

static void image_dynamic(struct gp_image *image, const ElfW(Dyn) * dynamic)
{
    image->dynamic = dynamic;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        uint64_t value = dynamic->d_un.d_val;
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            image->symbols = image_at(image, value);
            break;
        case DT_STRTAB:
            image->strings = image_at(image, value);
            break;
        case DT_GNU_HASH:
            image->hash = image_at(image, value);
            break;
        case DT_HASH:
            image->sysv = image_at(image, value);
            break;
        case DT_JMPREL:
            image->jumps = image_at(image, value);
            break;
        case DT_PLTRELSZ:
            image->jump_bytes = value;
            break;
        case DT_RELA:
            image->relas = image_at(image, value);
            break;
        case DT_RELASZ:
            image->rela_bytes = value;
            break;
        default:
            break;
        }
    }
}

bool gp_image_read(struct gp_image *image, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dynamic = NULL;
    *image =
        (struct gp_image){.base = info->dlpi_addr, .low = UINT64_MAX, .path = info->dlpi_name ? info->dlpi_name : ""};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD) {
            image->low = start < image->low ? start : image->low;
            image->high = start + header->p_memsz > image->high ? start + header->p_memsz : image->high;
        } else if (header->p_type == PT_DYNAMIC) {
            dynamic = (const void *)(uintptr_t)start;
        } else if (header->p_type == PT_GNU_RELRO) {
            image->relro_low = start;
            image->relro_high = start + header->p_memsz;
        }
    }
    if (!dynamic || image->low >= image->high)
        return false;
    image_dynamic(image, dynamic);
    return image->symbols && image->strings;
}

/* Bucket count, first hashed symbol, words of the filter, shift; filter, buckets, chains. */
bool gp_image_hash(const struct gp_image *image, struct gp_image_hash *hash)
{
    const uint32_t *head = image->hash;
    if (!head || !head[0])
        return false;
    hash->count = head[0];
    hash->first = head[1];
    hash->buckets = (const uint32_t *)((const uint64_t *)(head + 4) + head[2]);
    hash->chains = hash->buckets + hash->count;
    return true;
}

const char *gp_image_name(const struct gp_image *image)
{
    const char *slash = strrchr(image->path, '/');
    return slash ? slash + 1 : image->path;
}

static bool image_starts(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool gp_image_is(const struct gp_image *image, const char *prefix)
{
    return image_starts(gp_image_name(image), prefix);
}

bool gp_image_needs(const struct gp_image *image, const char *prefix)
{
    for (const ElfW(Dyn) *entry = image->dynamic; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_NEEDED && image_starts(image->strings + entry->d_un.d_val, prefix))
            return true;
    return false;
}

static void image_table(const struct gp_image *image, const ElfW(Rela) * relas, uint64_t bytes,
                        void (*visit)(void *arg, const char *symbol, uint64_t *slot), void *arg)
{
    for (uint64_t i = 0; i < bytes / sizeof(*relas); i++) {
        uint64_t type = ELF64_R_TYPE(relas[i].r_info), symbol = ELF64_R_SYM(relas[i].r_info);
        if (type == IMAGE_JUMP || type == IMAGE_GLOBAL)
            visit(arg, image->strings + image->symbols[symbol].st_name,
                  (uint64_t *)(uintptr_t)(image->base + relas[i].r_offset));
    }
}

void gp_image_slots(const struct gp_image *image, void (*visit)(void *arg, const char *symbol, uint64_t *slot),
                    void *arg)
{
    image_table(image, image->jumps, image->jump_bytes, visit, arg);
    image_table(image, image->relas, image->rela_bytes, visit, arg);
}
