/* SPDX-License-Identifier: MIT
 *
 * soname.c: see soname.h.  Called by cupti.c, once for each copy that it loads.
 *
 * The loader reads the soname from the object's dynamic section each time that it looks for a name,
 * so one word changes the answer.  Another thread that waited for our dlopen may look in the
 * microseconds before that word is written.  A copy in a memory file could be changed before it is
 * loaded, but it would be a second copy beside the program's, and $ORIGIN and symbol readers would
 * not find its file.
 */
#include "source/soname.h"
#include "base/compiler.h"
#include "base/loader.h"
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GP_SONAME_SKIP 3 /* "lib" */

struct gp_soname_look {
    const struct link_map *map;
    uintptr_t page, page_bytes;
    bool is_constant; /* the loader had made the page read-only after relocation */
};

static int soname_visit(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    struct gp_soname_look *look = arg;
    (void)bytes;
    if (info->dlpi_addr != look->map->l_addr || !info->dlpi_name || strcmp(info->dlpi_name, look->map->l_name) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type != PT_GNU_RELRO)
            continue;
        begin &= ~(look->page_bytes - 1);
        end &= ~(look->page_bytes - 1); /* the loader protects whole pages */
        look->is_constant = look->page >= begin && look->page < end;
    }
    return 1;
}

/* glibc has relocated the pointers of the dynamic section, musl has not. */
static const char *soname_text(const struct link_map *map, uintptr_t strings, uintptr_t offset)
{
    return (const char *)(strings < map->l_addr ? map->l_addr + strings : strings) + offset;
}

static bool soname_write(const struct link_map *map, ElfW(Dyn) * entry)
{
    struct gp_soname_look look = {.map = map, .page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE)};
    look.page = (uintptr_t)&entry->d_un & ~(look.page_bytes - 1);
    if (mprotect((void *)look.page, look.page_bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    /* One store: the loader may read it on another thread. */
    __atomic_store_n(&entry->d_un.d_val, entry->d_un.d_val + GP_SONAME_SKIP, __ATOMIC_RELEASE);
    /* While the process forks the list cannot be walked, and the page stays writable. */
    if (gp_loader_look(soname_visit, &look) && look.is_constant)
        mprotect((void *)look.page, look.page_bytes, PROT_READ);
    return true;
}

bool gp_soname_hide(void *handle)
{
    struct link_map *map = NULL;
    ElfW(Dyn) *name = NULL;
    uintptr_t strings = 0;
    if (GP_LOADER(dlinfo(handle, RTLD_DI_LINKMAP, &map)) != 0 || !map->l_ld)
        return false;
    for (ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SONAME)
            name = entry;
        if (entry->d_tag == DT_STRTAB)
            strings = entry->d_un.d_ptr;
    }
    if (!name)
        return true;
    if (!strings || strncmp(soname_text(map, strings, name->d_un.d_val), "lib", GP_SONAME_SKIP) != 0)
        return true; /* not a name that programs ask for, or shortened already */
    return soname_write(map, name);
}
