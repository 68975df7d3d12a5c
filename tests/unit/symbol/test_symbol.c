/* SPDX-License-Identifier: MIT
 *
 * test_symbol.c: names, lines and inlined calls of objects that are compiled here with this
 * machine's compilers and strip; which objects are refused; the stacks that viewers show.
 */
#include <base/clock.h>
#include <base/text.h>
#include <lib/build.h>
#include <record/modules.h>
#include <symbol/internal.h>
#include <symbol/symbol.h>

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRAB_LINE 2
static const char source[] =
    /* The empty ranges of a unit's first function are at 0, which in an older GCC's DWARF 4 ends
     * the list. */
    "typedef void grab(void); int first(int x) { return 3 * x; }\n"
    "static inline __attribute__((always_inline)) void leaf(grab *g) { g(); __asm__ volatile(\"\"); }\n"
    "static inline __attribute__((always_inline)) void middle(grab *g)\n"
    "{\n"
    "    leaf(g);\n"
    "}\n"
    "__attribute__((noinline)) void outer(grab *g) __asm__(\"_ZN5shape6CircleIiE4areaEv\");\n"
    "__attribute__((noinline)) void outer(grab *g)\n"
    "{\n"
    "    middle(g);\n"
    "    __asm__ volatile(\"\");\n"
    "}\n"
    "void entry(grab *g) { outer(g); __asm__ volatile(\"\"); }\n";

/* Code like an interpreter's until 3.10: one C function for each Python function. */
static const char interpreter[] =
    "void _PyEval_EvalFrameDefault(void (*g)(void)) { g(); __asm__ volatile(\"\"); }\n"
    "void entry(void (*g)(void)) { _PyEval_EvalFrameDefault(g); __asm__ volatile(\"\"); }\n";

static const char *program = source;
static char *folder;
static uint64_t grabbed[2];
static unsigned grabs;

static __attribute__((noinline)) void grab(void)
{
    grabbed[grabs++ & 1] = (uint64_t)(uintptr_t)__builtin_return_address(0);
}

static int shell(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    return system(line);
}

/* Tables of a recording, large enough for the tests. */
struct tables {
    struct gp_rec_site sites[8];
    struct gp_rec_frame frames[64];
    struct gp_rec_module modules[8];
    char strings[8192];
    uint32_t site_count, frame_count, module_count, string_bytes;
    struct gp_symbols *symbols;
};

static uint32_t put(struct tables *t, const char *text)
{
    uint32_t at = t->string_bytes;
    strcpy(t->strings + at, text);
    t->string_bytes += (uint32_t)strlen(text) + 1;
    return at;
}

static struct tables *tables_new(void)
{
    struct tables *t = calloc(1, sizeof(*t));
    put(t, "");
    t->site_count = 1;
    return t;
}

static uint32_t module(struct tables *t, uint64_t start, uint64_t end, uint64_t offset, const char *path,
                       const char *build_id)
{
    t->modules[t->module_count] = (struct gp_rec_module){start, end, offset, put(t, path), put(t, build_id)};
    return t->module_count++;
}

static void native(struct tables *t, uint64_t pc, uint32_t in)
{
    t->frames[t->frame_count++] = (struct gp_rec_frame){.pc = pc, .module = in};
}

static void python(struct tables *t, const char *function, const char *file, uint32_t line)
{
    t->frames[t->frame_count++] =
        (struct gp_rec_frame){.function = put(t, function), .file = put(t, file), .line = line, .module = GP_REC_NONE};
}

/* Makes a site of all frames added since the last one. */
static uint32_t site(struct tables *t)
{
    uint32_t first =
        t->site_count == 1 ? 0 : t->sites[t->site_count - 1].first_frame + t->sites[t->site_count - 1].frame_count;
    t->sites[t->site_count] = (struct gp_rec_site){.first_frame = first, .frame_count = t->frame_count - first};
    return t->site_count++;
}

static struct gp_symbols *open_symbols(struct tables *t)
{
    struct gp_symbol_source from = GP_SYMBOL_SOURCE(t, "");
    cr_assert_eq(gp_symbols_new(&t->symbols, &from), 0);
    return t->symbols;
}

