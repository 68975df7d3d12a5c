/* SPDX-License-Identifier: MIT
 *
 * image.h: what the dynamic section of a loaded object says, as it lies in memory. For walks by
 * gp_loader_look, which keeps the object mapped meanwhile.
 */
#ifndef GP_BASE_IMAGE_H
#define GP_BASE_IMAGE_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_image {
    uint64_t base, low, high; /* load address; the addresses that the object occupies */
    uint64_t relro_low, relro_high;
    const char *path;
    const ElfW(Dyn) * dynamic;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash; /* DT_GNU_HASH */
    const uint32_t *sysv; /* DT_HASH */
    const ElfW(Rela) * jumps, *relas;
    uint64_t jump_bytes, rela_bytes;
};

/* False: the object has no dynamic section. */
bool gp_image_read(struct gp_image *image, const struct dl_phdr_info *info);

/* DT_GNU_HASH lists the symbols that an object defines, in chains. */
struct gp_image_hash {
    const uint32_t *buckets, *chains; /* a chain's word per symbol, from `first` on; its last bit ends the chain */
    uint32_t count, first;
};
/* False: the object has none. */
bool gp_image_hash(const struct gp_image *image, struct gp_image_hash *hash);

/* The name of its file, without the folder. */
const char *gp_image_name(const struct gp_image *image);
/* Whether that name starts so. */
bool gp_image_is(const struct gp_image *image, const char *prefix);
/* Whether it is linked to a library whose name starts so. */
bool gp_image_needs(const struct gp_image *image, const char *prefix);

/* Visits each slot (global offset table) through which the object calls or reads an imported symbol. */
void gp_image_slots(const struct gp_image *image, void (*visit)(void *arg, const char *symbol, uint64_t *slot),
                    void *arg);

#endif
