/* SPDX-License-Identifier: MIT
 *
 * test_owner.c: which library asked for memory: names of files, addresses in the list of objects, the table of
 * owners, and stacks that go through libraries which are built here. gpuprof itself is in the test's own binary, so
 * that never owns anything.
 */
#include "base/compiler.h"
#include "base/gauge.h"
#include "base/known.h"
#include "lib/build.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <gnu/libc-version.h> /* a function of libc that no sanitizer replaces */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- names --------------------------------------------------------------------------------------------------------- */

#define PASSES NULL /* passes requests on */
#define OWN    ""   /* known by its own name */

Test(owner, a_file_name_tells_the_owner)
{
    static const struct {
        const char *path, *owner;
    } cases[] = {
        {"", "program"},
        {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", PASSES},
        {"/opt/x/libcudart.so.12", PASSES},
        {"/x/nvidia/cuda_runtime/lib/libcudart-d0da41ae.so.11.0", PASSES},
        {"/usr/local/cuda/lib64/libcupti.so.13", PASSES},
        {"/x/libgpuprof.so", PASSES},
        {"/x/libgpuprof-shim.so", PASSES},
        {"linux-vdso.so.1", PASSES},
        {"/lib64/ld-linux-x86-64.so.2", PASSES},
        {"/lib/x86_64-linux-gnu/libc.so.6", PASSES},
        {"/lib/x86_64-linux-gnu/libc-2.31.so", PASSES},
        {"/lib/x86_64-linux-gnu/libstdc++.so.6", PASSES},
        {"/usr/lib/libffi.so.8", PASSES},
        {"/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", PASSES},
        {"/usr/lib/libpython3.11.so.1.0", "program"},
        {"/x/torch/lib/libc10_cuda.so", "pytorch"},
        {"/usr/lib/libc10_cuda.so.2.6", "pytorch"},
        {"/x/torch/lib/libtorch_cuda.so", "pytorch"},
        {"/x/torch/_C.cpython-313-x86_64-linux-gnu.so", "pytorch"},
        {"/x/nvidia/nccl/lib/libnccl.so.2", "nccl"},
        {"/x/libcublasLt.so.12", "cublas"},
        {"/x/libcudnn_ops.so.9", "cudnn"},
        {"/x/libcufft.so.11", "cufft"},
        {"/x/libcusolverMg.so.11", "cusolver"},
        {"/x/cupy/cuda/memory.cpython-311-x86_64-linux-gnu.so", "cupy"},
        {"/x/cupy_backends/cuda/api/driver.so", "cupy"},
        {"/x/pycuda/_driver.so", "pycuda"},
        {"/x/triton/_C/libtriton.so", "triton"},
        {"/root/.triton/cache/ab/cuda_utils.so", "triton"},
        {"/x/rmm/librmm.so", "rmm"},
        {"/x/site-packages/librmm/lib64/librmm.so", "rmm"},
        {"/x/site-packages/rmm/pylibrmm/device_buffer.cpython-312-x86_64-linux-gnu.so", "rmm"},
        {"/x/dist-packages/rmm/_lib/memory_resource.cpython-310-x86_64-linux-gnu.so", "rmm"},
        {"/home/u/src/rmm/python/rmm/rmm/pylibrmm/stream.cpython-313-x86_64-linux-gnu.so", "rmm"}, /* built in place */
        {"/x/vllm/_C.abi3.so", "vllm"},
        {"/x/cuda/bindings/driver.so", "cuda-python"},
        {"/x/tensorflow/libtensorflow_cc.so.2", "tensorflow"},
        {"/x/libnvinfer.so.10", "tensorrt"},
        {"/x/libggml-cuda.so", "ggml"},
        {"/opt/engine/lib/libmyengine.so.3", OWN},
        {"libmyengine.so", OWN},
        {"/home/torchuser/libx.so", OWN}, /* the folder is not a package */
        {"/home/u/rmm/libplugin.so", OWN},
        {"/home/u/rmm/lib/engine.cpython-312-x86_64-linux-gnu.so", OWN},
        {"/libcudart.so.12/libx.so", OWN},
        {"/x/libcustom.so", OWN},
        {"/x/mylibcuda.so", OWN},
        {"/", OWN},
    };
    for (unsigned i = 0; i < GP_COUNT(cases); i++) {
        const char *owner = gp_known_owner(cases[i].path);
        cr_expect((owner == NULL) == (cases[i].owner == NULL) && (!owner || strcmp(owner, cases[i].owner) == 0),
                  "%s: %s, not %s", cases[i].path, owner ? owner : "passes",
                  cases[i].owner ? cases[i].owner : "passes");
    }
}

/* ---- addresses ----------------------------------------------------------------------------------------------------- */

Test(owner, an_address_finds_its_object)
{
    static const struct gp_owner_object objects[] = {{.x_low = 900, .x_high = 1000},
                                                     {.x_low = 500, .x_high = 600},
                                                     {.x_low = 400, .x_high = 500},
                                                     {.x_low = 10, .x_high = 11}};
    static const struct {
        uint64_t pc;
        int at;
    } cases[] = {{0, -1},  {9, -1},   {10, 3},   {11, -1}, {399, -1}, {400, 2},   {499, 2},        {500, 1},
                 {599, 1}, {600, -1}, {899, -1}, {900, 0}, {999, 0},  {1000, -1}, {UINT64_MAX, -1}};
    for (unsigned i = 0; i < GP_COUNT(cases); i++)
        cr_expect_eq(gp_object_find(objects, GP_COUNT(objects), cases[i].pc), cases[i].at, "%lu",
                     (unsigned long)cases[i].pc);
    cr_expect_eq(gp_object_find(objects, 0, 500), -1);
    cr_expect_eq(gp_object_find(objects, 1, 950), 0);
    cr_expect_eq(gp_object_find(objects, 1, 500), -1);
}

Test(owner, the_list_of_objects_is_in_order)
{
    static struct gp_owner_object objects[GP_OBJECTS];
    int count = gp_object_list(objects), at;
    cr_assert_gt(count, 3);
    for (int i = 1; i < count; i++)
        cr_expect(objects[i].x_high <= objects[i - 1].x_low, "%s and %s", objects[i].name, objects[i - 1].name);
    at = gp_object_find(objects, (unsigned)count, (uint64_t)(uintptr_t)&gp_object_find);
    cr_assert_geq(at, 0);
    cr_expect_null(objects[at].x_owner, "gpuprof owns nothing");
    at = gp_object_find(objects, (unsigned)count, (uint64_t)(uintptr_t)&gnu_get_libc_version);
    cr_assert_geq(at, 0);
    cr_expect_str_eq(objects[at].name, "libc.so.6");
}

/* ---- the table ----------------------------------------------------------------------------------------------------- */

Test(owner, owners_without_a_row_are_others)
{
    struct gp_wire_owner rows[GP_WIRE_OWNERS];
    char name[64];
    cr_assert_eq(gp_owner_start(), 0);
    cr_expect_eq(gp_owner_rows(rows), 1);
    cr_expect_str_eq(rows[GP_OWNER_UNKNOWN].owner, "unknown");
    for (unsigned i = 1; i < GP_OWNER_OTHER; i++) {
        snprintf(name, sizeof(name), "owner%u", i);
        cr_expect_eq(gp_owner_named(name, "lib.so"), i);
        cr_expect_eq(gp_owner_rows(rows), i + 1);
    }
    for (unsigned i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "late%u", i);
        cr_expect_eq(gp_owner_named(name, "late.so"), GP_OWNER_OTHER);
    }
    cr_expect_eq(gp_owner_rows(rows), GP_WIRE_OWNERS);
    cr_expect_str_eq(rows[GP_OWNER_OTHER].owner, "other");
    cr_expect_str_empty(rows[GP_OWNER_OTHER].library);
    cr_expect_str_eq(rows[18].owner, "owner18");
    cr_expect_str_eq(rows[18].library, "lib.so");
    cr_expect_eq(gp_owner_named("owner7", "else.so"), 7);
}

