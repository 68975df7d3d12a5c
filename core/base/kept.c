/* SPDX-License-Identifier: MIT
 * kept.c: gives the library its first variables back when a new life begins. */
#include "base/kept.h"
#include "base/loader.h"
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A process with 64 devices and every kind of table has some 300. A mapping that finds no row stays
 * for ever, which costs memory alone. */
#define KEPT_MAPPINGS 1024u
#define KEPT_RANGES   64u

/* A row is taken by its size and is complete with its address. */
static struct {
    size_t x_bytes;
    void *x_at;
} kept_mappings[KEPT_MAPPINGS];
GP_KEEP(kept_mappings);

static struct {
    char *data, *zero, *end; /* initialised variables, and the others */
    char *copy;              /* of the initialised ones */
} kept_image;
GP_KEEP(kept_image);

/* The section of GP_KEEP; the linker names its limits. */
extern const struct gp_kept __start_gp_kept[] __attribute__((visibility("hidden")));
extern const struct gp_kept __stop_gp_kept[] __attribute__((visibility("hidden")));

/* ---- mappings ------------------------------------------------------------------------------------------------------ */

void *gp_kept_map(size_t bytes, int flags)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    for (unsigned i = 0; i < KEPT_MAPPINGS; i++) {
        size_t none = 0;
        if (__atomic_load_n(&kept_mappings[i].x_bytes, __ATOMIC_RELAXED) == 0 &&
            __atomic_compare_exchange_n(&kept_mappings[i].x_bytes, &none, bytes, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            __atomic_store_n(&kept_mappings[i].x_at, at, __ATOMIC_RELAXED);
            break;
        }
    }
    return at;
}

void gp_kept_unmap(void *at, size_t bytes)
{
    for (unsigned i = 0; i < KEPT_MAPPINGS; i++)
        if (__atomic_load_n(&kept_mappings[i].x_at, __ATOMIC_RELAXED) == at) {
            __atomic_store_n(&kept_mappings[i].x_at, NULL, __ATOMIC_RELAXED);
            __atomic_store_n(&kept_mappings[i].x_bytes, 0, __ATOMIC_RELAXED);
            break;
        }
    munmap(at, bytes);
}

void gp_kept_unmap_all(void)
{
    for (unsigned i = 0; i < KEPT_MAPPINGS; i++) {
        if (kept_mappings[i].x_at)
            munmap(kept_mappings[i].x_at, kept_mappings[i].x_bytes);
        kept_mappings[i].x_at = NULL;
        kept_mappings[i].x_bytes = 0;
    }
}

/* ---- variables ----------------------------------------------------------------------------------------------------- */

/* The writable part of this library, without what the loader has made read-only: first the
 * variables that lie in the file, then those that begin as zero. */
static int kept_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    uintptr_t base = info->dlpi_addr, mine = (uintptr_t)&kept_image, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t low = 0, file = 0, end = 0, fixed = 0;
    (void)size;
    (void)arg;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = base + header->p_vaddr;
        if (header->p_type == PT_LOAD && mine >= start && mine < start + header->p_memsz) {
            low = start;
            file = start + header->p_filesz;
            end = start + header->p_memsz;
        } else if (header->p_type == PT_GNU_RELRO) {
            fixed = (start + header->p_memsz) & ~(page - 1);
        }
    }
    if (!end)
        return 0;
    kept_image.data = (char *)(fixed > low && fixed <= file ? fixed : low);
    kept_image.zero = (char *)file;
    kept_image.end = (char *)end;
    return 1;
}

/* A plain loop, which no sanitizer looks at: between variables there are its own bytes. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static void kept_copy(char *to, const char *from,
                                                                                     size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = from ? from[i] : 0;
        __asm__ volatile("" ::: "memory"); /* not a call of memcpy, which is looked at */
    }
}

bool gp_kept_saved(void)
{
    return kept_image.copy != NULL;
}

bool gp_kept_save(void)
{
    if (kept_image.copy)
        return true;
    if (!gp_loader_look(kept_visit, NULL) || !kept_image.end)
        return false;
    size_t bytes = (size_t)(kept_image.zero - kept_image.data);
    char *copy = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return false;
    kept_copy(copy, kept_image.data, bytes);
    kept_image.copy = copy;
    return true;
}

/* Whole pages go back to the kernel, which costs less than to write them; locked ones do not. */
static void kept_zero(char *from, char *to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)(((uintptr_t)from + page - 1) & ~(page - 1)), *last = (char *)((uintptr_t)to & ~(page - 1));
    /* The page in which the file's part ends is the file's. */
    if (first >= last || madvise(first, (size_t)(last - first), MADV_DONTNEED) != 0) {
        kept_copy(from, NULL, (size_t)(to - from));
        return;
    }
    kept_copy(from, NULL, (size_t)(first - from));
    kept_copy(last, NULL, (size_t)(to - last));
}

static void kept_range(char *from, char *to)
{
    char *split = from > kept_image.zero ? from : to < kept_image.zero ? to : kept_image.zero;
    kept_copy(from, kept_image.copy + (from - kept_image.data), (size_t)(split - from));
    if (to > split)
        kept_zero(split, to);
}

/* Sorted by address. */
static unsigned kept_list(struct gp_kept *list)
{
    unsigned count = 0;
    for (const struct gp_kept *kept = __start_gp_kept; kept < __stop_gp_kept && count < KEPT_RANGES; kept++) {
        unsigned at = count++;
        for (; at && (char *)list[at - 1].at > (char *)kept->at; at--)
            list[at] = list[at - 1];
        list[at] = *kept;
    }
    return count;
}

bool gp_kept_restore(void)
{
    struct gp_kept list[KEPT_RANGES];
    if (!kept_image.copy || __stop_gp_kept - __start_gp_kept > KEPT_RANGES)
        return false;
    gp_kept_unmap_all();
    unsigned count = kept_list(list);
    char *from = kept_image.data;
    for (unsigned i = 0; i < count; i++) {
        kept_range(from, list[i].at);
        from = (char *)list[i].at + list[i].bytes;
    }
    kept_range(from, kept_image.end);
    return true;
}
