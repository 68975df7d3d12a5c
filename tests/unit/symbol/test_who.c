/* SPDX-License-Identifier: MIT
 *
 * test_who.c: which frame of a stack names a site, what tells equal names apart, which sites are one
 * line of source, and how much of a path is shown.
 */
#include <base/compiler.h>
#include <symbol/symbol.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SITES 64

struct who {
    struct gp_rec_site sites[SITES];
    struct gp_rec_frame frames[SITES * 8];
    struct gp_rec_module modules[4];
    char strings[65536];
    uint32_t site_count, frame_count, string_bytes;
    struct gp_symbols *symbols;
};
enum { APP, FFI, PYTHON, TORCH, MODULES };

static uint32_t put(struct who *w, const char *text)
{
    uint32_t at = w->string_bytes;
    strcpy(w->strings + at, text);
    w->string_bytes += (uint32_t)strlen(text) + 1;
    return at;
}

static struct who *who_new(void)
{
    static const char *const paths[MODULES] = {"/nowhere/app", "/usr/lib/libffi.so.8", "/usr/bin/python3.11",
                                               "/usr/lib/libtorch_python.so.2.6.0"};
    struct who *w = calloc(1, sizeof(*w));
    put(w, "");
    w->site_count = 1;
    for (uint32_t i = 0; i < MODULES; i++)
        w->modules[i] = (struct gp_rec_module){0x10000 * (i + 1), 0x10000 * (i + 2), 0, put(w, paths[i]), put(w, "00")};
    return w;
}

/* "function file:line" for a frame of Python, "@1" for one at offset 1 of the program, "@ffi",
 * "@python", "@torch"; separated by commas, innermost first. */
static uint32_t stack(struct who *w, const char *text)
{
    uint32_t first = w->frame_count;
    char copy[512], *save = NULL, function[64], file[64];
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *at = strtok_r(copy, ",", &save); at; at = strtok_r(NULL, ",", &save)) {
        unsigned line = 0;
        struct gp_rec_frame frame = {.module = GP_REC_NONE};
        at += strspn(at, " ");
        if (*at == '@') {
            frame.module = strcmp(at, "@ffi") == 0      ? FFI
                           : strcmp(at, "@python") == 0 ? PYTHON
                           : strcmp(at, "@torch") == 0  ? TORCH
                                                        : APP;
            frame.pc = w->modules[frame.module].start + (frame.module == APP ? strtoul(at + 1, NULL, 10) : 1);
        } else {
            cr_assert_eq(sscanf(at, "%63s %63[^:]:%u", function, file, &line), 3, "%s", at);
            frame.function = put(w, function);
            frame.file = put(w, file);
            frame.line = line;
        }
        w->frames[w->frame_count++] = frame;
    }
    w->sites[w->site_count] = (struct gp_rec_site){.first_frame = first, .frame_count = w->frame_count - first};
    cr_assert_lt(w->site_count, SITES - 1);
    return w->site_count++;
}

static struct gp_symbol_source source_of(const struct who *w)
{
    return (struct gp_symbol_source){.sites = w->sites,
                                     .frames = w->frames,
                                     .modules = w->modules,
                                     .strings = w->strings,
                                     .site_count = w->site_count,
                                     .frame_count = w->frame_count,
                                     .module_count = MODULES,
                                     .root = ""};
}

static void who_open(struct who *w)
{
    struct gp_symbol_source source = source_of(w);
    cr_assert_eq(gp_symbols_new(&w->symbols, &source), 0);
}

static void who_free(struct who *w)
{
    gp_symbols_free(w->symbols);
    free(w);
}

static void named(struct who *w, uint32_t site, const char *function, uint32_t line)
{
    const struct gp_frame_text *name = gp_symbols_name(w->symbols, site);
    cr_expect(strcmp(name->function, function) == 0 && name->line == line, "site %u: %s:%u, not %s:%u", site,
              name->function, name->line, function, line);
}

static void labelled(struct who *w, const char *const *wanted)
{
    uint32_t sites[SITES] = {0}, count = w->site_count - 1;
    const struct gp_frame_text *callers[SITES], *callees[SITES];
    for (uint32_t i = 0; i < count; i++)
        sites[i] = i + 1;
    gp_symbols_callers(w->symbols, sites, count, callers);
    gp_symbols_callees(w->symbols, sites, count, callees);
    for (uint32_t i = 0; i < count; i++) {
        char label[128];
        gp_caller_text(gp_symbols_name(w->symbols, sites[i]), callers[i], callees[i], label, sizeof(label));
        cr_expect_str_eq(label, wanted[i], "%u: '%s', not '%s'", i + 1, label, wanted[i]);
    }
}