/* The text ends within its row. */
Test(owner, long_names_are_cut)
{
    struct gp_wire_owner rows[GP_WIRE_OWNERS];
    cr_assert_eq(gp_owner_start(), 0);
    uint8_t row =
        gp_owner_named("a-name-of-more-than-23-characters", "a-library-with-a-very-long-file-name-of-its-own.so");
    cr_expect_eq(
        gp_owner_named("a-name-of-more-than-23-characters", "a-library-with-a-very-long-file-name-of-its-own.so"), row);
    cr_expect_neq(gp_owner_named("a-name-of-more-than-23-c, another", "another.so"), row, "the files tell them apart");
    gp_owner_rows(rows);
    cr_expect_eq(strnlen(rows[row].owner, sizeof(rows[row].owner)), sizeof(rows[row].owner) - 1);
    cr_expect_eq(strnlen(rows[row].library, sizeof(rows[row].library)), sizeof(rows[row].library) - 1);
}

/* ---- stacks -------------------------------------------------------------------------------------------------------- */

typedef void pass_fn(void (*next)(void *), void *arg);

struct chain { /* libraries, outermost first; the last one calls gp_owner_here */
    pass_fn *pass[4];
    unsigned count, at;
    struct gp_owner answer;
};

static void chain_next(void *arg)
{
    struct chain *chain = arg;
    if (chain->at == chain->count)
        chain->answer = gp_owner_here();
    else
        chain->pass[chain->at++](chain_next, chain);
}

