/* SPDX-License-Identifier: MIT
 * test_cli_leaks.c: every command that says what grows says the same: `leaks`, `explain`, `report` and `report` of ranks,
 * as text and as JSON, which the page shows.  Run by the unit tests. */
#include "cli.h"

#include <lib/leakcorpus.h>
#include <lib/recsave.h>
#include <sys/socket.h>
#include <sys/un.h>

static char folder[64];

static void begin(void)
{
    find_binary();
    snprintf(folder, sizeof(folder), "/tmp/gp-cli-leaks.XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void end(void)
{
    char line[128];
    snprintf(line, sizeof(line), "rm -rf %s", folder);
    cr_assert_eq(system(line), 0);
}

TestSuite(leaks_command, .init = begin, .fini = end, .timeout = 60);

/* The first program of the corpus whose name has this part, in a file. */
static const char *write_program(const char *part)
{
    static char path[2][128];
    static unsigned next;
    char *at = path[next++ % 2];
    struct leak_truth truth;
    uint32_t i = 0;
    while (i < leak_corpus_count() && !strstr(leak_corpus_program(i).name, part))
        i++;
    cr_assert_lt(i, leak_corpus_count(), "%s", part);
    snprintf(at, sizeof(path[0]), "%s/%u.gpuprof", folder, i);
    struct gp_recording *recording = leak_corpus_make(i, 7, &truth);
    cr_assert_eq(recsave(recording, at), 0);
    gp_recording_free(recording);
    return at;
}

static json_t *json_of(const char *format, const char *file)
{
    struct result r = run(format, file, file);
    json_t *object = json_loads(r.out, 0, NULL);
    cr_assert(r.status == 0 && object, "%s: %d %s", format, r.status, r.err);
    free(r.out);
    free(r.err);
    return object;
}

static void expect_row(const json_t *rows, const char *function)
{
    const json_t *row = json_array_get(rows, 0);
    cr_assert(row, "no row");
    cr_expect_str_eq(json_string_value(json_object_get(row, "function")), function);
    cr_expect_str_eq(json_string_value(json_object_get(row, "file")), "work.c");
    cr_expect_eq(json_integer_value(json_object_get(row, "line")), 500);
    cr_expect_gt(json_real_value(json_object_get(row, "confidence")), 0);
    cr_expect_gt(json_real_value(json_object_get(row, "bytes_per_step")), 0);
}

static void expect_grown(const json_t *rows, const char *name)
{
    const char *found = json_string_value(json_object_get(json_array_get(rows, 0), "name"));
    cr_expect(found && strstr(found, name), "%s: %s", name, found ? found : "nothing");
}

/* What would help is the same of the device that is explained, and names what grows. */
static void expect_helps(const json_t *report, const json_t *explained, const char *text)
{
    size_t number = (size_t)json_integer_value(json_object_get(explained, "device"));
    const json_t *device = json_array_get(json_object_get(report, "devices"), number);
    const json_t *helps = json_object_get(device, "helps");
    const char *first = json_string_value(json_array_get(helps, 0));
    cr_expect(first && strstr(first, text), "%s: %s", text, first ? first : "nothing");
    cr_expect(json_equal(helps, json_object_get(explained, "helps")));
}

static void expect_not(struct result r, const char *text)
{
    cr_expect(r.status == 0 && !strstr(r.out, text), "'%s' in: %s", text, r.out);
    free(r.out);
    free(r.err);
}

Test(leaks_command, a_leak_is_named_by_all)
{
    const char *file = write_program("steps/flat/founding/exits");
    json_t *leaks = json_of("leaks %s --json", file), *report = json_of("report %s --json", file);
    json_t *explained = json_of("explain %s --json", file), *ranks = json_of("report %s %s --json", file);
    expect_row(json_object_get(leaks, "suspects"), "remember");
    expect_row(json_object_get(json_object_get(report, "leaks"), "suspects"), "remember");
    cr_expect_eq(json_array_size(json_object_get(leaks, "candidates")), 0);
    cr_expect_float_eq(
        json_real_value(json_object_get(json_array_get(json_object_get(leaks, "suspects"), 0), "bytes_per_step")) /
            (1 << 20),
        110, 6);
    expect_grown(json_object_get(explained, "grows"), "remember (work.c:500)");
    expect_helps(report, explained, "free what remember (work.c:500) keeps: ");
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(json_object_get(ranks, "ranks"), 0), "grows")),
                     "remember (work.c:500)");
    expect(run("leaks %s", file), 0, "MiB per repeat  remember (work.c:500)", NULL);
    expect(run("explain %s", file), 0, "Grows: remember (work.c:500) by ", NULL);
    expect_not(run("explain %s", file), "Not sure of: what grows"); /* it prints how sure it is */
    expect(run("report %s", file), 0, "MiB per repeat  remember (work.c:500)", NULL);
    expect(run("report %s", file), 0, " x grows      remember (work.c:500)", NULL);
    expect(run("peak %s", file), 0, " x grows      remember (work.c:500)", NULL);
    expect(run("report %s %s", file, file), 0, "/s: remember (work.c:500)", NULL);
    expect(run("leaks %s --error-exitcode=7", file), 7, NULL, NULL);
    expect(run("report %s -o %s.html", file, file), 0, NULL, NULL);
    json_decref(leaks);
    json_decref(report);
    json_decref(explained);
    json_decref(ranks);
}

