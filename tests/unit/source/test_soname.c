/* SPDX-License-Identifier: MIT
 *
 * test_soname.c: the name of a loaded library is taken away from the loader: which names find it before and afterwards, that
 * the page of the name is protected as before, and that nothing is changed where the name is none or cannot be written.
 */
#include "lib/build.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <link.h>
#include <source/cuptifind.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool mprotect_fails, dlinfo_fails;
static unsigned protected;

int mprotect(void *at, size_t bytes, int protection)
{
    protected++;
    return mprotect_fails ? -1 : (int)syscall(SYS_mprotect, at, bytes, protection);
}

int dlinfo(void *handle, int request, void *out)
{
    int (*real)(void *, int, void *) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "dlinfo");
    return dlinfo_fails ? -1 : real(handle, request, out);
}

static void *library_open(const char *options)
{
    char *folder = build_folder(), path[256], arguments[256];
    snprintf(path, sizeof(path), "%s/any.so", folder);
    snprintf(arguments, sizeof(arguments), "@%s/options", folder);
    FILE *file = fopen(arguments + 1, "w");
    cr_assert_not_null(file);
    fprintf(file, "-DSTACK_BYTES=8 %s\n", options);
    fclose(file);
    cr_assert_eq(build_shared(folder, "stack_frame.c", "any.so", arguments), 0);
    void *library = dlopen(path, RTLD_NOW);
    cr_assert_not_null(library, "%s", dlerror());
    build_remove(folder);
    return library;
}

/* How often it changes the rights of a page. */
static bool hide(void *library, unsigned changes)
{
    unsigned before = protected;
    bool hidden = gp_cupti_hide_soname(library);
    cr_expect_eq(protected - before, changes, "%u", protected - before);
    return hidden;
}

static void *loaded(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_NOLOAD);
}

/* Rights of the page with the entry of the name. */
static const char *rights(void *library)
{
    static char found[8];
    char line[512];
    struct link_map *map;
    unsigned long from, to, at = 0;
    cr_assert_eq(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
    for (ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_SONAME)
            at = (unsigned long)(uintptr_t)&entry->d_un;
    FILE *maps = fopen("/proc/self/maps", "r");
    cr_assert(at && maps);
    found[0] = '\0';
    while (fgets(line, sizeof(line), maps))
        if (sscanf(line, "%lx-%lx %5s", &from, &to, line) == 3 && at >= from && at < to)
            snprintf(found, sizeof(found), "%.4s", line);
    fclose(maps);
    return found;
}

TestSuite(soname, .timeout = 60);

Test(soname, a_name_is_shortened_once)
{
    void *library = library_open("-Wl,-soname,libgpuprofname.so.7 -Wl,-z,relro");
    cr_expect_eq(loaded("libgpuprofname.so.7"), library);
    cr_expect_str_eq(rights(library), "r--p");
    for (unsigned i = 0; i < 2; i++) {
        cr_expect(hide(library, i ? 0 : 2), "opened and closed");
        cr_expect_str_eq(rights(library), "r--p", "as the loader left it");
    }
    struct link_map *map;
    const char *strings = NULL;
    uint64_t offset = 0;
    cr_assert_eq(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
    for (ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        strings = entry->d_tag == DT_STRTAB ? (const char *)entry->d_un.d_ptr : strings;
        offset = entry->d_tag == DT_SONAME ? entry->d_un.d_val : offset;
    }
    cr_expect_str_eq(strings + offset, "gpuprofname.so.7");
}

/* The loader has not been asked for the name before, so that it does not know it. */
Test(soname, the_loader_does_not_find_it_any_more)
{
    void *library = library_open("-Wl,-soname,libgpuprofname.so.8 -Wl,-z,norelro");
    cr_expect_str_eq(rights(library), "rw-p");
    cr_expect(hide(library, 1));
    cr_expect_str_eq(rights(library), "rw-p");
    cr_expect_null(loaded("libgpuprofname.so.8"));
    cr_expect_eq(loaded("gpuprofname.so.8"), library);
}

Test(soname, other_names_stay)
{
    void *none = library_open(""), *other = library_open("-Wl,-soname,gpuprofname.so.9"),
         *short_one = library_open("-Wl,-soname,li"), *upper = library_open("-Wl,-soname,Libgpuprofname.so.9");
    cr_expect(hide(none, 0));
    cr_expect(hide(other, 0));
    cr_expect(hide(short_one, 0));
    cr_expect(hide(upper, 0));
    cr_expect_eq(loaded("gpuprofname.so.9"), other);
    cr_expect_eq(loaded("Libgpuprofname.so.9"), upper);
}

Test(soname, what_cannot_be_written_stays)
{
    void *library = library_open("-Wl,-soname,libgpuprofname.so.10");
    dlinfo_fails = true;
    cr_expect_not(gp_cupti_hide_soname(library));
    dlinfo_fails = false;
    mprotect_fails = true;
    cr_expect_not(gp_cupti_hide_soname(library));
    mprotect_fails = false;
    cr_expect_eq(loaded("libgpuprofname.so.10"), library);
}