static void tables_free(struct tables *t)
{
    gp_symbols_free(t->symbols);
    free(t);
}

static void hex(const struct gp_module *m, char out[80])
{
    out[0] = '\0';
    for (unsigned i = 0; i < m->build_id_bytes; i++)
        sprintf(out + 2 * i, "%02x", m->build_id[i]);
}

/* Compiles the source, runs it, and fills tables with the site of the call of grab(); build_id
 * NULL: the one of the file. */
static struct tables *run_object(const char *name, const char *compiler, const char *flags, const char *build_id)
{
    char path[256], id[80];
    snprintf(path, sizeof(path), "%s/f.c", folder);
    FILE *file = fopen(path, "w");
    fputs(program, file);
    fclose(file);
    if (shell("%s -O2 -fPIC -shared %s -o %s/%s %s", compiler, flags, folder, name, path) != 0)
        return NULL;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    void *handle = dlopen(path, RTLD_NOW);
    cr_assert(handle, "%s", dlerror());
    void (*entry)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(handle, "entry");
    cr_assert(entry);
    grabs = 0;
    entry(grab);
    struct gp_modules modules;
    cr_assert_eq(gp_modules_read(&modules, "/proc/self", NULL), 0);
    const struct gp_module *m = gp_modules_find(&modules, grabbed[0]);
    cr_assert(m);
    cr_assert_str_eq(m->path, path);
    hex(m, id);
    struct tables *t = tables_new();
    uint32_t in = module(t, m->start, m->end, m->offset, m->path, build_id ? build_id : id);
    native(t, grabbed[0], in);
    site(t);
    gp_modules_free(&modules);
    return t;
}

static void expect_inlines(struct tables *t)
{
    const struct gp_frame_text *f;
    uint32_t count = gp_symbols_site(open_symbols(t), 1, &f);
    cr_assert_eq(count, 3, "%s: %u frames, the first is %s", t->strings + t->modules[0].path, count, f[0].function);
    cr_assert_str_eq(f[0].function, "leaf");
    cr_assert_str_eq(f[1].function, "middle");
    cr_assert_str_eq(f[2].function, "shape::Circle<int>::area");
    cr_assert(f[0].inlined && f[1].inlined && !f[2].inlined);
    cr_assert_eq(f[0].line, GRAB_LINE);
    cr_assert_eq(f[1].line, 5);
    cr_assert_eq(f[2].line, 10);
    for (int i = 0; i < 3; i++) {
        cr_assert(strstr(f[i].file, "/f.c"), "%s", f[i].file);
        cr_assert_eq(f[i].pc, grabbed[0]);
        cr_assert_eq(f[i].module_index, 0);
    }
    cr_assert_null(gp_symbols_note(t->symbols, 0), "%s", gp_symbols_note(t->symbols, 0));
}

static void setup(void)
{
    folder = build_folder();
    cr_assert(folder);
}

static void clean(void)
{
    shell("rm -rf %s/* %s/.debug", folder, folder);
    build_remove(folder);
}

TestSuite(symbol, .init = setup, .fini = clean, .timeout = 120);

Test(symbol, inlined_calls_by_gcc_and_clang_in_dwarf_4_and_5)
{
    static const struct {
        const char *name, *compiler, *flags;
    } builds[] = {
        {"g5.so", "cc", "-g -gdwarf-5 -Wl,--build-id"},    {"g4.so", "cc", "-g -gdwarf-4 -Wl,--build-id"},
        {"c5.so", "clang", "-g -gdwarf-5 -Wl,--build-id"}, {"c4.so", "clang", "-g -gdwarf-4 -Wl,--build-id"},
        {"cz.so", "cc", "-g -gz -Wl,--build-id"},          {"split.so", "cc", "-g -gsplit-dwarf -Wl,--build-id"}};
    for (size_t i = 0; i < sizeof(builds) / sizeof(builds[0]); i++) {
        struct tables *t = run_object(builds[i].name, builds[i].compiler, builds[i].flags, NULL);
        cr_assert(t || strcmp(builds[i].compiler, "clang") == 0, "%s", builds[i].name);
        if (!t)
            continue;
        cr_log_info("%s", builds[i].name);
        expect_inlines(t);
        tables_free(t);
    }
}

