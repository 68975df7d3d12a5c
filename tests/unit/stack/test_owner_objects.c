/* SPDX-License-Identifier: MIT
 *
 * test_owner_objects.c: the list of objects that owner.c copies from the loader, out of a made-up loader's list: which
 * addresses an object has, the order, the limits, and what happens while the process forks. test_owner.c has real ones.
 */
#include "base/compiler.h"
#include "base/known.h"
#include "base/loader.h"
#include "lib/standin.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

struct made { /* an object */
    const char *path;
    uint64_t base;
    struct {
        uint32_t type, flags;
        uint64_t at, bytes;
    } parts[3];
};

static const struct made *made;
static unsigned made_count;

static int made_visit(const struct made *object, int (*visit)(struct dl_phdr_info *info, size_t size, void *arg),
                      void *arg)
{
    ElfW(Phdr) parts[3];
    memset(parts, 0, sizeof(parts));
    for (unsigned i = 0; i < 3; i++) {
        parts[i].p_type = object->parts[i].type;
        parts[i].p_flags = object->parts[i].flags;
        parts[i].p_vaddr = object->parts[i].at;
        parts[i].p_memsz = object->parts[i].bytes;
    }
    struct dl_phdr_info info = {
        .dlpi_addr = object->base, .dlpi_name = object->path, .dlpi_phdr = parts, .dlpi_phnum = 3};
    return visit(&info, sizeof(info), arg);
}

STANDIN(int, dl_iterate_phdr, int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg)
{
    if (!made)
        return __real_dl_iterate_phdr(visit, arg);
    int result = 0;
    for (unsigned i = 0; i < made_count && result == 0; i++)
        result = made_visit(&made[i], visit, arg);
    return result;
}

static struct gp_owner_object objects[GP_OBJECTS + 1];

static int list_of(const struct made *list, unsigned count)
{
    memset(objects, 0x55, sizeof(objects));
    made = list;
    made_count = count;
    int got = gp_object_list(objects);
    made = NULL;
    return got;
}

#define CODE(_at, _bytes)                                                                                              \
    {                                                                                                                  \
        PT_LOAD, PF_R | PF_X, _at, _bytes                                                                              \
    }
#define DATA(_at, _bytes)                                                                                              \
    {                                                                                                                  \
        PT_LOAD, PF_R | PF_W, _at, _bytes                                                                              \
    }

Test(owner_objects, an_object_has_its_executable_parts_and_what_is_between)
{
    static const struct made list[] = {
        {"/lib/liba.so.1", 0x1000, {CODE(0x10, 0x20), DATA(0x100, 0x100), {PT_NULL, PF_X, 0, 0x8000}}},
        {"/lib/libb.so.1", 0x20000, {DATA(0, 0x10), CODE(0x300, 1), CODE(0x100, 0x10)}},
        {"/lib/libc10.so", 0x30000, {CODE(0, 0x10), CODE(0x100, 0x10), DATA(0x200, 0x10)}},
        {"/lib/libdata.so", 0x40000, {DATA(0, 0x10), DATA(0x100, 0x10), {PT_DYNAMIC, PF_X, 0, 0x10}}},
        {"/lib/libnone.so", 0x50000, {CODE(0x10, 0), DATA(0x100, 0x10), DATA(0, 1)}},
        {NULL, 0x60000, {CODE(0, 1), DATA(0x100, 0x10), DATA(0, 1)}},
    };
    static const struct {
        uint64_t low, high;
        const char *name, *owner;
    } want[] = {{0x60000, 0x60001, "", "program"},
                {0x30000, 0x30110, "libc10.so", "pytorch"},
                {0x20100, 0x20301, "libb.so.1", ""},
                {0x1010, 0x1030, "liba.so.1", ""}};
    cr_assert_eq(list_of(list, GP_COUNT(list)), GP_COUNT(want));
    for (unsigned i = 0; i < GP_COUNT(want); i++) {
        cr_expect(objects[i].x_low == want[i].low && objects[i].x_high == want[i].high, "%u: %lx to %lx", i,
                  (long)objects[i].x_low, (long)objects[i].x_high);
        cr_expect_str_eq(objects[i].name, want[i].name);
        cr_expect_str_eq(objects[i].x_owner, want[i].owner);
        cr_expect(objects[i].x_row == GP_OBJECT_NO_ROW && !objects[i].x_segment);
    }
}