/* ---- wrappers ---------------------------------------------------------------------------------------------------- */

Test(who, a_function_that_most_sites_pass_through_is_a_wrapper)
{
    struct who *w = who_new();
    stack(w, "buffer m.c:1, create m.c:10, main m.c:90");
    stack(w, "buffer m.c:1, create m.c:11, main m.c:90");
    stack(w, "buffer m.c:1, forward m.c:20, main m.c:91");
    stack(w, "save m.c:30, main m.c:92");
    who_open(w);
    named(w, 1, "create", 10), named(w, 2, "create", 11), named(w, 3, "forward", 20), named(w, 4, "save", 30);
    const struct gp_frame_text *frames;
    gp_symbols_site(w->symbols, 1, &frames);
    cr_expect_str_eq(gp_frame_role_name(frames[0].role), "wrapper");
    cr_expect_str_eq(gp_frame_role_name(frames[1].role), "user");
    gp_symbols_site(w->symbols, 4, &frames);
    cr_expect_str_eq(gp_frame_role_name(frames[0].role), "user");
    who_free(w);
}

/* The same function with the sites of a larger program: four functions call it. */
Test(who, so_is_one_that_many_functions_call)
{
    struct who *w = who_new();
    static const char *const calls[] = {"a m.c:10", "b m.c:20", "c m.c:30", "d m.c:40"};
    char text[128];
    for (unsigned i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), "grid m.c:1, %s, main m.c:90", calls[i]);
        stack(w, text);
    }
    for (unsigned i = 0; i < 10; i++) {
        snprintf(text, sizeof(text), "layer%u m.c:%u, main m.c:91", i, 50 + i);
        stack(w, text);
    }
    who_open(w);
    named(w, 1, "a", 10), named(w, 4, "d", 40), named(w, 5, "layer0", 50);
    who_free(w);
}

Test(who, functions_that_do_the_work_are_not_wrappers)
{
    struct who *w = who_new();
    stack(w, "forward m.c:1, train m.c:10, main m.c:90"); /* two callers */
    stack(w, "forward m.c:1, evaluate m.c:20, main m.c:91");
    stack(w, "create m.c:30, main m.c:92"); /* several lines, one caller */
    stack(w, "create m.c:31, main m.c:92");
    stack(w, "remember m.c:40, step m.c:50, main m.c:93"); /* one caller */
    stack(w, "allocate_all m.c:60, main m.c:94");          /* its name alone is not enough */
    stack(w, "allocate_all m.c:61, main m.c:94");
    who_open(w);
    named(w, 1, "forward", 1), named(w, 2, "forward", 1), named(w, 3, "create", 30), named(w, 4, "create", 31);
    named(w, 5, "remember", 40), named(w, 6, "allocate_all", 60), named(w, 7, "allocate_all", 61);
    who_free(w);
}

Test(who, names_of_allocators_and_constructors_need_two_callers)
{
    struct who *w = who_new();
    stack(w, "dev_malloc m.c:1, load m.c:10, main m.c:90");
    stack(w, "dev_malloc m.c:1, keep m.c:20, main m.c:91");
    stack(w, "Pool::alloc p.cc:1, read m.c:30, main m.c:92");
    stack(w, "Pool::alloc p.cc:2, write m.c:40, main m.c:93");
    stack(w, "Tensor::Tensor t.cc:1, encode m.c:50, main m.c:94");
    stack(w, "Tensor::Tensor t.cc:1, decode m.c:60, main m.c:95");
    stack(w, "Tensor.__init__ t.py:1, embed m.py:70, main m.py:96");
    stack(w, "Tensor.__init__ t.py:1, attend m.py:80, main m.py:97");
    for (unsigned i = 0; i < 8; i++) {
        char text[64];
        snprintf(text, sizeof(text), "other%u m.c:%u, main m.c:99", i, 100 + i);
        stack(w, text);
    }
    who_open(w);
    named(w, 1, "load", 10), named(w, 2, "keep", 20), named(w, 3, "read", 30), named(w, 4, "write", 40);
    named(w, 5, "encode", 50), named(w, 6, "decode", 60), named(w, 7, "embed", 70), named(w, 8, "attend", 80);
    named(w, 9, "other0", 100);
    who_free(w);
}