Test(symbol, debug_file_beside_the_object)
{
    struct tables *t = run_object("d.so", "cc", "-g -Wl,--build-id", NULL);
    cr_assert(t);
    cr_assert_eq(
        shell("cd %s && mkdir .debug && objcopy --only-keep-debug d.so .debug/d.so.debug && strip -g -o new d.so && "
              "objcopy --add-gnu-debuglink=.debug/d.so.debug new && mv new d.so", /* it is mapped */
              folder),
        0);
    expect_inlines(t);
    tables_free(t);
}

Test(symbol, the_symbol_table_where_there_is_no_debug_information)
{
    struct tables *t = run_object("s.so", "cc", "-g0 -Wl,--build-id", NULL);
    const struct gp_frame_text *f;
    cr_assert_eq(gp_symbols_site(open_symbols(t), 1, &f), 1);
    cr_assert_str_eq(f[0].function, "shape::Circle<int>::area");
    cr_assert_str_eq(f[0].file, "");
    cr_assert_str_eq(f[0].module, "s.so");
    tables_free(t);
}

static void expect_offset(struct tables *t, const char *name, const char *note)
{
    const struct gp_frame_text *f;
    char want[64];
    struct gp_symbols *symbols = open_symbols(t);
    const struct gp_rec_module *m = &t->modules[0];
    snprintf(want, sizeof(want), "%s+0x%llx", name, (unsigned long long)(grabbed[0] - m->start + m->offset));
    cr_assert_eq(gp_symbols_site(symbols, 1, &f), 1);
    cr_assert_str_eq(f[0].function, want);
    cr_assert(gp_symbols_note(symbols, 0) && strstr(gp_symbols_note(symbols, 0), note), "%s",
              gp_symbols_note(symbols, 0) ? gp_symbols_note(symbols, 0) : "no note");
    cr_assert_null(gp_symbols_note(symbols, 1), "reported once");
    tables_free(t);
}

Test(symbol, names_of_another_build_are_not_shown)
{
    expect_offset(run_object("o.so", "cc", "-g -Wl,--build-id", "00112233445566778899aabbccddeeff00112233"), "o.so",
                  "not the build that ran");
    expect_offset(run_object("o2.so", "cc", "-g -Wl,--build-id", ""), "o2.so", "not the build that ran");
    expect_offset(run_object("o3.so", "cc", "-g -Wl,--build-id=none", "0011"), "o3.so", "not the build that ran");
}

/* Two instances of a template on one line of source. */
Test(symbol, instances_of_one_template_are_one_site)
{
    program = "void one(void (*)(void)) __asm__(\"_ZN5shape6CircleIiE4areaEv\");"
              "void other(void (*)(void)) __asm__(\"_ZN5shape6CircleIfE4areaEv\");\n"
              "void one(void (*g)(void)) { g(); __asm__(\"\"); } void other(void (*g)(void)) { g(); __asm__(\"\"); }\n"
              "void entry(void (*g)(void)) { one(g); other(g); __asm__(\"\"); }\n";
    struct tables *t = run_object("x.so", "cc", "-g -fno-inline -fno-ipa-icf -Wl,--build-id", NULL);
    native(t, grabbed[1], 0);
    site(t);
    open_symbols(t);
    cr_assert_neq(grabbed[0], grabbed[1]);
    cr_expect_eq(gp_symbols_twin(t->symbols, 2), 1);
    cr_expect_str_eq(gp_symbols_name(t->symbols, 1)->function, "shape::Circle::area");
    tables_free(t);
}

Test(symbol, a_file_that_is_gone_or_is_none)
{
    struct tables *t = run_object("v.so", "cc", "-g -Wl,--build-id", NULL);
    shell("rm %s/v.so", folder);
    expect_offset(t, "v.so", "cannot be opened");
    t = run_object("p.so", "cc", "-g -Wl,--build-id", NULL);
    shell("rm %s/p.so && mkfifo %s/p.so", folder, folder);
    expect_offset(t, "p.so", "not an ELF file");
    t = run_object("t.so", "cc", "-g -Wl,--build-id", NULL);
    shell("rm %s/t.so && echo text > %s/t.so", folder, folder);
    expect_offset(t, "t.so", "not an ELF file");
}

