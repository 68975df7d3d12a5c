/* SPDX-License-Identifier: MIT
 *
 * test_pythonfind.c: the search for the interpreter in a list of loaded objects that the test makes up, with symbols and GNU
 * hash tables of many shapes: which object it is, where its symbols are, which version it has, when the search is repeated,
 * and what prevents its use.
 */
#include "base/loader.h"
#include "lib/standin.h"
#include "stack/python.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS        1000000ull
#define SYMBOLS   400
#define THE_FIRST "PyGILState_GetThisThreadState"

/* ---- made-up objects --------------------------------------------------------------------------------------------- */

static struct object {
    struct dl_phdr_info info;
    ElfW(Phdr) segments[3];
    ElfW(Dyn) dynamic[8];
    ElfW(Sym) symbols[SYMBOLS + 1];
    char names[SYMBOLS * 40];
    uint32_t hash[4 + 2 * 64 + 64 + SYMBOLS];
    unsigned count;
    char data[64];
} objects[4];

static unsigned object_count, looked, visited;
static bool no_look, no_pin, is_virtual;
static uint64_t now_ns, adds;
static char pinned[2000];

STANDIN(bool, gp_loader_look, int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg)
{
    if (no_look)
        return false;
    looked++;
    for (unsigned i = 0; i < object_count; i++) {
        visited++;
        objects[i].info.dlpi_adds = adds;
        if (visit(&objects[i].info, sizeof(objects[i].info), arg))
            break;
    }
    errno = 4712;
    return true;
}

void *dlopen(const char *file, int flags)
{
    if (!is_virtual)
        return NULL;
    cr_assert_eq(flags, RTLD_NOLOAD | RTLD_NODELETE | RTLD_LAZY);
    snprintf(pinned, sizeof(pinned), "%s", file);
    return no_pin ? NULL : &pinned;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!is_virtual || clock != CLOCK_MONOTONIC_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, out);
    *out = (struct timespec){(time_t)(now_ns / 1000000000), (long)(now_ns % 1000000000)};
    return 0;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = 33 * hash + (unsigned char)*name;
    return hash;
}

static void has(struct object *object, const char *name, const void *address, bool is_defined)
{
    ElfW(Sym) *symbol = &object->symbols[++object->count];
    unsigned at = object->count == 1 ? 1 : object->symbols[object->count - 1].st_name;
    at += object->count == 1 ? 0 : (unsigned)strlen(object->names + at) + 1;
    strcpy(object->names + at, name);
    symbol->st_name = at;
    symbol->st_value = (uint64_t)(uintptr_t)address - object->info.dlpi_addr;
    symbol->st_shndx = is_defined ? 5 : SHN_UNDEF;
}

static uint64_t relocated(const struct object *object, const void *address, bool is)
{
    return (uint64_t)(uintptr_t)address - (is ? 0 : object->info.dlpi_addr);
}