static struct gp_owner chain_owner(pass_fn *outer, pass_fn *inner)
{
    struct chain chain = {.pass = {outer, inner}, .count = inner ? 2 : 1};
    chain_next(&chain);
    return chain.answer;
}

static struct gp_owner owner_directly(void)
{
    struct chain chain = {0};
    chain_next(&chain);
    return chain.answer;
}

static char *folder, first[256];

static void libraries_start(void)
{
    folder = build_folder();
    cr_assert_not_null(folder);
    snprintf(first, sizeof(first), "%s/pass.so", folder);
    cr_assert_eq(build_shared(folder, "pass.c", "pass.so", NULL), 0);
    cr_assert_eq(gp_owner_start(), 0);
}

static void libraries_end(void)
{
    build_remove(folder);
}

/* The same code under another name. */
static pass_fn *library_open(const char *name, void **handle)
{
    char path[320];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    cr_assert_eq(build_copy(first, path), 0, "%s", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    if (handle)
        *handle = library;
    return (pass_fn *)dlsym(library, "pass");
}

static const char *row_name(uint8_t row)
{
    static struct gp_wire_owner rows[GP_WIRE_OWNERS];
    gp_owner_rows(rows);
    return rows[row].owner;
}

Test(owner, before_the_start_owners_are_unknown)
{
    struct gp_owner owner = owner_directly();
    cr_expect_eq(owner.row, GP_OWNER_UNKNOWN);
    cr_expect(!owner.segment);
}

Test(owner, the_first_library_that_does_more_than_pass_owns, .init = libraries_start, .fini = libraries_end)
{
    pass_fn *engine = library_open("libmyengine.so.3", NULL), *cudart = library_open("libcudart.so.13", NULL);
    pass_fn *nccl = library_open("libnccl.so.2", NULL), *ffi = library_open("libffi.so.8", NULL);
    pass_fn *ctypes = library_open("_ctypes.cpython-313-x86_64-linux-gnu.so", NULL);
    cr_expect_str_eq(row_name(chain_owner(engine, NULL).row), "libmyengine.so");
    cr_expect_str_eq(row_name(chain_owner(engine, cudart).row), "libmyengine.so");
    cr_expect_str_eq(row_name(chain_owner(nccl, cudart).row), "nccl");
    cr_expect_str_eq(row_name(chain_owner(engine, nccl).row), "nccl", "the inner one asks");
    cr_expect_str_eq(row_name(chain_owner(nccl, engine).row), "libmyengine.so");
    /* As a script that calls the driver through ctypes: the interpreter's library is the program. */
    pass_fn *python = library_open("libpython3.13.so.1.0", NULL);
    struct chain script = {.pass = {python, ctypes, ffi}, .count = 3};
    chain_next(&script);
    cr_expect_str_eq(row_name(script.answer.row), "program");
    /* An extension module that calls the driver itself, and is called by the interpreter. */
    struct chain module = {.pass = {python, engine, cudart}, .count = 3};
    chain_next(&module);
    cr_expect_str_eq(row_name(module.answer.row), "libmyengine.so");
    /* The test's own frames are gpuprof's: what is left is the library that runs the tests. */
    cr_expect_str_eq(row_name(chain_owner(cudart, ffi).row), "libcriterion.so");
}

#if defined(__x86_64__)
/* Calls that code makes which was compiled at run time; of a library that is there as well they are that one's. */
Test(owner, code_that_no_file_has_is_not_the_program, .init = libraries_start, .fini = libraries_end)
{
    /* push %rbp; mov %rsp,%rbp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; pop %rbp; ret */
    static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    pass_fn *program = library_open("libpython3.11.so.1.0", NULL), *engine = library_open("libmyengine.so.3", NULL);
    void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(made, MAP_FAILED);
    memcpy(made, code, sizeof(code));
    cr_assert_eq(mprotect(made, 4096, PROT_READ | PROT_EXEC), 0);
    pass_fn *compiled = (pass_fn *)(uintptr_t)made;
    for (unsigned round = 0; round < 2; round++) {
        cr_expect_str_eq(row_name(chain_owner(program, compiled).row), "jit");
        cr_expect_str_eq(row_name(chain_owner(compiled, program).row), "program");
        cr_expect_str_eq(row_name(chain_owner(engine, compiled).row), "libmyengine.so");
    }
}
#endif

Test(owner, a_library_that_comes_later_or_elsewhere_is_found, .init = libraries_start, .fini = libraries_end)
{
    void *handle;
    cr_expect_str_eq(row_name(owner_directly().row), "libcriterion.so");
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof(name), "libengine%d.so", i);
        cr_expect_str_eq(row_name(chain_owner(library_open(name, &handle), NULL).row), name);
        dlclose(handle); /* the next one is mapped where this one was */
    }
}

