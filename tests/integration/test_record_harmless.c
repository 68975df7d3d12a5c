/* SPDX-License-Identifier: MIT
 *
 * What records itself with all its stacks is the same program: its output, its end, and, to the byte, what is counted,
 * with CUPTI and with the library in front of the driver.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/build.h"
#include "lib/catalog.h"
#include "lib/paths.h"

TestSuite(record_harmless, .timeout = 120);

static void same(const char *title, const struct spawn_options *base, const char *source, const char *const *env)
{
    struct spawn_options options = *base;
    struct spawn_result with = {0}, without = {0};

    cr_assert_eq(spawn_run(&options, &without), 0);
    cr_assert(!WIFEXITED(without.status) || WEXITSTATUS(without.status) < 125, "%s does not run at all: %s", title,
              without.err);
    options.want_library = true;
    options.source = source;
    options.env = env;
    cr_assert_eq(spawn_run(&options, &with), 0);
    cr_expect_eq(with.status, without.status, "%s: with: %s; without: %d", title, spawn_status_text(&with),
                 without.status);
    cr_expect_str_eq(with.out, without.out, "%s: stdout with:\n%s\nwithout:\n%s", title, with.out, without.out);
    cr_expect_str_eq(with.err, without.err, "%s: stderr with:\n%s\nwithout:\n%s", title, with.err, without.err);
    spawn_result_free(&with);
    spawn_result_free(&without);
}

ParameterizedTestParameters(record_harmless, every_program_is_the_same)
{
    int *index = cr_malloc(sizeof(*index) * catalog_count);
    size_t i;

    for (i = 0; i < catalog_count; i++) {
        index[i] = (int)i;
    }
    return cr_make_param_array(int, index, catalog_count, (void (*)(struct criterion_test_params *))NULL);
}

ParameterizedTest(int *index, record_harmless, every_program_is_the_same)
{
    const struct catalog_entry *entry = &catalog[*index];
    char *folder = build_folder(), record[128];
    const char *argv[CATALOG_ARGS + 2], *env[] = {"GPUPROF_STACKS=all", record, NULL};
    struct spawn_options options;
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};

    cr_assert_not_null(folder);
    snprintf(record, sizeof(record), "GPUPROF_RECORD=%s/%%p.gpuprof", folder);
    catalog_options(entry, argv, &options);
    same(catalog_title(entry), &options, NULL, env);
    same(catalog_title(entry), &options, "hooks", env);
    options.env = env;
    check_against_ledger(&diff, &options, entry->processes == 0 ? 1 : entry->processes, &entry->rules, &result);
    cr_expect_eq(diff.count, 0, "%s:\n%s", catalog_title(entry), diff.text);
    spawn_result_free(&result);
    build_remove(folder);
}

/* A child of fork may ask the loader for its objects, whatever another thread of ours was just learning from it. */
Test(record_harmless, a_child_is_answered_by_the_loader)
{
    const char *argv[] = {path_program("site_fork"), NULL}, *native[] = {"GPUPROF_STACKS=native", NULL},
               *all[] = {"GPUPROF_STACKS=all", NULL};
    struct spawn_options options = {.argv = argv};

    same("native", &options, NULL, native);
    same("all", &options, NULL, all);
}

/* The C library takes thread-local storage out of a thread's stack; what is left must be enough for ours. */
Test(record_harmless, large_thread_local_storage)
{
    char *folder = build_folder(), preload[256], size[64], name[64], record[128];
    const char *argv[] = {path_program("linear"), NULL}, *env[] = {preload, NULL}, *with[] = {preload, record, NULL};
    struct spawn_options options = {.argv = argv, .env = env};
    int kib;

    cr_assert_not_null(folder);
    snprintf(record, sizeof(record), "GPUPROF_RECORD=%s/%%p.gpuprof", folder);
    for (kib = 220; kib < 256; kib += 3) {
        snprintf(size, sizeof(size), "-DTLS_BYTES=%d", kib << 10);
        snprintf(name, sizeof(name), "tls%d.so", kib);
        cr_assert_eq(build_shared(folder, "tls.c", name, size), 0);
        snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/%s", folder, name);
        same(name, &options, NULL, with);
    }
    build_remove(folder);
}

/* ---- any libc function fails inside the library -------------------------------------------------------------- */

static const char *const functions[] = {
    "memfd_create", "ftruncate", "ftruncate64",    "fallocate", "fallocate64", "mmap",    "mmap64", "mremap",
    "madvise",      "fcntl",     "fcntl64",        "open",      "open64",      "read",    "pread",  "write",
    "pread64",      "flock",     "fstat",          "lseek",     "lseek64",     "unshare", "close",  "dlopen",
    "dlsym",        "uname",     "pthread_create", "syscall",   "getrlimit"};

static long fail_once(const char *preload, const char *folder, const char *function, long number, const char *more)
{
    const char *argv[] = {path_program("harmless"), NULL};
    char setting[128], count_setting[300], count_path[256], record[300], title[96];
    const char *env[] = {preload, setting, count_setting, "GPUPROF_STACKS=all", record, NULL};
    long calls = -1;
    FILE *file;

    snprintf(setting, sizeof(setting), "GPUPROF_TEST_FAIL=%s:%ld%s:libgpuprof", function, number, more);
    snprintf(count_path, sizeof(count_path), "%s/count", folder);
    snprintf(count_setting, sizeof(count_setting), "GPUPROF_TEST_FAIL_COUNT=%s", count_path);
    snprintf(record, sizeof(record), "GPUPROF_RECORD=%s/%%p.gpuprof", folder);
    snprintf(title, sizeof(title), "%s call %ld%s fails in the library", function, number, more);
    same(title, &(struct spawn_options){.argv = argv, .env = env}, NULL, env);
    file = fopen(count_path, "r");
    if (file != NULL) {
        calls = fscanf(file, "%ld", &calls) == 1 ? calls : -1;
        fclose(file);
    }
    return calls;
}

Test(record_harmless, any_libc_function_may_fail, .timeout = 240)
{
    char *folder = build_folder(), preload[256];
    long number, calls, fired = 0;
    size_t i;

    cr_assert_not_null(folder);
    cr_assert_eq(build_shared(folder, "fail.c", "fail.so", NULL), 0);
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/fail.so", folder);
    for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        number = 0;
        do {
            number++;
            calls = fail_once(preload, folder, functions[i], number, "");
            fired += calls >= number;
        } while (calls >= number && number < 24);
        if (calls > 0) {
            fail_once(preload, folder, functions[i], 1, "+");
        }
    }
    cr_expect_gt(fired, 10, "only %ld calls failed: the library is not reached by the preload", fired);
    build_remove(folder);
}