/* Whatever the loader's order; beyond the limit objects are left out, and nothing else changes. */
Test(owner_objects, as_many_as_fit_by_falling_address)
{
    static struct made list[GP_OBJECTS + 2];
    static const unsigned steps[] = {1, 7, 1031, GP_OBJECTS + 1};
    for (unsigned turn = 0; turn < GP_COUNT(steps); turn++)
        for (unsigned count = GP_OBJECTS - 1; count <= GP_OBJECTS + 2; count++) {
            for (unsigned i = 0; i < count; i++)
                list[i] = (struct made){"/x/lib.so", (1 + (uint64_t)i * steps[turn] % 2053) << 20, {CODE(0, 0x1000)}};
            unsigned want = count < GP_OBJECTS ? count : GP_OBJECTS;
            cr_assert_eq(list_of(list, count), want);
            for (unsigned i = 1; i < want; i++)
                cr_assert(objects[i].x_low < objects[i - 1].x_low, "%u of %u", i, count);
            for (unsigned i = 0; i < want; i++)
                cr_assert_eq(gp_object_find(objects, want, list[i].base + 0xfff) >= 0, true);
            cr_assert_eq(objects[GP_OBJECTS].x_low, 0x5555555555555555ull);
        }
}

Test(owner_objects, long_names_are_cut)
{
    char path[100] = "/opt/";
    for (size_t length = 1; length < 60; length++) {
        memset(path + 5, 'x', length);
        path[5 + length] = '\0';
        struct made one = {path, 0x1000, {CODE(0, 1)}};
        cr_assert_eq(list_of(&one, 1), 1);
        cr_assert_eq(strlen(objects[0].name), length < GP_OBJECT_NAME ? length : GP_OBJECT_NAME - 1);
    }
}

/* The object that has this code is gpuprof's, whatever its name. */
Test(owner_objects, gpuprof_is_known_by_its_code)
{
    uint64_t at = (uint64_t)(uintptr_t)gp_object_list;
    const struct {
        uint64_t low, bytes;
        bool own;
    } cases[] = {{at, 1, true}, {at - 5, 6, true}, {at - 5, 5, false}, {at + 1, 5, false}, {at - 1, 100, true}};
    for (unsigned i = 0; i < GP_COUNT(cases); i++) {
        struct made one = {"/lib/libengine.so", 0, {CODE(cases[i].low, cases[i].bytes)}};
        cr_assert_eq(list_of(&one, 1), 1);
        cr_expect_eq(objects[0].x_owner == NULL, cases[i].own, "%u", i);
    }
}

/* The name up to ".so", of as much of it as there is room for. */
Test(owner_objects, a_name_ends_at_its_version)
{
    static const char *const bases[] = {"libx.so.3.1", "libx.so", "libx", "a.sob.so.1", ".so", ""};
    for (unsigned i = 0; i < GP_COUNT(bases); i++)
        for (size_t bytes = 1; bytes < 20; bytes++) {
            char name[24], want[24];
            memset(name, 'y', sizeof(name));
            gp_known_name(bases[i], name, bytes);
            snprintf(want, bytes, "%s", bases[i]);
            if (strstr(want, ".so"))
                strstr(want, ".so")[3] = '\0';
            cr_assert_str_eq(name, want, "%s in %zu", bases[i], bytes);
            cr_assert_eq(name[bytes], 'y');
        }
    cr_expect_str_eq(gp_known_base("/a/b/c"), "c");
    cr_expect_str_eq(gp_known_base("c"), "c");
    cr_expect_str_eq(gp_known_base("/a/"), "");
}

static unsigned told;

static bool changed(const uint64_t *pcs, unsigned count)
{
    (void)pcs;
    (void)count;
    told++;
    return true;
}

/* The loader's list cannot be read meanwhile; it is read at the next request, and those who wait for it are told. */
Test(owner_objects, while_the_process_forks_the_list_is_not_read)
{
    struct gp_wire_owner rows[GP_WIRE_OWNERS];
    cr_assert_eq(gp_owner_start(), 0);
    gp_owner_on_change(changed);
    gp_loader_fork_begin();
    cr_expect_eq(gp_object_list(objects), -1);
    cr_expect_eq(gp_owner_here().row, GP_OWNER_UNKNOWN);
    cr_expect_eq(told, 1);
    gp_loader_fork_end();
    for (int i = 0; i < 2; i++) {
        uint8_t row = gp_owner_here().row;
        gp_owner_rows(rows);
        cr_expect_str_eq(rows[row].owner, "libcriterion.so");
        cr_expect_eq(told, 2);
    }
}