static unsigned changes;
static bool change_seen = true;
static bool changed(const uint64_t *pcs, unsigned count)
{
    (void)pcs;
    (void)count;
    changes++;
    return change_seen;
}

Test(owner, a_change_is_told_once_or_until_it_was_seen, .init = libraries_start, .fini = libraries_end)
{
    gp_owner_on_change(changed);
    owner_directly();
    unsigned before = changes;
    cr_expect_geq(before, 1);
    owner_directly();
    cr_expect_eq(changes, before);
    change_seen = false;
    chain_owner(library_open("libengine.so", NULL), NULL);
    cr_expect_eq(changes, before + 1);
    owner_directly();
    cr_expect_eq(changes, before + 2);
    change_seen = true;
    owner_directly();
    owner_directly();
    cr_expect_eq(changes, before + 3);
}

Test(owner, memory_of_the_frameworks_allocator_is_a_segment, .init = libraries_start, .fini = libraries_end)
{
    pass_fn *allocator = library_open("libc10_cuda.so.2.6", NULL), *cudart = library_open("libcudart.so.12", NULL);
    pass_fn *other = library_open("libtorch_cuda.so", NULL), *engine = library_open("libmine.so", NULL);
    cr_expect(!chain_owner(allocator, cudart).segment);
    gp_owner_segments_of("libc10_cuda");
    struct gp_owner owner = chain_owner(allocator, cudart);
    cr_expect(owner.segment);
    cr_expect_str_eq(row_name(owner.row), "pytorch");
    cr_expect(!chain_owner(other, cudart).segment);
    /* An allocator of the program that the framework calls to get its segments. */
    owner = chain_owner(allocator, engine);
    cr_expect(owner.segment);
    cr_expect_str_eq(row_name(owner.row), "libmine.so");
    gp_owner_segments_of(NULL);
    cr_expect(!chain_owner(allocator, cudart).segment);
}

/* ---- gauges -------------------------------------------------------------------------------------------------------- */

/* The owner's are the last of an event's. */
static unsigned owned(const struct gp_move *move, struct gp_delta out[GP_OWNER_GAUGES])
{
    struct gp_delta all[GP_DELTAS];
    unsigned count = gp_gauge_deltas(move, all), from = 0;
    while (from < count && all[from].gauge < GP_GAUGE_OWNERS)
        from++;
    cr_assert_leq(count - from, GP_OWNER_GAUGES);
    memcpy(out, all + from, (count - from) * sizeof(*out));
    return count - from;
}

Test(owner, an_event_moves_its_owners_gauges)
{
    struct gp_delta out[GP_OWNER_GAUGES];
    const unsigned own = GP_GAUGE_OWNERS + 3 * GP_OWNER_GAUGES;
    struct gp_move move = {.parts = GP_PART_ALLOCATED | GP_PART_RESERVED | GP_PART_KIND,
                           .bytes = 4096,
                           .requested_bytes = 4000,
                           .class_bytes = 4096,
                           .count = 1,
                           .owner = 3};
    cr_assert_eq(owned(&move, out), 3);
    cr_expect(out[0].gauge == own + GP_OWNER_RESERVED && out[0].amount == 4096);
    cr_expect(out[1].gauge == own + GP_OWNER_ALLOCATED && out[1].amount == 4096);
    cr_expect(out[2].gauge == own + GP_OWNER_LIVE && out[2].amount == 1);
    move.parts = GP_PART_RESERVED | GP_PART_KIND; /* a segment */
    cr_assert_eq(owned(&move, out), 1);
    cr_expect(out[0].gauge == own + GP_OWNER_RESERVED);
    move.parts = GP_PART_ALLOCATED; /* a block; then one whose number is not known */
    cr_assert_eq(owned(&move, out), 2);
    cr_expect(out[0].gauge == own + GP_OWNER_ALLOCATED);
    move.count = 0;
    cr_assert_eq(owned(&move, out), 1);
    move.parts = GP_PART_KIND;
    cr_expect_eq(owned(&move, out), 0);
    move = (struct gp_move){.parts = GP_PART_RESERVED, .bytes = 1, .owner = GP_OWNER_OTHER};
    cr_assert_eq(owned(&move, out), 1);
    cr_expect_lt(out[0].gauge, GP_GAUGES);
}