/* Writes the tables as linkers do: symbols ordered by their bucket, the last one of each marked. */
static void finish(struct object *object, const char *path, unsigned buckets, unsigned words, bool is_relocated)
{
    static ElfW(Sym) sorted[SYMBOLS + 1];
    uint32_t *hash = object->hash, shift = 7, next = 1;
    uint64_t *filter = (uint64_t *)(void *)(hash + 4);
    uint32_t *bucket = hash + 4 + 2 * words, *chain = bucket + buckets;
    hash[0] = buckets, hash[1] = 1, hash[2] = words, hash[3] = shift;
    for (uint32_t b = 0; b < buckets; b++) {
        for (unsigned i = 1; i <= object->count; i++) {
            uint32_t value = hash_of(object->names + object->symbols[i].st_name);
            if (value % buckets != b)
                continue;
            bucket[b] = bucket[b] ? bucket[b] : next;
            chain[next - 1] = value & ~1u;
            filter[value / 64 % words] |= 1ull << value % 64 | 1ull << (value >> shift) % 64;
            sorted[next++] = object->symbols[i];
        }
        if (bucket[b])
            chain[next - 2] |= 1;
    }
    memcpy(object->symbols, sorted, sizeof(sorted));
    object->segments[0] = (ElfW(Phdr)){.p_type = PT_LOAD};
    object->segments[1] =
        (ElfW(Phdr)){.p_type = PT_DYNAMIC, .p_vaddr = (uint64_t)(uintptr_t)object->dynamic - object->info.dlpi_addr};
    object->segments[2] = (ElfW(Phdr)){.p_type = PT_NOTE};
    object->info.dlpi_phdr = object->segments;
    object->info.dlpi_phnum = 3;
    object->info.dlpi_name = path;
    object->dynamic[0] = (ElfW(Dyn)){.d_tag = DT_NEEDED, .d_un.d_val = 1};
    object->dynamic[1] =
        (ElfW(Dyn)){.d_tag = DT_SYMTAB, .d_un.d_ptr = relocated(object, object->symbols, is_relocated)};
    object->dynamic[2] = (ElfW(Dyn)){.d_tag = DT_STRTAB, .d_un.d_ptr = relocated(object, object->names, is_relocated)};
    object->dynamic[3] = (ElfW(Dyn)){.d_tag = DT_GNU_HASH, .d_un.d_ptr = relocated(object, hash, is_relocated)};
    object->dynamic[4] = (ElfW(Dyn)){.d_tag = DT_NULL};
}

static struct object *object_new(void)
{
    struct object *object = &objects[object_count++];
    object->info.dlpi_addr = (uint64_t)(uintptr_t)objects / 4096 * 4096 - 65536;
    return object;
}

static void plain_program(void)
{
    struct object *program = object_new();
    has(program, "main", program->data, true);
    finish(program, "", 1, 1, true);
    is_virtual = true;
    now_ns = 5000 * MS;
    adds = 7;
}

static bool symbols(const char *const *names, void **out, unsigned count)
{
    is_virtual = true;
    memset(out, 0, count * sizeof(*out));
    return gp_python_symbols(names, out, count);
}

TestSuite(pythonfind, .timeout = 60);

/* ---- symbols ----------------------------------------------------------------------------------------------------- */

/* Each symbol of objects with few and many, in tables of every shape, and no other. */
Test(pythonfind, symbols_of_an_object)
{
    static char names[SYMBOLS][40];
    const char *asked[SYMBOLS], *others[SYMBOLS];
    static char other[SYMBOLS][48];
    void *out[SYMBOLS];
    for (unsigned shape = 0; shape < 60; shape++) {
        unsigned count = (const unsigned[]){1, 2, 3, 17, 399}[shape % 5], buckets = 1 + shape * 7 % 61,
                 words = 1u << shape % 6;
        memset(objects, 0, sizeof(objects));
        object_count = 0;
        plain_program();
        struct object *python = object_new();
        for (unsigned i = 0; i < count; i++) {
            snprintf(names[i], sizeof(names[i]), i ? "Py_Function%u" : THE_FIRST, i * 13);
            snprintf(other[i], sizeof(other[i]), "%.38s_", names[i]);
            has(python, names[i], (char *)0x700000000000 + 8 * i, i % 5 != 4);
            asked[i] = names[i];
            others[i] = other[i];
        }
        finish(python, "/lib/libpython.so", buckets, words, shape % 2);
        cr_assert(symbols(asked, out, count), "shape %u", shape);
        cr_assert_str_eq(pinned, "/lib/libpython.so");
        for (unsigned i = 0; i < count; i++)
            cr_assert_eq(out[i], i % 5 != 4 ? (char *)0x700000000000 + 8 * i : NULL, "shape %u: %s", shape, names[i]);
        cr_assert(symbols(others, out, count));
        for (unsigned i = 0; i < count; i++)
            cr_assert_null(out[i], "shape %u: %s", shape, other[i]);
    }
}

