/* SPDX-License-Identifier: MIT
 *
 * test_libraries.c: libraries on the stacks of a peak, by shared objects, files of Python, and code that no file has.
 */
#include <analyze/libraries.h>

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define STRINGS                                                                                                        \
    "\0/env/libdrjit-core.so\0/env/site-packages/tinygrad/device.py\0/home/me/tinygrad.py\0/env/libHalide.so\0/x/"     \
    "notlibdrjit-core.so\0/env/bpy/__init__.so\0/env/notbpy/__init__.so"

static uint32_t at(const char *text)
{
    static const char strings[] = STRINGS;
    return (uint32_t)((const char *)memmem(strings, sizeof(strings), text, strlen(text) + 1) - strings);
}

static int64_t bytes_of(const struct gp_recording *r, const struct gp_peak *peak, const char *name)
{
    int64_t bytes[GP_LIBRARIES];
    gp_library_bytes(r, peak, bytes);
    for (uint32_t i = 0; i < GP_LIBRARIES; i++)
        if (strcmp(gp_library(i)->name, name) == 0)
            return bytes[i];
    cr_assert_fail("no library %s", name);
    return -1;
}

Test(libraries, memory_counts_for_the_library_on_its_stack)
{
    static char strings[] = STRINGS;
    struct gp_rec_module modules[] = {{.path = at("/env/libdrjit-core.so")},
                                      {.path = at("/x/notlibdrjit-core.so")},
                                      {.path = 0},
                                      {.path = at("/env/libHalide.so")},
                                      {.path = at("/env/bpy/__init__.so")},
                                      {.path = at("/env/notbpy/__init__.so")}};
    struct gp_rec_frame frames[] = {{.module = GP_REC_NONE},
                                    {.pc = 1, .module = 0},
                                    {.pc = 2, .module = 1},
                                    {.file = at("/env/site-packages/tinygrad/device.py"), .module = GP_REC_NONE},
                                    {.file = at("/home/me/tinygrad.py"), .module = GP_REC_NONE},
                                    {.pc = 3, .module = 2},
                                    {.pc = 4, .module = 4},
                                    {.pc = 5, .module = 5}};
    struct gp_rec_site sites[8] = {{0}};
    struct gp_recording r = {.modules = modules,
                             .module_count = 6,
                             .frames = frames,
                             .frame_count = 8,
                             .sites = sites,
                             .site_count = 8,
                             .strings = strings};
    for (uint32_t i = 1; i < 8; i++)
        sites[i] = (struct gp_rec_site){.first_frame = i, .frame_count = 1};
    struct gp_peak *peak = calloc(1, sizeof(*peak) + 8 * sizeof(peak->parts[0]));
    peak->count = 8;
    for (uint32_t i = 0; i < 8; i++)
        peak->parts[i] = (struct gp_peak_part){.site = i, .bytes = 1 << i};
    cr_expect_eq(bytes_of(&r, peak, "Dr.Jit"), 1 << 1, "and not the object whose name only ends so");
    cr_expect_eq(bytes_of(&r, peak, "tinygrad"), 1 << 3, "a folder of Python, and not a program of that name");
    cr_expect_eq(bytes_of(&r, peak, "Halide"), 1 << 5, "code that was made at run time");
    cr_expect_eq(bytes_of(&r, peak, "faiss"), 0);
    cr_expect_eq(bytes_of(&r, peak, "Cycles of Blender"), 1 << 6, "a path, and not a folder whose name only ends so");
    r.module_count = 3;
    cr_expect_eq(bytes_of(&r, peak, "Halide"), 0, "such code is Halide's where Halide is");
    free(peak);
}
