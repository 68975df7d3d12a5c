/* SPDX-License-Identifier: MIT
 *
 * test_record_harmless.c: a program that records itself with all its stacks behaves the same: its
 * output, its exit status, and, to the byte, the counted numbers, with CUPTI and with the library
 * in front of the driver.
 * Run: first
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
#include "lib/full.h"
#include "lib/paths.h"
#include "lib/same.h"

TestSuite(record_harmless, .timeout = 120);

ParameterizedTestParameters(record_harmless, every_program_is_the_same)
{
    return catalog_each(catalog_is_light);
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
    same_expect_ways(catalog_title(entry), &options, (struct same_way[]){{NULL, env}, {"hooks", env}},
                     test_is_full() || *index % 2 ? 2 : 1);
    options.env = env;
    check_against_ledger(&diff, &options, entry->processes == 0 ? 1 : entry->processes, &entry->rules, &result);
    cr_expect_eq(diff.count, 0, "%s:\n%s", catalog_title(entry), diff.text);
    spawn_result_free(&result);
    build_remove(folder);
}

/* A forked child may call dl_iterate_phdr, even if another thread was inside it at the fork. */
Test(record_harmless, a_child_is_answered_by_the_loader)
{
    const char *argv[] = {path_program("site_fork"), NULL}, *native[] = {"GPUPROF_STACKS=native", NULL},
               *all[] = {"GPUPROF_STACKS=all", NULL};
    struct spawn_options options = {.argv = argv};
    same_expect("native", &options, NULL, native);
    same_expect("all", &options, NULL, all);
}

Test(record_harmless, stacks_that_the_program_made)
{
    const char *argv[] = {path_program("site_guardless"), NULL}, *env[] = {"GPUPROF_STACKS=native", NULL};
    same_expect("native", &(struct spawn_options){.argv = argv}, NULL, env);
}

/* The C library takes thread-local storage from a thread's stack; the rest must be enough for the
 * library. */
Test(record_harmless, large_thread_local_storage)
{
    char *folder = build_folder(), preload[256], size[64], name[64], record[128];
    const char *argv[] = {path_program("linear"), NULL}, *env[] = {preload, NULL}, *with[] = {preload, record, NULL};
    struct spawn_options options = {.argv = argv, .env = env};
    int kib;
    cr_assert_not_null(folder);
    snprintf(record, sizeof(record), "GPUPROF_RECORD=%s/%%p.gpuprof", folder);
    for (kib = 220; kib < 256; kib += test_is_full() ? 3 : 12) {
        snprintf(size, sizeof(size), "-DTLS_BYTES=%d", kib << 10);
        snprintf(name, sizeof(name), "tls%d.so", kib);
        cr_assert_eq(build_shared(folder, "tls.c", name, size), 0);
        snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/%s", folder, name);
        same_expect(name, &options, NULL, with);
    }
    build_remove(folder);
}

/* ---- any libc function fails inside the library -------------------------------------------------------------- */

static void expect_failures(const struct same_row *rows, size_t row_count, const char **env)
{
    static const char *const programs[] = {"harmless", NULL};
    same_expect_failures(&(struct same_failures){
        .rows = rows, .row_count = row_count, .programs = programs, .env = env, .most = 24, .all_from = 1});
}

Test(record_harmless, any_libc_function_may_fail, .timeout = 240)
{
    static const struct same_row rows[] = {
        {"memfd_create", NULL},
        {"ftruncate", NULL},
        {"fallocate", NULL},
        {"mmap", NULL},
        {"madvise", NULL},
        {"fcntl", NULL},
        {"flock", NULL},
        {"fstat", NULL},
        {"close", NULL},
        {"open", NULL},
        {"read", NULL},
        {"pread", NULL},
        {"write", NULL},
        {"dlopen", NULL},
        {"dlsym", NULL},
        {"uname", NULL},
        {"getrandom", NULL},
        {"getrlimit", NULL},
        {"syscall", NULL},
        {"unshare", "syscall"}, /* for kernels without close_range */
        {"pthread_create", NULL},
        {"pthread_setname_np", NULL},
        {"__register_atfork", NULL},
    };
    char *folder = build_folder(), record[300];
    const char *env[] = {"GPUPROF_STACKS=all", record, NULL};
    cr_assert_not_null(folder);
    snprintf(record, sizeof(record), "GPUPROF_RECORD=%s/%%p.gpuprof", folder);
    expect_failures(rows, sizeof(rows) / sizeof(rows[0]), env);
    build_remove(folder);
}

/* An existing file is not overwritten: the recording gets another name. */
Test(record_harmless, a_file_that_is_there_already)
{
    static const struct same_row rows[] = {{"open", NULL}, {"lstat", NULL}, {"flock", NULL}};
    char *folder = build_folder(), record[300];
    const char *env[] = {record, NULL};
    cr_assert_not_null(folder);
    snprintf(record, sizeof(record), "GPUPROF_RECORD=%s/there", folder);
    cr_assert_eq(build_copy("/etc/passwd", record + strlen("GPUPROF_RECORD=")), 0);
    expect_failures(rows, sizeof(rows) / sizeof(rows[0]), env);
    build_remove(folder);
}