/* A pair moves what the gauges one by one would. */
Test(owner, an_event_of_a_pair_is_that_of_its_gauges)
{
    struct gp_counter *set[2];
    struct gp_gauge_value values[2][GP_GAUGES_MAX];
    for (unsigned i = 0; i < 2; i++)
        cr_assert_eq(gp_counter_new(&set[i], GP_GAUGES, 4), 0);
    gp_gauge_linear_pairs(set[0]);
    gp_gauge_block_pairs(set[0], 5);
    gp_gauge_owned_pairs(set[0], 3);
    for (unsigned i = 0; i < 4000; i++) {
        int64_t bytes = i % 3 ? 512 * (i % 40 + 1) : (1 << 20) * (1 + i % 5);
        const struct gp_move move = {.kind = i % 7 ? GP_KIND_LINEAR : GP_KIND_PITCHED,
                                     .parts = i % 5 ? gp_gauge_parts(GP_KIND_LINEAR) : GP_PART_ALLOCATED,
                                     .bytes = bytes,
                                     .requested_bytes = i % 5 ? i % 11 ? bytes : bytes - 1 : 0,
                                     .class_bytes = bytes,
                                     .count = 1,
                                     .owner = i % 5 ? 2 + i % 5 % 2 : 5};
        struct gp_counter_event event = {.pair = gp_gauge_block_pair(bytes), .amounts = {1, bytes}};
        struct gp_delta deltas[GP_DELTAS];
        enum gp_counter_op op = i % 2000 < 1000 ? GP_ADD : GP_SUB;
        gp_counter_apply(set[1], 0, op, deltas, gp_gauge_deltas(&move, deltas));
        if (i % 5)
            gp_gauge_event(&move, i % 13 ? 3 : GP_WIRE_OWNERS, &event, deltas);
        cr_expect_eq(event.pair < GP_PAIRS, !(i % 5) || (i % 7 && i % 11), "%u", i);
        gp_counter_move(set[0], 0, op, &event, NULL);
    }
    for (unsigned i = 0; i < 2; i++) {
        gp_counter_snapshot(set[i], values[i]);
        cr_expect_eq(gp_counter_check(set[i]), 0);
        gp_counter_free(set[i]);
    }
    cr_expect_eq(memcmp(values[0], values[1], GP_GAUGES * sizeof(values[0][0])), 0);
}

Test(owner, a_reset_restarts_the_owners_peaks)
{
    gp_gauge_set allocated = gp_gauge_mask(GP_RESET_ALLOCATED), reserved = gp_gauge_mask(GP_RESET_RESERVED);
    for (unsigned owner = 0; owner < GP_WIRE_OWNERS; owner++) {
        unsigned bits = (unsigned)(allocated >> (GP_GAUGE_OWNERS + owner * GP_OWNER_GAUGES)) & 7;
        cr_expect_eq(bits, 1u << GP_OWNER_ALLOCATED | 1u << GP_OWNER_LIVE, "owner %u", owner);
        bits = (unsigned)(reserved >> (GP_GAUGE_OWNERS + owner * GP_OWNER_GAUGES)) & 7;
        cr_expect_eq(bits, 1u << GP_OWNER_RESERVED, "owner %u", owner);
    }
    cr_expect(allocated >> GP_GAUGES == 0 && reserved >> GP_GAUGES == 0 && gp_gauge_mask(0) == 0);
    cr_expect(gp_gauge_mask(GP_RESET_PEAKS) >> GP_GAUGE_OWNERS == (allocated | reserved) >> GP_GAUGE_OWNERS);
}