/* Each step keeps more than it frees, and nothing tells it from a tensor that is loaded. */
Test(leaks_command, what_is_not_known_is_named_by_all_and_denied_by_none)
{
    const char *file = write_program("infers/flat/almost/exits");
    json_t *leaks = json_of("leaks %s --json", file), *report = json_of("report %s --json", file);
    json_t *explained = json_of("explain %s --json", file), *ranks = json_of("report %s %s --json", file);
    const json_t *candidates = json_object_get(leaks, "candidates"), *first = json_array_get(candidates, 0);
    cr_expect_eq(json_array_size(json_object_get(leaks, "suspects")), 0);
    expect_row(candidates, "remember");
    cr_expect_gt(json_real_value(json_object_get(first, "if_steps_bytes_per_step")), 0);
    cr_expect(strstr(json_string_value(json_object_get(first, "because")), "does not leak"));
    cr_expect_str_eq(json_string_value(json_object_get(leaks, "why")),
                     "it cannot be known whether what grows is a leak");
    expect_row(json_object_get(json_object_get(report, "leaks"), "candidates"), "remember");
    expect_grown(json_object_get(explained, "may_grow"), "remember (work.c:500)");
    cr_expect_eq(json_array_size(json_object_get(explained, "grows")), 0);
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(json_object_get(ranks, "ranks"), 0), "may_grow")),
                     "remember (work.c:500)");
    expect(run("leaks %s", file), 0, "per repeat  remember (work.c:500)", NULL);
    expect(run("leaks %s", file), 0, "If these are steps, it keeps", NULL);
    expect(run("leaks %s", file), 0, " of each, and the device is full in ", NULL);
    expect_not(run("leaks %s", file), "; device full in");
    expect(run("explain %s", file), 0, "May grow: remember (work.c:500), ", NULL);
    expect_not(run("explain %s", file), "nothing that was seen");
    expect(run("report %s", file), 0, "per repeat  remember (work.c:500)", NULL);
    expect(run("report %s %s", file, file), 0, "may be: remember (work.c:500)", NULL);
    expect(run("leaks %s --error-exitcode=7", file), 0, NULL, NULL);
    json_decref(leaks);
    json_decref(report);
    json_decref(explained);
    json_decref(ranks);
}

/* A gate does not take what is not known for nothing. */
Test(leaks_command, a_budget_of_growth_is_unknown_without_known_steps)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/budgets", folder);
    FILE *budgets = fopen(path, "w");
    cr_assert(budgets && fputs("leak 0B\n", budgets) >= 0 && fclose(budgets) == 0);
    expect(run("check %s --budgets=%s", write_program("steps/flat/founding/exits"), path), 3, NULL, NULL);
    expect(run("check %s --budgets=/dev/null", write_program("steps/flat/founding/exits")), 2, NULL, "holds no budget");
    expect(run("check %s --budgets=%s", write_program("infers/flat/almost/exits"), path), 0,
           "the growth of memory per step is not known", NULL);
}

/* `leaks` on a terminal: each line fits. */
Test(leaks_command, lines_fit_a_terminal)
{
    const char *programs[] = {"infers/flat/almost/exits", "pass/net/nothing/exits"};
    for (size_t i = 0; i < 2; i++) {
        char line[160];
        snprintf(line, sizeof(line), "leaks %s", write_program(programs[i]));
        for (int columns = 80; columns <= 120; columns += 20) {
            char *out = run_terminal(columns, line);
            cr_expect(strstr(out, "candidates, of which it is not known whether they leak:"), "%s", out);
            free(out);
        }
    }
}

/* A pipe that nobody writes into was waited for. */
Test(leaks_command, what_is_no_regular_file_in_a_folder_is_left_out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char file[128];
    snprintf(file, sizeof(file), "%s/pipe.gpuprof", folder);
    cr_assert_eq(mkfifo(file, 0600), 0);
    expect(run("report %s", folder), 1, "", "pipe.gpuprof: a pipe, not a regular file\n");
    write_program("steps/flat/founding/exits");
    snprintf(name.sun_path, sizeof(name.sun_path), "%s/socket.gpuprof", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    close(fd);
    snprintf(file, sizeof(file), "%s/zero.gpuprof", folder);
    cr_assert_eq(symlink("/dev/zero", file), 0);
    expect(run("report %s", folder), 1, "remember", "3 of 4 recordings left out");
    expect(run("leaks %s", folder), 1, "remember", "pipe.gpuprof: a pipe, not a regular file; it is left out");
    expect(run("leaks %s", folder), 1, "remember", "socket.gpuprof: a socket, not a regular file; it is left out");
    expect(run("leaks %s", folder), 1, "remember", "zero.gpuprof: a device, not a regular file; it is left out");
    expect(run("diff %s %s", folder, folder), 1, "", "pipe.gpuprof: a pipe, not a regular file; it is left out");
}

/* Two processes of one rank, or a file that was copied: the answer has both, as "ranks 0,0". */
Test(leaks_command, two_recordings_of_one_rank_are_named)
{
    struct leak_truth truth;
    char file[128];
    for (int i = 0; i < 3; i++) {
        struct gp_recording *recording = leak_corpus_make(0, 7, &truth);
        recording->has_rank = true;
        recording->rank = i / 2;
        recording->world_size = 2;
        snprintf(file, sizeof(file), "%s/%c.gpuprof", folder, 'a' + i);
        cr_assert_eq(recsave(recording, file), 0);
        gp_recording_free(recording);
    }
    for (int i = 0; i < 2; i++) {
        struct result r = run("%s %s", i ? "leaks" : "report", folder);
        const char *said = strstr(r.err, "/b.gpuprof: it is a recording of rank 0, as is ");
        cr_expect(said && strstr(said, "/a.gpuprof: both are taken, each as a rank\n"), "%s", r.err);
        cr_expect(!strstr(r.err, "rank 1"), "%s", r.err);
        expect(r, 0, NULL, NULL);
    }
}
