/* SPDX-License-Identifier: MIT
 *
 * test_nvml.c: answers of NVIDIA's management library (tools/read/collect/nvml.c) of every length, unhappy ones and wrong
 * ones, from a stand-in that is compiled here.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <lib/build.h>
#include <limits.h>
#include <malloc.h>
#include <read/collect/collect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The stand-in's answers; the same words are in its source. */
struct fake {
    unsigned gpus;
    int init, count, handle, uuid, name, memory, compute, graphics; /* error codes */
    unsigned long long total, used, reserved;                       /* used: without what is reserved */
    int second;                                                     /* error code of the second form */
    unsigned compute_pids, graphics_pids;                           /* from pid 1000 on */
    unsigned growth;                                                /* of both lists, at each call */
    unsigned long long bytes[2];                                    /* of a process in the first and the second list */
    unsigned lies;                                                  /* success, with as many processes as do not fit */
    unsigned calls;
};

static const char source[] =
    "#include <string.h>\n"
    "struct fake { unsigned gpus; int init, count, handle, uuid, name, memory, compute, graphics;\n"
    "  unsigned long long total, used, reserved; int second; unsigned compute_pids, graphics_pids, growth; unsigned "
    "long long bytes[2];\n"
    "  unsigned lies, calls; } fake;\n"
    "struct info { unsigned pid; unsigned long long used; unsigned a, b; };\n"
    "int nvmlInit_v2(void) { return fake.init; }\n"
    "int nvmlDeviceGetCount_v2(unsigned *n) { *n = fake.gpus; return fake.count; }\n"
    "int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = &fake; return i == 0 ? fake.handle : 0; }\n"
    "int nvmlDeviceGetUUID(void *h, char *t, unsigned n) { strncpy(t, \"GPU-1\", n); return fake.uuid; }\n"
    "int nvmlDeviceGetName(void *h, char *t, unsigned n) { strncpy(t, \"Fake\", n); return fake.name; }\n"
    "int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m)\n"
    "  { m[0] = fake.total; m[1] = 0; m[2] = fake.used + fake.reserved; return fake.memory; }\n"
    "struct second { unsigned version; unsigned long long total, reserved, free, used; };\n"
    "int nvmlDeviceGetMemoryInfo_v2(void *h, struct second *m) {\n"
    "  if (m->version != 0x2000028) return 25;\n"
    "  *m = (struct second){m->version, fake.total, fake.reserved, 0, fake.used};\n"
    "  return fake.memory ? fake.memory : fake.second; }\n"
    "static int list(unsigned *n, struct info *to, unsigned *have, int rc, unsigned long long bytes) {\n"
    "  unsigned k = *have, room = *n; *have += fake.growth; *n = k; fake.calls++;\n"
    "  for (unsigned i = 0; i < k && i < room; i++) to[i] = (struct info){1000 + i, bytes, 0, 0};\n"
    "  if (fake.lies && k <= room) { *n = room + fake.lies; return 0; }\n"
    "  return rc ? rc : k > room ? 7 : 0; }\n"
    "int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, struct info *to)\n"
    "  { return list(n, to, &fake.compute_pids, fake.compute, fake.bytes[0]); }\n"
    "int nvmlDeviceGetGraphicsRunningProcesses_v2(void *h, unsigned *n, struct info *to)\n"
    "  { return list(n, to, &fake.graphics_pids, fake.graphics, fake.bytes[1]); }\n";

static const struct fake plain = {.gpus = 2, .total = 1000, .used = 600, .bytes = {300, 200}};

/* NULL: there is no compiler. */
static struct fake *stand_in(void)
{
    char path[300], command[900], *folder = build_folder();
    cr_assert(folder);
    snprintf(path, sizeof(path), "%s/nvml.c", folder);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(source, file);
    fclose(file);
    snprintf(command, sizeof(command),
             "cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o %s/libnvidia-ml.so.1 %s 2>/dev/null", folder, path);
    bool built = system(command) == 0;
    /* By its path first: a later dlopen of the bare name finds the same library. */
    snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", folder);
    void *library = built ? dlopen(path, RTLD_NOW) : NULL;
    build_remove(folder);
    struct fake *fake = library ? dlsym(library, "fake") : NULL;
    if (fake)
        *fake = plain;
    return fake;
}