Test(symbol, without_build_ids_names_are_shown_with_a_warning)
{
    struct tables *t = run_object("n.so", "cc", "-g -Wl,--build-id=none", NULL);
    const struct gp_frame_text *f;
    cr_assert_eq(gp_symbols_site(open_symbols(t), 1, &f), 3);
    cr_assert_str_eq(f[0].function, "leaf");
    cr_assert(strstr(gp_symbols_note(t->symbols, 0), "no build id"));
    tables_free(t);
}

/* Damaged debug information ends in fewer names, never in a crash or a hang. */
Test(symbol, damaged_objects)
{
    struct tables *t = run_object("h.so", "cc", "-g -Wl,--build-id", NULL);
    char path[256], bad[256];
    snprintf(path, sizeof(path), "%s/h.so", folder);
    snprintf(bad, sizeof(bad), "%s/bad.so", folder);
    FILE *file = fopen(path, "rb");
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    unsigned char *bytes = malloc(size), *copy = malloc(size);
    rewind(file);
    cr_assert_eq(fread(bytes, 1, size, file), size);
    fclose(file);
    strcpy(t->strings + t->modules[0].path, "");
    t->modules[0].path = put(t, bad);
    srand(1);
    unsigned named = 0;
    for (int i = 0; i < 600; i++) {
        memcpy(copy, bytes, size);
        for (int k = 0; k < 1 + i % 40; k++) /* past the file's head, which elfutils would reject at once */
            copy[0x1000 + (size_t)rand() % (size - 0x1000)] = (unsigned char)rand();
        file = fopen(bad, "wb");
        cr_assert_eq(fwrite(copy, 1, size - (i % 3 ? 0 : (size_t)rand() % (size / 2)), file) > 0, 1);
        fclose(file);
        const struct gp_frame_text *f;
        cr_assert_geq(gp_symbols_site(open_symbols(t), 1, &f), 1);
        named += strstr(f[0].function, "+0x") == NULL;
        gp_symbols_free(t->symbols);
        t->symbols = NULL;
    }
    cr_assert_gt(named, 50, "most damage leaves something: the lookups were reached");
    free(bytes);
    free(copy);
    tables_free(t);
}

Test(symbol, code_without_a_file)
{
    struct tables *t = tables_new();
    const struct gp_frame_text *f;
    uint32_t vdso = module(t, 0x7000, 0x8000, 0, "[vdso]", "");
    native(t, 0x12345678, GP_REC_NONE);
    site(t);
    native(t, 0x7010, vdso);
    site(t);
    native(t, 0x9000, vdso); /* outside the mapping that the frame names */
    site(t);
    native(t, 0x9000, 77);
    site(t);
    open_symbols(t);
    cr_assert_eq(gp_symbols_site(t->symbols, 1, &f), 1);
    cr_assert_str_eq(f[0].function, "0x12345678");
    gp_symbols_site(t->symbols, 2, &f);
    cr_assert_str_eq(f[0].function, "[vdso]+0x10");
    gp_symbols_site(t->symbols, 3, &f);
    cr_assert_str_eq(f[0].function, "0x9000");
    gp_symbols_site(t->symbols, 4, &f);
    cr_assert_str_eq(f[0].function, "0x9000");
    cr_assert_null(gp_symbols_note(t->symbols, 0));
    cr_assert_eq(gp_symbols_site(t->symbols, 0, &f), 1);
    cr_assert_str_eq(f[0].function, "[unknown]");
    gp_symbols_site(t->symbols, 99, &f);
    cr_assert_str_eq(f[0].function, "[unknown]");
    cr_assert_str_eq(gp_symbols_name(t->symbols, 0)->function, "[unknown]");
    tables_free(t);
}