/* get() calls one function, which calls the driver: both only allocate. */
Test(who, wrappers_around_wrappers)
{
    struct who *w = who_new();
    stack(w, "raw d.c:1, try d.c:2, get d.c:3, create m.c:10, main m.c:90");
    stack(w, "raw d.c:1, try d.c:2, get d.c:3, forward m.c:20, main m.c:91");
    stack(w, "raw d.c:1, try d.c:2, get d.c:3, backward m.c:30, main m.c:92");
    who_open(w);
    named(w, 1, "create", 10), named(w, 2, "forward", 20), named(w, 3, "backward", 30);
    who_free(w);
}

/* get() requests device memory for get_device() and pinned memory for main: two lines, two callers. */
Test(who, a_wrapper_of_two_kinds)
{
    struct who *w = who_new();
    stack(w, "get d.c:1, get_device d.c:3, create m.c:10, main m.c:90");
    stack(w, "get d.c:1, get_device d.c:3, forward m.c:20, main m.c:91");
    stack(w, "get d.c:1, get_device d.c:3, backward m.c:30, main m.c:92");
    stack(w, "get d.c:2, main m.c:93");
    who_open(w);
    named(w, 1, "create", 10), named(w, 2, "forward", 20), named(w, 3, "backward", 30), named(w, 4, "main", 93);
    who_free(w);
}

Test(who, a_comprehension_is_a_part_of_its_function)
{
    struct who *w = who_new();
    stack(w, "<listcomp> m.py:5, forward m.py:5, <module> m.py:9");
    stack(w, "<module> m.py:12");
    who_open(w);
    named(w, 1, "forward", 5), named(w, 2, "<module>", 12);
    who_free(w);
}

/* [step(part) for part in model]: a function is not a wrapper because a comprehension calls it. */
Test(who, a_function_that_a_comprehension_calls)
{
    struct who *w = who_new();
    stack(w, "forward m.py:3, <listcomp> m.py:5, main m.py:5, <module> m.py:9");
    stack(w, "__init__ t.py:1, forward m.py:4, <listcomp> m.py:5, main m.py:5, <module> m.py:9");
    stack(w, "__init__ t.py:1, <listcomp> m.py:6, main m.py:6, <module> m.py:9");
    who_open(w);
    named(w, 1, "forward", 3), named(w, 2, "forward", 4), named(w, 3, "main", 6);
    who_free(w);
}

/* More sites make a wrapper of a function that looked like the place that matters. */
Test(who, names_follow_what_is_known)
{
    struct who *w = who_new();
    stack(w, "buffer m.c:1, create m.c:10, main m.c:90");
    who_open(w);
    named(w, 1, "buffer", 1);
    stack(w, "buffer m.c:1, create m.c:11, main m.c:90");
    stack(w, "buffer m.c:1, forward m.c:20, main m.c:91");
    struct gp_symbol_source source = source_of(w);
    cr_assert_eq(gp_symbols_update(w->symbols, &source), 0);
    named(w, 1, "create", 10), named(w, 3, "forward", 20);
    who_free(w);
}

/* ---- interpreters ------------------------------------------------------------------------------------------------ */

