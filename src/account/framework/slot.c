/* SPDX-License-Identifier: MIT
 *
 * slot.c: replaces functions that objects import, in their slots (internal.h). Reads the objects'
 * dynamic sections as they lie in memory.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "account/framework/internal.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/image.h"
#include "base/loader.h"
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the definition ------------------------------------------------------------------------------------------------ */

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381; /* the hash of DT_GNU_HASH */
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static void *image_define(const struct gp_image *image, const char *name)
{
    struct gp_image_hash table;
    if (!gp_image_hash(image, &table))
        return NULL;
    uint32_t hash = gnu_hash(name), index = table.buckets[hash % table.count];
    for (; index >= table.first && index; index++) {
        const ElfW(Sym) *symbol = &image->symbols[index];
        uint32_t link = table.chains[index - table.first];
        if ((link | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(image->strings + symbol->st_name, name) == 0)
            return (void *)(uintptr_t)(image->base + symbol->st_value);
        if (link & 1)
            return NULL;
    }
    return NULL;
}

struct look { /* for one import in one object */
    const struct gp_image *image;
    struct gp_slot_import *import;
    void (*visit)(const struct look *look, uint64_t *slot);
    bool runs; /* the object's code is on the caller's stack */
};

struct replace {
    struct gp_slot_import *imports;
    unsigned count;
    void (*visit)(const struct look *look, uint64_t *slot);
    const struct gp_slot_caller *caller;
};

/* Looks at each object, also when a definition is known: its object may have been unloaded and
 * loaded again elsewhere. */
static int define_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct replace *replace = arg;
    struct gp_image image;
    (void)size;
    if (!gp_image_read(&image, info))
        return 0;
    for (unsigned n = 0; n < replace->count; n++) {
        struct gp_slot_import *import = &replace->imports[n];
        void *original = gp_image_is(&image, import->definer) ? image_define(&image, import->name) : NULL;
        import->copies += original != NULL;
        if (original && !import->found) {
            import->found = true;
            __atomic_store_n(&import->x_original, original, __ATOMIC_RELAXED);
        }
    }
    return 0;
}

/* ---- the slots ----------------------------------------------------------------------------------------------------- */

/* Asks the kernel, without a change of memory or protection: it adds 0 to a word and wakes no
 * thread. The loader may make the page read-only at any moment, so a write here could fault. */
bool gp_slot_writable(uint64_t *slot)
{
    uint32_t none = 0;
    return syscall(SYS_futex, &none, FUTEX_WAKE_OP_PRIVATE, 1, NULL, slot,
                   FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_NE, 0)) >= 0;
}

/* No loader takes this long for one object. A page that stays writable longer belongs to another
 * tool that replaces slots and leaves them so (memray); a slot that stays empty belongs to a weak
 * symbol. */
#define SLOT_PATIENCE_NS 1000000000ull

static bool slot_patience(struct gp_slot_import *import)
{
    if (!import->early_ns)
        import->early_ns = gp_clock_ns();
    bool patient = gp_clock_ns() - import->early_ns < SLOT_PATIENCE_NS;
    import->early += patient;
    return patient;
}

static bool slot_read_only(const struct gp_image *image, const uint64_t *slot)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uint64_t)(uintptr_t)slot & ~(page - 1);
    /* The loader protects whole pages of the range. */
    return at >= (image->relro_low & ~(page - 1)) && at < (image->relro_high & ~(page - 1));
}

static bool slot_write(uint64_t *slot, void *function, bool read_only)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uint64_t)(uintptr_t)slot & ~(page - 1);
    if (read_only && mprotect((void *)(uintptr_t)at, page, PROT_READ | PROT_WRITE) != 0)
        return false;
    /* The program's load of the slot does not order anything after it, but its call depends on the
     * address that it loaded, and the original was stored a system call or more before. */
    __atomic_store_n(slot, (uint64_t)(uintptr_t)function, __ATOMIC_RELEASE);
    return !read_only || mprotect((void *)(uintptr_t)at, page, PROT_READ) == 0;
}

bool gp_slot_put(uint64_t *slot, void *function)
{
    return slot_write(slot, function, !gp_slot_writable(slot));
}

static void slot_restore(const struct look *look, uint64_t *slot)
{
    struct gp_slot_import *import = look->import;
    if (__atomic_load_n(slot, __ATOMIC_RELAXED) != (uint64_t)(uintptr_t)import->replacement)
        return;
    bool read_only = slot_read_only(look->image, slot) && !gp_slot_writable(slot);
    if (!slot_write(slot, import->x_original, read_only))
        import->refused++;
}

static void slot_replace(const struct look *look, uint64_t *slot)
{
    const struct gp_image *image = look->image;
    struct gp_slot_import *import = look->import;
    uint64_t value = __atomic_load_n(slot, __ATOMIC_RELAXED);
    import->slots++;
    if (value == (uint64_t)(uintptr_t)import->replacement)
        return;
    if (value < image->low && value < image->high - image->low) {
        slot_patience(import); /* not relocated yet */
        return;
    }
    bool read_only = slot_read_only(image, slot), writable = read_only && gp_slot_writable(slot);
    if (writable && !look->runs && slot_patience(import))
        return; /* its neighbours are not relocated yet */
    if (!slot_write(slot, import->replacement, read_only && !writable))
        import->refused++;
}

static void look_visit(void *arg, const char *symbol, uint64_t *slot)
{
    const struct look *look = arg;
    if (strcmp(symbol, look->import->name) == 0)
        look->visit(look, slot);
}

/* Constructors of an object run when the loader has relocated all of it. */
static bool image_runs(const struct gp_image *image, const struct gp_slot_caller *caller)
{
    for (unsigned i = 0; caller && i < caller->count; i++)
        if (caller->pcs[i] - 1 - image->low < image->high - image->low)
            return true;
    return false;
}

static bool image_imports(const struct gp_image *image, const struct gp_slot_import *import)
{
    return gp_image_is(image, import->importer) || (import->user && gp_image_needs(image, import->user));
}

static int replace_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct replace *replace = arg;
    struct gp_image image;
    (void)size;
    if (!gp_image_read(&image, info))
        return 0;
    struct look look = {.image = &image, .visit = replace->visit, .runs = image_runs(&image, replace->caller)};
    for (unsigned n = 0; n < replace->count; n++)
        if (replace->imports[n].x_original && image_imports(&image, &replace->imports[n])) {
            look.import = &replace->imports[n];
            gp_image_slots(&image, look_visit, &look);
        }
    return 0;
}

bool gp_slots_replace(struct gp_slot_import *imports, unsigned count, const struct gp_slot_caller *caller)
{
    struct replace replace = {imports, count, slot_replace, caller};
    for (unsigned n = 0; n < count; n++) {
        imports[n].slots = imports[n].refused = imports[n].early = imports[n].copies = 0;
        imports[n].found = false;
    }
    if (!gp_loader_look(define_visit, &replace))
        return false;
    for (unsigned n = 0; n < count; n++)
        if (!imports[n].found)
            __atomic_store_n(&imports[n].x_original, NULL, __ATOMIC_RELAXED);
    bool looked = gp_loader_look(replace_visit, &replace);
    for (unsigned n = 0; n < count; n++)
        imports[n].early_ns = imports[n].early ? imports[n].early_ns : 0;
    return looked;
}

bool gp_slots_restore(struct gp_slot_import *imports, unsigned count)
{
    struct replace replace = {imports, count, slot_restore, NULL};
    return gp_loader_look(replace_visit, &replace);
}