static struct gp_nvml_gpu *answer(int gpus)
{
    struct gp_nvml_gpu *list;
    char problem[GP_NVML_PROBLEM_BYTES];
    int count;
    cr_assert_eq(gp_nvml_read(&list, &count, problem), 0, "%s", problem);
    cr_assert_eq(count, gpus);
    return list;
}

/* Of each length: no list is cut, none has a row too many, and a process in both lists counts once. */
Test(nvml, lists_of_every_length, .timeout = 60)
{
    struct fake *fake = stand_in();
    if (!fake)
        cr_skip("no C compiler");
    for (unsigned count = 0; count <= 4200; count += count < 300 || count > 4060 ? 1 : 470) {
        *fake = plain;
        fake->compute_pids = count;
        fake->graphics_pids = count / 2 + count % 3;
        unsigned larger = count > fake->graphics_pids ? count : fake->graphics_pids;
        bool known = count <= 4096;
        struct gp_nvml_gpu *gpus = answer(2);
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(gpus[i].process_count, known ? (int)larger : -1, "%u processes: %d", count,
                         gpus[i].process_count);
            for (int k = 0; k < gpus[i].process_count; k++) {
                cr_assert_eq(gpus[i].processes[k].pid, 1000u + (unsigned)k);
                cr_assert_eq(gpus[i].processes[k].bytes, (unsigned)k < count ? 300 : 200);
            }
        }
        gp_nvml_free(gpus, 2);
    }
}

/* A list that grows between two calls is asked for again, four times in all. */
Test(nvml, a_growing_list)
{
    struct fake *fake = stand_in();
    if (!fake)
        cr_skip("no C compiler");
    for (unsigned growth = 0; growth < 40; growth++) {
        *fake = plain;
        fake->gpus = 1;
        fake->compute_pids = 81; /* one more than fits at first */
        fake->growth = growth;
        struct gp_nvml_gpu *gpus = answer(1);
        cr_expect_eq(gpus->process_count, growth <= 16 ? 81 + (int)growth : -1, "%u: %d", growth, gpus->process_count);
        cr_expect_eq(fake->calls, growth <= 16 ? 3 : 4, "%u: %u calls", growth, fake->calls); /* the last: graphics */
        gp_nvml_free(gpus, 1);
    }
}

/* What cannot be read is unknown, and the rest is known. */
Test(nvml, unhappy_answers)
{
    static const struct {
        struct fake fake;
        int64_t total, used, bytes;
        int processes;
        const char *uuid, *name;
    } cases[] = {
        {{.total = 9, .used = 5, .compute_pids = 1, .bytes = {7}}, 9, 5, 7, 1, "GPU-1", "Fake"},
        {{.handle = 15, .total = 9, .used = 5, .compute_pids = 1}, -1, -1, 0, -1, "", ""},
        {{.uuid = 1, .total = 9, .used = 5}, 9, 5, 0, 0, "", "Fake"},
        {{.name = 1, .total = 9, .used = 5}, 9, 5, 0, 0, "GPU-1", ""},
        {{.memory = 3, .total = 9, .used = 5}, -1, -1, 0, 0, "GPU-1", "Fake"},
        {{.total = 9, .used = 5, .reserved = 2}, 7, 5, 0, 0, "GPU-1", "Fake"},
        {{.second = 25, .total = 9, .used = 5, .reserved = 2}, 9, 7, 0, 0, "GPU-1", "Fake"},
        {{.total = 9, .used = 5, .reserved = 10}, 9, 15, 0, 0, "GPU-1", "Fake"},
        {{.total = INT64_MAX, .used = INT64_MAX}, INT64_MAX, INT64_MAX, 0, 0, "GPU-1", "Fake"},
        {{.total = INT64_MAX + 1ull, .used = 5}, -1, -1, 0, 0, "GPU-1", "Fake"},
        {{.total = 9, .used = INT64_MAX + 1ull}, -1, -1, 0, 0, "GPU-1", "Fake"},
        {{.compute = 3, .compute_pids = 1}, 0, 0, 0, -1, "GPU-1", "Fake"},
        {{.compute = 7, .compute_pids = 1}, 0, 0, 0, -1, "GPU-1", "Fake"},
        {{.graphics = 3, .compute_pids = 1, .bytes = {7}}, 0, 0, 7, 1, "GPU-1", "Fake"},
        {{.compute_pids = 1, .bytes = {INT64_MAX, 0}}, 0, 0, INT64_MAX, 1, "GPU-1", "Fake"},
        {{.compute_pids = 1, .bytes = {ULLONG_MAX, 0}}, 0, 0, -1, 1, "GPU-1", "Fake"},
        {{.compute_pids = 1, .graphics_pids = 1, .bytes = {ULLONG_MAX, 0}}, 0, 0, 0, 1, "GPU-1", "Fake"},
        {{.compute_pids = 1, .graphics_pids = 1, .bytes = {5, ULLONG_MAX}}, 0, 0, 5, 1, "GPU-1", "Fake"},
        {{.compute_pids = 1, .graphics_pids = 1, .bytes = {5, 6}}, 0, 0, 6, 1, "GPU-1", "Fake"},
        {{.compute_pids = 1, .lies = 1}, 0, 0, 0, -1, "GPU-1", "Fake"},
        {{.compute_pids = 1, .lies = 4000}, 0, 0, 0, -1, "GPU-1", "Fake"},
    };
    struct fake *fake = stand_in();
    if (!fake)
        cr_skip("no C compiler");
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        *fake = cases[i].fake;
        fake->gpus = 1;
        struct gp_nvml_gpu *gpu = answer(1);
        cr_expect_eq(gpu->total_bytes, cases[i].total, "case %u", i);
        cr_expect_eq(gpu->used_bytes, cases[i].used, "case %u", i);
        cr_expect_eq(gpu->process_count, cases[i].processes, "case %u: %d", i, gpu->process_count);
        cr_expect_str_eq(gpu->uuid, cases[i].uuid, "case %u", i);
        cr_expect_str_eq(gpu->name, cases[i].name, "case %u", i);
        if (gpu->process_count > 0)
            cr_expect_eq(gpu->processes[0].bytes, cases[i].bytes, "case %u", i);
        gp_nvml_free(gpu, 1);
    }
}

