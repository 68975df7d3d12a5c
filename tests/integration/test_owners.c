/* SPDX-License-Identifier: MIT
 *
 * test_owners.c: memory that two libraries and the program itself asked for: the owners have their own bytes, and add up to
 * the totals of the device, in every command that shows them.
 */
#include "integration/command.h"
#include "lib/kid.h"
#include <stdlib.h>
#include <unistd.h>

#define MIB (1ll << 20)

static char folder[64], nccl[128], engine[128], recording[128];

static void copy(const char *to)
{
    char line[1024];
    snprintf(line, sizeof(line), "cp %s/../preload/takes.so %s", path_program("."), to);
    cr_assert_eq(system(line), 0);
}

static void begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gpuprof-test-owners-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(nccl, sizeof(nccl), "%s/libnccl.so.2", folder);
    snprintf(engine, sizeof(engine), "%s/libmyengine.so", folder);
    snprintf(recording, sizeof(recording), "%s/owners.gpuprof", folder);
    copy(nccl);
    copy(engine);
}

static void end(void)
{
    char line[128];
    snprintf(line, sizeof(line), "rm -rf %s", folder);
    cr_expect_eq(system(line), 0);
}

TestSuite(owners, .init = begin, .fini = end, .timeout = 120);

/* Calls the driver from code that it has made itself, and then from Python's own. */
static const char jit[] =
    "import ctypes, mmap\n"
    "code = bytes([0x55, 0x48, 0x89, 0xe5, 0xff, 0xd2, 0x5d, 0xc3])\n" /* push; mov; call *%rdx; pop; ret */
    "memory = mmap.mmap(-1, 4096, prot=7)\n"
    "memory.write(code)\n"
    "made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)(\n"
    "    ctypes.addressof(ctypes.c_char.from_buffer(memory)))\n"
    "cuda, context, pointer = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p(), ctypes.c_uint64()\n"
    "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
    "assert cuda.cuCtxSetCurrent(context) == 0\n"
    "take = ctypes.cast(cuda.cuMemAlloc_v2, ctypes.c_void_p).value\n"
    "assert made(ctypes.addressof(pointer), 7 << 20, take) == 0\n"
    "assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(3 << 20)) == 0\n";

static void execute(void *arg, int exec_fd)
{
    char record[160];
    (void)arg;
    (void)exec_fd;
    snprintf(record, sizeof(record), "--record=%s", recording);
    setenv("GPUPROF_STANDINS", "0", 1); /* the program's own libnccl.so.2 */
    execl(path_command(), "gpuprof", "run", "--sim", "--stacks=native", record, "--", path_program("owners"), NULL);
}

static struct kid walk(void)
{
    struct kid kid;
    cr_assert_eq(kid_begin(&kid, execute, NULL), 0);
    cr_assert_eq(kid_tell(&kid, "%s 3", nccl), 0);
    cr_assert_eq(kid_tell(&kid, "%s 5", engine), 0);
    cr_assert_eq(kid_tell(&kid, "own 7"), 0);
    cr_assert_eq(kid_tell(&kid, "%s 11", nccl), 0);
    return kid;
}

static json_t *command_json(const char *what, const char *target, const char *option)
{
    command(0, what, target, "--json", option, NULL);
    return said_json();
}

static int64_t number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* The sum of `key` over the rows of this owner (NULL: of all). */
static int64_t of(const json_t *rows, const char *owner, const char *key)
{
    int64_t sum = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "owner"));
        if (!owner || (name && strcmp(name, owner) == 0))
            sum += number(row, key);
    }
    return sum;
}

static void expect_three(const json_t *rows, const char *key, const char *what)
{
    cr_expect_eq(of(rows, "nccl", key), 14 * MIB, "%s: %lld", what, (long long)of(rows, "nccl", key));
    cr_expect_eq(of(rows, "libmyengine.so", key), 5 * MIB, "%s", what);
    cr_expect_eq(of(rows, "program", key), 7 * MIB, "%s", what);
    cr_expect_eq(of(rows, NULL, key), 26 * MIB, "%s: all", what);
}

Test(owners, add_up_to_the_totals_of_a_running_process)
{
    struct kid kid = walk();
    char target[32];
    snprintf(target, sizeof(target), "-p%lld", kid_tell(&kid, "pid"));
    json_t *object = command_json("stat", target, NULL);
    json_t *process = json_array_get(json_object_get(object, "processes"), 0);
    json_t *device = json_array_get(json_object_get(process, "devices"), 0), *rows = json_object_get(device, "owners");
    expect_three(rows, "reserved_bytes", "stat");
    expect_three(rows, "allocated_bytes", "stat");
    cr_expect_eq(of(rows, NULL, "live"), number(json_object_get(device, "stats"), "allocation.all.current"));
    json_decref(object);

    object = command_json("top", target, "--once");
    expect_three(json_object_get(object, "owners"), "reserved_bytes", "top");
    json_decref(object);

    object = command_json("reconcile", target, "--duration=1");
    device = json_array_get(json_object_get(object, "devices"), 0);
    rows = json_object_get(json_object_get(device, "now"), "rows");
    expect_three(rows, "bytes", "reconcile");
    json_decref(object);
    kid_end(&kid, 0);
}

Test(owners, of_call_sites_come_from_their_stacks)
{
    struct kid kid = walk();
    kid_end(&kid, 0);
    json_t *object = command_json("peak", recording, NULL);
    json_t *device = json_array_get(json_object_get(object, "devices"), 0);
    expect_three(json_object_get(device, "parts"), "bytes", "parts of the peak");
    expect_three(json_object_get(device, "owners"), "bytes", "owners of the peak");
    json_decref(object);
    object = command_json("report", recording, NULL);
    expect_three(json_object_get(object, "sites"), "live_bytes", "sites");
    device = json_array_get(json_object_get(object, "devices"), 0);
    expect_three(json_object_get(json_object_get(device, "peak"), "owners"), "bytes", "report");
    json_decref(object);
    command(0, "peak", recording, NULL);
    SAYS("By owner\n");
    SAYS("%   libmyengine.so\n");
    command(0, "diff", recording, recording, "--json", NULL);
    SAYS("\"owner\": \"libmyengine.so\"");
}

#if defined(__x86_64__)
Test(owners, code_that_no_file_has)
{
    char path[128], record[160];
    if (access("/usr/bin/python3", X_OK) != 0)
        cr_skip("no python3");
    snprintf(path, sizeof(path), "%s/jit.py", folder);
    snprintf(record, sizeof(record), "--record=%s", recording);
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(jit, file) >= 0 && fclose(file) == 0);
    command(0, "run", "--sim", "--stacks=all", record, "--", "/usr/bin/python3", path, NULL);
    command(0, "peak", recording, NULL);
    SAYS("7.000 MiB  70.0 %   jit\n");
    SAYS("3.000 MiB  30.0 %   program\n");
}
#endif