/* Data that the program has a copy of is there; functions too, if it exports them. */
Test(pythonfind, the_programs_copies_come_first)
{
    const char *names[] = {"PyCode_Type", "Py_Own", "_PyRuntime"};
    void *out[3];
    struct object *program = object_new();
    has(program, "PyCode_Type", (void *)0x1000, true);
    has(program, "_PyRuntime", (void *)0x2000, false);
    finish(program, "", 3, 1, true);
    struct object *python = object_new();
    has(python, THE_FIRST, (void *)0x3000, true);
    has(python, "PyCode_Type", (void *)0x4000, true);
    has(python, "Py_Own", (void *)0x5000, true);
    has(python, "_PyRuntime", (void *)0x6000, true);
    finish(python, "/lib/libpython.so", 3, 1, true);
    cr_assert(symbols(names, out, 3));
    cr_expect(out[0] == (void *)0x1000 && out[1] == (void *)0x5000 && out[2] == (void *)0x6000);
}

Test(pythonfind, objects_that_are_none)
{
    const char *names[] = {THE_FIRST};
    void *out[1];
    static char path[1100];
    plain_program();
    struct object *python = object_new();
    has(python, THE_FIRST, (void *)0x3000, true);
    finish(python, "/lib/libpython.so", 1, 1, true);
    cr_expect(symbols(names, out, 1));
    for (unsigned i = 1; i <= 3; i++) { /* without symbols, names, or hashes */
        python->dynamic[i].d_tag = DT_NEEDED;
        cr_expect_not(symbols(names, out, 1), "%u", i);
        python->dynamic[i].d_tag = (const int64_t[]){0, DT_SYMTAB, DT_STRTAB, DT_GNU_HASH}[i];
    }
    python->segments[1].p_type = PT_NOTE;
    cr_expect_not(symbols(names, out, 1), "without a dynamic section");
    python->segments[1].p_type = PT_DYNAMIC;
    python->hash[0] = 0;
    cr_expect_not(symbols(names, out, 1), "without buckets");
    python->hash[0] = 1;
    python->hash[2] = 0;
    cr_expect_not(symbols(names, out, 1), "without a filter");
    python->hash[2] = 1;
    python->info.dlpi_name = NULL;
    cr_expect_not(symbols(names, out, 1), "without a name it cannot be kept");
    memset(path, 'p', 1024);
    python->info.dlpi_name = path;
    cr_expect_not(symbols(names, out, 1), "nor with one that is too long");
    path[1023] = '\0';
    cr_expect(symbols(names, out, 1));
    cr_expect_str_eq(pinned, path);
    no_pin = true;
    cr_expect_not(symbols(names, out, 1), "it is being unloaded");
    no_pin = false;
    no_look = true;
    cr_expect_not(symbols(names, out, 1), "the process forks");
    no_look = false;
    cr_expect(symbols(names, out, 1));
    cr_expect_eq(out[0], (void *)0x3000);
}

/* ---- the interpreter --------------------------------------------------------------------------------------------- */

static unsigned long version_word;

static void python_new(unsigned minor, const char *path)
{
    static const char *const functions[] = {THE_FIRST,
                                            "PyThreadState_GetUnchecked",
                                            "Py_IsFinalizing",
                                            "PyInterpreterState_Head",
                                            "PyInterpreterState_Main",
                                            "PyCode_Type"};
    struct object *python = object_new();
    version_word = 0x03000000 | minor << 16 | 0x4f1;
    for (unsigned i = 0; i < 6; i++)
        has(python, functions[i], (char *)0x3000 + i, true);
    has(python, "Py_Version", &version_word, minor >= 11);
    finish(python, path, 3, 2, true);
}