Test(symbol, hostile_texts)
{
    struct tables *t = tables_new();
    const struct gp_frame_text *f;
    char longest[3000];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    python(t,
           "a\033[2Jb\xff"
           "c",
           "%s%n.py", 3);
    python(t, longest, "", 0);
    site(t);
    open_symbols(t);
    cr_assert_eq(gp_symbols_site(t->symbols, 1, &f), 2);
    cr_assert_str_eq(f[0].function, "a?[2Jb?c");
    cr_assert_str_eq(f[0].file, "%s%n.py");
    cr_assert_eq(strlen(f[1].function), 1023);
    tables_free(t);
}

/* ---- stacks ---------------------------------------------------------------------------------------------------- */

static void expect_stack(struct tables *t, uint32_t which, const char *want)
{
    const struct gp_frame_text *f;
    char got[2048] = "";
    uint32_t count = gp_symbols_site(t->symbols, which, &f);
    for (uint32_t i = 0; i < count; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", i ? " " : "", f[i].function);
    cr_assert_str_eq(got, want);
}

/* Objects without files: their functions are shown as offsets, which is enough here. */
static struct tables *stack_tables(void)
{
    static const char *const paths[] = {
        "/nowhere/libgpuprof.so", "/nowhere/libcupti.so.13",       "/nowhere/libcuda.so.1", "/nowhere/libcudart.so.13",
        "/nowhere/app",           "/nowhere/libpython3.11.so.1.0", "/usr/lib/libsys.so.1"};
    struct tables *t = tables_new();
    for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        module(t, 0x10000 * (i + 1), 0x10000 * (i + 2), 0, paths[i], "00");
    return t;
}
enum { OURS, CUPTI, CUDA, CUDART, APP, PYTHON, SYSTEM };
static void at(struct tables *t, int in, unsigned offset)
{
    native(t, 0x10000u * ((unsigned)in + 1) + offset, (uint32_t)in);
}

Test(symbol, the_inner_end_is_left_out)
{
    struct tables *t = stack_tables();
    at(t, OURS, 1), at(t, CUPTI, 2), at(t, CUDA, 3), at(t, CUDART, 4), at(t, CUDART, 5), at(t, APP, 6), at(t, CUDA, 7),
        at(t, APP, 8);
    site(t);
    at(t, OURS, 1), at(t, CUDA, 3), at(t, APP, 6);
    site(t);
    at(t, OURS, 1), at(t, CUDA, 3);
    site(t);
    at(t, SYSTEM, 1), at(t, APP, 2);
    t->sites[site(t)].truncated = true;
    open_symbols(t);
    expect_stack(t, 1, "libcudart.so.13+0x5 app+0x6 libcuda.so.1+0x7 app+0x8");
    cr_assert_str_eq(gp_symbols_name(t->symbols, 1)->function, "app+0x6");
    expect_stack(t, 2, "app+0x6");
    expect_stack(t, 3, "libcuda.so.1+0x3");
    expect_stack(t, 4, "libsys.so.1+0x1 app+0x2 [truncated]");
    cr_assert_str_eq(gp_symbols_name(t->symbols, 4)->function, "app+0x2");
    tables_free(t);
}

Test(symbol, python_frames_are_where_the_interpreter_was)
{
    struct tables *t = stack_tables();
    at(t, OURS, 1), at(t, CUDA, 2), at(t, SYSTEM, 3), at(t, PYTHON, 4), at(t, PYTHON, 5), at(t, APP, 6),
        at(t, PYTHON, 7), at(t, APP, 8);
    python(t, "empty", "/usr/lib/python3/dist-packages/torch/x.py", 1);
    python(t, "forward", "/home/me/model.py", 2);
    python(t, "<module>", "/home/me/train.py", 3);
    site(t);
    at(t, OURS, 1), at(t, CUDA, 2); /* the native part could not be followed */
    python(t, "step", "/home/me/a.py", 1);
    site(t);
    python(t, "empty", "/usr/lib/python3/dist-packages/torch/x.py", 1);
    python(t, "full", "/usr/lib/python3/dist-packages/torch/y.py", 1);
    site(t);
    open_symbols(t);
    expect_stack(t, 1, "libsys.so.1+0x3 empty forward <module> app+0x6 app+0x8");
    cr_assert_str_eq(gp_symbols_name(t->symbols, 1)->function, "forward");
    expect_stack(t, 2, "step");
    expect_stack(t, 3, "empty full");
    cr_assert_str_eq(gp_symbols_name(t->symbols, 3)->function, "empty");
    tables_free(t);
}

static void expect_label(const struct gp_symbols *symbols, const uint32_t *sites, const struct gp_frame_text **callers,
                         uint32_t i, const char *wanted)
{
    char label[128];
    gp_caller_text(gp_symbols_name((struct gp_symbols *)symbols, sites[i]), callers[i], NULL, label, sizeof(label));
    cr_expect_str_eq(label, wanted, "%u: '%s', not '%s'", i, label, wanted);
}

/* A program that allocates in one place: its sites are told apart by the nearest frame at which
 * their stacks differ from all others. */
Test(symbol, equal_names_are_told_apart_by_their_callers)
{
    static const uint32_t asked[] = {1, 2, 3, 4, 5, 6};
    const struct gp_frame_text *callers[6];
    struct tables *t = calloc(1, sizeof(*t));
    t->site_count = 1;
    put(t, "");
    python(t, "get", "m.py", 1), python(t, "layer", "m.py", 2), python(t, "forward", "f.py", 3);
    site(t);
    python(t, "get", "m.py", 1), python(t, "layer", "m.py", 2), python(t, "backward", "b.py", 4);
    site(t);
    python(t, "get", "m.py", 1), python(t, "state", "m.py", 5), python(t, "forward", "f.py", 3);
    site(t);
    python(t, "other", "m.py", 1), python(t, "layer", "m.py", 2);
    site(t);
    python(t, "get", "m.py", 1), python(t, "layer", "m.py", 2), python(t, "forward", "f.py", 3); /* another device */
    site(t);
    python(t, "get", "m.py", 1);
    site(t);
    open_symbols(t);
    gp_symbols_callers(t->symbols, asked, 6, callers);
    expect_label(t->symbols, asked, callers, 0, "get (m.py:1) < forward (f.py:3)");
    expect_label(t->symbols, asked, callers, 1, "get (m.py:1) < backward (b.py:4)");
    expect_label(t->symbols, asked, callers, 2, "get (m.py:1) < state:5");
    expect_label(t->symbols, asked, callers, 3, "other (m.py:1)");
    expect_label(t->symbols, asked, callers, 4, "get (m.py:1) < forward (f.py:3)");
    expect_label(t->symbols, asked, callers, 5, "get (m.py:1)");
    gp_symbols_callers(t->symbols, asked, 1, callers);
    expect_label(t->symbols, asked, callers, 0, "get (m.py:1)");
    tables_free(t);
}

Test(symbol, python_frames_go_one_to_one_where_there_are_as_many)
{
    program = interpreter;
    struct tables *t = run_object("libpython3.10.so.1.0", "cc", "-g -Wl,--build-id", NULL);
    uint32_t app = module(t, 0x10000, 0x20000, 0, "/nowhere/app", "00");
    uint64_t eval = t->frames[0].pc;
    native(t, eval, 0), native(t, 0x10005, app), native(t, eval, 0);
    python(t, "inner", "a.py", 1), python(t, "outer", "b.py", 2);
    site(t);
    native(t, eval, 0), native(t, 0x10005, app), native(t, eval, 0);
    python(t, "a", "a.py", 1), python(t, "b", "b.py", 2), python(t, "c", "c.py", 3);
    site(t);
    open_symbols(t);
    expect_stack(t, 1, "_PyEval_EvalFrameDefault");
    expect_stack(t, 2, "inner app+0x5 outer");
    expect_stack(t, 3, "a b c app+0x5");
    tables_free(t);
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

Test(symbol, mangled_names)
{
    static const struct {
        const char *from, *to;
    } names[] = {
        {"_ZN2at6native5emptyEv", "at::native::empty"},
        {"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"},
        {"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"},
        {"_RNvCs1234_7mycrate3foo", "mycrate::foo"},
        {"main", NULL},
        {"_Z!", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char out[256] = "untouched";
        bool good = gp_demangle(names[i].from, out, sizeof(out));
        cr_assert_eq(good, names[i].to != NULL, "%s", names[i].from);
        if (names[i].to)
            cr_assert_str_eq(out, names[i].to);
    }
}

/* Each argument doubles the text: it would have 2^60 characters. */
Test(symbol, a_name_that_explodes_is_cut)
{
    char name[1024] = "_Z1fI1aIiiE", out[256];
    const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (int i = 0; i < 34; i++)
        snprintf(name + strlen(name), sizeof(name) - strlen(name), "1aIS%c_S%c_E", digits[i], digits[i]);
    strcat(name, "EvT_");
    uint64_t begin = gp_clock_ns();
    if (gp_demangle(name, out, sizeof(out)))
        cr_assert_lt(strlen(out), sizeof(out));
    cr_assert_lt(gp_clock_ns() - begin, 2000000000ull);
}

Test(symbol, labels_fit)
{
    struct gp_frame_text f = {
        .function = "train_step", .file = "/home/someone/projects/model/train.py", .line = 123, .module = ""};
    char out[128];
    gp_frame_label(&f, out, sizeof(out));
    cr_assert_str_eq(out, "train_step (/home/someone/projects/model/train.py:123)");
    gp_frame_label(&f, out, 41);
    cr_assert_str_eq(out, "train_step (.../model/train.py:123)");
    f.file = "/h\xc3\xa9/\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9/t.py";
    for (size_t room = 1; room < sizeof(out); room++) {
        memset(out, 'X', sizeof(out));
        gp_frame_label(&f, out, room);
        cr_assert_lt(strlen(out), room);
        char clean[128];
        gp_text_clean(clean, sizeof(clean), out, sizeof(out));
        cr_assert_str_eq(clean, out, "characters stay whole");
    }
    f = (struct gp_frame_text){.function = "libfoo.so+0x12", .file = "", .module = "libfoo.so"};
    gp_frame_label(&f, out, sizeof(out));
    cr_assert_str_eq(out, "libfoo.so+0x12");
    f.function = "foo_alloc";
    gp_frame_label(&f, out, sizeof(out));
    cr_assert_str_eq(out, "foo_alloc (libfoo.so)");
}

/* 10^5 distinct addresses in this program's own code, which has debug information. */
Test(symbol, a_hundred_thousand_addresses_take_seconds)
{
    struct gp_modules modules;
    char id[80];
    cr_assert_eq(gp_modules_read(&modules, "/proc/self", NULL), 0);
    const struct gp_module *m = gp_modules_find(&modules, (uint64_t)(uintptr_t)gp_symbols_site);
    hex(m, id);
    struct tables *t = tables_new();
    uint32_t in = module(t, m->start, m->end, m->offset, m->path, id);
    uint64_t span = m->end - m->start, count = 100000;
    struct gp_rec_frame *frames = calloc(count, sizeof(*frames));
    struct gp_rec_site *sites = calloc(count + 1, sizeof(*sites));
    for (uint64_t i = 0; i < count; i++) {
        frames[i] = (struct gp_rec_frame){.pc = m->start + 1 + i * span / (count + 1), .module = in};
        sites[i + 1] = (struct gp_rec_site){.first_frame = (uint32_t)i, .frame_count = 1};
    }
    struct gp_symbol_source from = {sites,           frames, t->modules, t->strings, (uint32_t)count + 1,
                                    (uint32_t)count, 1,      "",         NULL,       0};
    cr_assert_eq(gp_symbols_new(&t->symbols, &from), 0);
    uint64_t begin = gp_clock_ns();
    uint32_t with_line = 0;
    for (uint32_t i = 1; i <= count; i++) {
        const struct gp_frame_text *f;
        gp_symbols_site(t->symbols, i, &f);
        with_line += f[0].line > 0;
    }
    double seconds = (double)(gp_clock_ns() - begin) / 1e9;
    cr_log_info("%u of %u addresses have a line; %.2f s", with_line, (unsigned)count, seconds);
    cr_assert_gt(with_line, count / 2);
    cr_assert_lt(seconds, 20, "a second or two on an idle machine");
    free(frames);
    free(sites);
    gp_modules_free(&modules);
    tables_free(t);
}