Test(who, interpreters_never_name_a_site)
{
    struct who *w = who_new();
    const struct gp_frame_text *frames;
    stack(w, "@ffi, @ffi, @python, @python, @7"); /* stacks without frames of Python */
    stack(w, "@ffi, @python, step m.py:4, <module> m.py:9");
    stack(w, "cast /usr/lib/python3.11/ctypes/__init__.py:8, _get /usr/lib/python3/dist-packages/x.py:3, f m.py:1");
    who_open(w);
    cr_expect_str_eq(gp_symbols_name(w->symbols, 1)->function, "app+0x7");
    named(w, 2, "step", 4), named(w, 3, "f", 1);
    uint32_t count = gp_symbols_site(w->symbols, 1, &frames), folded = 0;
    for (uint32_t i = 0; i < count; i++)
        folded += frames[i].folded;
    cr_expect_eq(count, 5);
    cr_expect_eq(folded, 4);
    gp_symbols_site(w->symbols, 3, &frames);
    cr_expect(frames[0].folded && !frames[1].folded && frames[1].role == GP_ROLE_LIBRARY && !frames[2].folded);
    who_free(w);
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

Test(who, one_line_that_calls_a_library_in_several_ways)
{
    static const char *const labels[] = {"step (t.py:5) > linear (nn.py:20)", "step (t.py:5) > gelu (nn.py:30)",
                                         "load (t.py:9)"};
    struct who *w = who_new();
    stack(w, "empty /usr/lib/python3/dist-packages/torch.py:1, linear /usr/lib/python3/dist-packages/nn.py:20, "
             "step t.py:5");
    stack(w, "empty /usr/lib/python3/dist-packages/torch.py:1, gelu /usr/lib/python3/dist-packages/nn.py:30, "
             "step t.py:5");
    stack(w, "empty /usr/lib/python3/dist-packages/torch.py:1, load t.py:9");
    who_open(w);
    labelled(w, labels);
    who_free(w);
}

/* A wrapper with two lines: the rows have one name, one caller, and differ inside. */
Test(who, a_wrapper_with_a_second_way)
{
    static const char *const labels[] = {"create (m.c:10) > dev_alloc:1", "create (m.c:10) > dev_alloc:2",
                                         "forward (m.c:20)"};
    struct who *w = who_new();
    stack(w, "dev_alloc m.c:1, create m.c:10, main m.c:90");
    stack(w, "dev_alloc m.c:2, create m.c:10, main m.c:90");
    stack(w, "dev_alloc m.c:1, forward m.c:20, main m.c:90");
    who_open(w);
    labelled(w, labels);
    who_free(w);
}

/* Two calls in a function without lines. */
Test(who, code_without_lines_has_offsets)
{
    struct gp_frame_text f = {.function = "work", .file = "", .module = "app", .offset = 0x1a2};
    char label[64];
    cr_expect_eq(gp_frame_label(&f, label, sizeof(label)), 4);
    cr_expect_str_eq(label, "work (app+0x1a2)");
    f.file = "/home/me/src/work.c", f.short_file = f.file + 13, f.line = 3;
    cr_expect_eq(gp_frame_label(&f, label, sizeof(label)), 4);
    cr_expect_str_eq(label, "work (work.c:3)");
    cr_expect_eq(gp_frame_label(&f, label, 15), 4);
    cr_expect_str_eq(label, "work:3", "the function matters more than its file");
}

Test(who, paths_are_as_long_as_they_must_be)
{
    static const char *const paths[] = {"/home/me/a/util.c",
                                        "/home/me/b/util.c",
                                        "/home/me/main.c",
                                        "tool/main.c",
                                        "main.c",
                                        "/x/myutil.c",
                                        "/x/grid.c",
                                        "/tmp/ipykernel_3014/1719283746.py",
                                        "<ipython-input-3-0f1e2d3c>",
                                        "/tmp/ipykernel_3014/own.py"};
    static const char *const shorts[] = {"a/util.c", "b/util.c", "me/main.c", "tool/main.c",
                                         "main.c",   "myutil.c", "grid.c",    "notebook cell 1719283746",
                                         "cell 3",   "own.py"};
    struct who *w = who_new();
    char text[128];
    for (unsigned i = 0; i < GP_COUNT(paths); i++) {
        snprintf(text, sizeof(text), "f%u %s:%u", i, paths[i], i + 1);
        stack(w, text);
    }
    who_open(w);
    for (unsigned i = 0; i < GP_COUNT(paths); i++)
        cr_expect_str_eq(gp_symbols_name(w->symbols, i + 1)->short_file, shorts[i]);
    who_free(w);
}

/* All that a viewer without the libraries' symbols sees of a backward pass. */
Test(who, a_thread_of_torch_without_python_runs_a_backward_pass)
{
    struct who *w = who_new();
    stack(w, "@1, @torch, @2");
    stack(w, "@1, @torch, forward m.py:1");
    stack(w, "@1, @2");
    who_open(w);
    cr_expect_str_eq(gp_symbols_operation(w->symbols, 1)->text, "backward");
    cr_expect_eq(gp_symbols_operation(w->symbols, 1)->part, GP_PART_BACKWARD);
    cr_expect_null(gp_symbols_operation(w->symbols, 2)->text);
    cr_expect_null(gp_symbols_operation(w->symbols, 3)->text);
    who_free(w);
}

/* ---- twins ------------------------------------------------------------------------------------------------------- */

Test(who, equal_text_is_one_site_unless_device_or_kind_differ)
{
    struct who *w = who_new();
    for (unsigned i = 0; i < 4; i++)
        stack(w, "forward m.c:20, main m.c:90");
    stack(w, "forward m.c:20, main m.c:91");
    stack(w, "forward m.c:21, main m.c:90");
    w->sites[3].device = 1;
    w->sites[4].kind = GP_KIND_PINNED;
    who_open(w);
    static const uint32_t twins[] = {0, 1, 1, 3, 4, 5, 6};
    for (uint32_t i = 0; i < 7; i++)
        cr_expect_eq(gp_symbols_twin(w->symbols, i), twins[i], "%u", i);
    who_free(w);
}