Test(nvml, numbers_of_gpus)
{
    char problem[GP_NVML_PROBLEM_BYTES];
    struct gp_nvml_gpu *list;
    int count;
    struct fake *fake = stand_in();
    if (!fake)
        cr_skip("no C compiler");
    for (unsigned gpus = 0; gpus <= 66; gpus += gpus == 2 ? 61 : 1) {
        fake->gpus = gpus;
        int rc = gp_nvml_read(&list, &count, problem);
        cr_expect_eq(rc, gpus <= 64 ? 0 : -EIO, "%u: %d", gpus, rc);
        cr_expect_eq(problem[0] == 0, rc == 0);
        if (rc == 0)
            gp_nvml_free(list, count);
    }
    *fake = plain;
    fake->count = 999;
    cr_expect_eq(gp_nvml_read(&list, &count, problem), -EIO);
    cr_expect(strstr(problem, "nvmlDeviceGetCount_v2 failed with error 999"), "%s", problem);
}

/* A library that cannot be used is not asked again: every answer has the reason. */
Test(nvml, a_library_that_does_not_start)
{
    char problem[GP_NVML_PROBLEM_BYTES];
    struct gp_nvml_gpu *list;
    int count;
    struct fake *fake = stand_in();
    if (!fake)
        cr_skip("no C compiler");
    fake->init = 9;
    for (unsigned i = 0; i < 2; i++) {
        cr_expect_eq(gp_nvml_read(&list, &count, problem), -ENOENT);
        cr_expect_str_eq(problem, "nvmlInit_v2 failed with error 9");
    }
}

/* `top` asks each second for days. Under a sanitizer mallinfo2 knows nothing, and finds leaks by itself. */
Test(nvml, readings_leave_nothing_behind)
{
    struct fake *fake = stand_in();
    size_t before = 0;
    if (!fake)
        cr_skip("no C compiler");
    fake->compute_pids = 70;
    fake->graphics_pids = 3;
    for (unsigned round = 0; round < 200; round++) {
        fake->compute = round % 5 == 4 ? 999 : 0; /* one list fails */
        gp_nvml_free(answer(2), 2);
        if (round == 9)
            before = mallinfo2().uordblks;
    }
    cr_expect_lt(mallinfo2().uordblks, before + 4096);
}