static void is_the_python(unsigned minor)
{
    errno = 4711;
    const struct gp_python *python = gp_python_find();
    cr_assert_not_null(python, "%s", gp_python_note());
    cr_expect_eq(errno, 4711);
    cr_expect_eq(python->version, 0x300 + minor);
    cr_expect(!python->free_threaded && python->usable);
    cr_expect_eq((uint64_t)(uintptr_t)python->state, 0x3000);
    cr_expect_eq((uint64_t)(uintptr_t)python->holder, 0x3001);
    cr_expect_eq((uint64_t)(uintptr_t)python->finalizing, 0x3002);
    cr_expect_eq((uint64_t)(uintptr_t)python->newest, 0x3003);
    cr_expect_eq((uint64_t)(uintptr_t)python->first, 0x3004);
    cr_expect_eq(python->code_type, 0x3005);
    unsigned before = looked;
    now_ns += 1000 * MS;
    cr_expect_eq(gp_python_find(), python);
    cr_expect_eq(looked, before, "it is known");
    cr_expect_null(gp_python_note());
}

/* A program without Python is looked through every 100 ms, and only if something was loaded. */
Test(pythonfind, the_search_is_repeated)
{
    plain_program();
    cr_expect_null(gp_python_find());
    cr_expect(looked == 1 && visited == 1);
    now_ns += 100 * MS - 1;
    cr_expect_null(gp_python_find());
    cr_expect_eq(looked, 1, "too early");
    now_ns += 1;
    cr_expect_null(gp_python_find());
    cr_expect_eq(looked, 2);
    python_new(12, "/lib/libpython.so");
    now_ns += 100 * MS;
    cr_expect_null(gp_python_find(), "nothing was loaded, as the loader says");
    cr_expect(looked == 3 && visited == 3);
    adds++;
    cr_expect_null(gp_python_find());
    cr_expect_eq(looked, 3);
    now_ns += 100 * MS;
    is_the_python(12);
}

Test(pythonfind, the_program_itself)
{
    python_new(11, "");
    is_virtual = true;
    now_ns = 5000 * MS;
    is_the_python(11);
    cr_expect_str_eq(pinned, "", "it cannot be unloaded");
}

Test(pythonfind, while_the_process_forks)
{
    plain_program();
    python_new(12, "/lib/libpython.so");
    no_look = true;
    cr_expect_null(gp_python_find());
    no_look = false;
    cr_expect_null(gp_python_find(), "not before the next time");
    now_ns += 100 * MS;
    is_the_python(12);
}

Test(pythonfind, one_that_is_being_unloaded)
{
    plain_program();
    python_new(12, "/lib/libpython.so");
    no_pin = true;
    errno = 4711;
    cr_expect_null(gp_python_find());
    cr_expect_eq(errno, 4711);
    cr_assert_not_null(gp_python_note());
    cr_expect_str_eq(gp_python_note(), "Python was found but is being unloaded");
}

/* Before 3.11 the version is known by a function that came with it. */
Test(pythonfind, version_3_10_and_before)
{
    plain_program();
    python_new(10, "/lib/libpython.so");
    cr_expect_null(gp_python_find());
    cr_assert_not_null(gp_python_note());
    cr_expect_not_null(strstr(gp_python_note(), "older"));
}

Test(pythonfind, version_3_10)
{
    struct object *python = &objects[1];
    plain_program();
    object_new();
    static const char *const functions[] = {THE_FIRST,
                                            "_PyThreadState_UncheckedGet",
                                            "_Py_IsFinalizing",
                                            "PyInterpreterState_Head",
                                            "PyInterpreterState_Main",
                                            "PyCode_Type"};
    for (unsigned i = 0; i < 6; i++)
        has(python, functions[i], (char *)0x3000 + i, true);
    has(python, "Py_NewRef", (char *)0x4000, true);
    finish(python, "/lib/libpython.so", 3, 2, true);
    is_the_python(10);
}

Test(pythonfind, a_reason_is_given_once)
{
    gp_python_note_set("first");
    gp_python_note_set("second");
    cr_expect_str_eq(gp_python_note(), "first");
}
