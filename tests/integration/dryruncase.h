/* SPDX-License-Identifier: MIT
 *
 * dryruncase.h: what the tests of `gpuprof dryrun` share: a folder for each, the command, and rows of its JSON.
 */
#ifndef GP_TESTS_INTEGRATION_DRYRUNCASE_H
#define GP_TESTS_INTEGRATION_DRYRUNCASE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integration/command.h"

#define MIB (1ll << 20)

static char folder[64];
static const char *left[5]; /* of the runs, in that folder */

static void work_begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gpuprof-test-dryrun-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

/* Nothing of the runs is left in the folder, which is TMPDIR, but what the test names. */
static void work_end(void)
{
    char path[512];
    DIR *entries = opendir(folder);
    cr_assert_not_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries));) {
        bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        for (int i = 0; left[i]; i++)
            known |= strcmp(entry->d_name, left[i]) == 0;
        cr_expect(known, "%s is left", entry->d_name);
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(entries);
    cr_expect_eq(rmdir(folder), 0);
}

/* `gpuprof dryrun ARGUMENTS`, with the words of one string; %s of it is the program "job". */
static void dryrun(const char *arguments, int status)
{
    char line[2048], temporary[96];
    const char *argv[40] = {path_command(), "dryrun"};
    const char *env[] = {temporary, "GPUPROF_SIM", NULL};
    int count = 2;
    snprintf(temporary, sizeof(temporary), "TMPDIR=%s", folder);
    snprintf(line, sizeof(line), arguments, path_program("job"));
    for (char *word = strtok(line, " "); word && count < 39; word = strtok(NULL, " "))
        argv[count++] = word;
    run_program(status, &(struct spawn_options){.argv = argv, .env = env});
}

static json_t *dryrun_json(const char *arguments, int status)
{
    dryrun(arguments, status);
    json_t *top = said_json();
    cr_expect_str_eq(json_string_value(json_object_get(top, "schema")), "gpuprof.dryrun/1");
    return top;
}

static json_t *at(json_t *top, const char *list, size_t i)
{
    json_t *row = json_array_get(json_object_get(top, list), i);
    cr_assert(row, "no %s[%zu]", list, i);
    return row;
}

static long long number(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

#endif
