/* SPDX-License-Identifier: MIT
 *
 * test_leaks.c: from a running program to the name of its leak: recorded under the simulated GPU
 * and analysed by the command.
 * Run: first
 */
#include "integration/command.h"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* Slow, because a program that exits after 100 ms would end before the poller has asked the driver
 * for the size of the device. */
static void record(char file[64], const char *how, const char *marks)
{
    char option[96];
    snprintf(file, 64, "/tmp/test_leaks_%d_%s_%s", (int)getpid(), how, marks);
    unlink(file);
    snprintf(option, sizeof(option), "--record=%s", file);
    command(0, "run", "--sim", "--stacks=native", option, "--", path_program("leak_branch"), how, marks, "slow", NULL);
}

static json_t *analyse(const char *how, const char *file)
{
    command(0, how, file, "--json", NULL);
    return said_json();
}

/* Each row names its callers: the whole stack, and the label that the text shows. */
static void expect_callers(const json_t *rows)
{
    size_t i, train = 0;
    json_t *row;
    cr_assert_gt(json_array_size(rows), 0);
    json_array_foreach(rows, i, row)
    {
        const json_t *frames = json_object_get(row, "frames"), *caller = json_object_get(row, "caller");
        cr_expect(json_is_string(json_object_get(row, "name")));
        cr_expect(json_is_null(caller) || json_is_string(json_object_get(caller, "function")));
        for (size_t k = 0; k < json_array_size(frames); k++) {
            const char *function = json_string_value(json_object_get(json_array_get(frames, k), "function"));
            train += function && strcmp(function, "train") == 0;
        }
    }
    cr_expect_gt(train, 0, "no stack has the caller");
}

static void expect_leak(const char *marks, int least_steps)
{
    char file[64];
    record(file, "leaking", marks);
    json_t *top = analyse("leaks", file), *suspects = json_object_get(top, "suspects");
    cr_assert_eq(json_array_size(suspects), 1);
    const json_t *first = json_array_get(suspects, 0);
    cr_assert_str_eq(json_string_value(json_object_get(first, "function")), "inner_branch");
    expect_callers(suspects);
    cr_assert_geq(json_integer_value(json_object_get(top, "steps")), least_steps);
    /* 13 of 20 steps keep 90 MiB, each a little more. */
    cr_assert_float_eq(json_real_value(json_object_get(first, "bytes_per_step")) / (1 << 20), 64, 12);
    cr_assert(json_is_real(json_object_get(first, "seconds_to_oom")));
    json_decref(top);
    unlink(file);
}

static void expect_none(const char *marks)
{
    char file[64];
    record(file, "fixed", marks);
    json_t *top = analyse("leaks", file);
    cr_assert_eq(json_array_size(json_object_get(top, "suspects")), 0);
    json_decref(top);
    unlink(file);
}

Test(leaks, are_found_in_a_running_program, .timeout = 120)
{
    expect_leak("marked", 20);
    expect_none("marked");
}

Test(leaks, are_found_without_marks, .timeout = 120)
{
    expect_leak("unmarked", 15);
    expect_none("unmarked");
}

/* The events add up to the process's own numbers, at the peak and at the end. */
Test(leaks, report_agrees_with_the_process_s_own_counters, .timeout = 120)
{
    char file[64];
    record(file, "leaking", "marked");
    json_t *top = analyse("report", file);
    const json_t *device = json_array_get(json_object_get(top, "devices"), 0);
    cr_assert_eq(json_integer_value(json_object_get(json_object_get(top, "recording"), "dropped")), 0);
    cr_assert(json_is_integer(json_object_get(device, "counted_peak_bytes")));
    cr_assert_eq(json_integer_value(json_object_get(device, "allocated_peak_bytes")),
                 json_integer_value(json_object_get(device, "counted_peak_bytes")));
    json_decref(top);
    unlink(file);
}

/* A pair of cudaMalloc and cudaFree takes microseconds in the simulated driver too. */
Test(leaks, churn_says_what_the_calls_cost, .timeout = 120)
{
    char file[64];
    record(file, "fixed", "marked");
    json_t *top = analyse("churn", file);
    expect_callers(json_object_get(top, "sites"));
    json_int_t pairs = json_integer_value(json_object_get(top, "pairs"));
    json_int_t driver_ns = json_integer_value(json_object_get(top, "driver_ns"));
    cr_assert(pairs > 100 && driver_ns > pairs * 1000 && driver_ns < pairs * 100000000, "%lld pairs, %lld ns",
              (long long)pairs, (long long)driver_ns);
    json_decref(top);
    unlink(file);
}

/* `peak -p` of an idle program (no events meanwhile), which `end` stops: the command itself or the
 * program. */
static void expect_names(void end(const struct spawn *command, const struct spawn *program))
{
    char pid[16];
    const char *program[] = {path_program("linear"), NULL};
    const char *command[] = {path_command(), "peak", "-p", pid, "--duration", "20", NULL};
    const char *env[] = {"GPUPROF_STACKS=native", NULL};
    struct spawn held, asked;
    struct spawn_result result = {0}, ended = {0};
    cr_assert_eq(
        spawn_start(&held,
                    &(struct spawn_options){.argv = program, .env = env, .want_library = true, .want_hold = true}),
        0);
    cr_assert_eq(spawn_wait_held(&held, 1), 0);
    snprintf(pid, sizeof(pid), "%d", (int)held.held[0]);
    cr_assert_eq(spawn_start(&asked, &(struct spawn_options){.argv = command}), 0);
    sleep(1);
    end(&asked, &held);
    spawn_finish(&asked, &result);
    cr_expect(!result.is_timed_out && result.status == 0, "%s: %s", spawn_status_text(&result), result.err);
    cr_expect(strstr(result.out, "program_alloc (") != NULL, "%s%s", result.out, result.err);
    spawn_kill(&held, SIGKILL);
    spawn_finish(&held, &ended);
    spawn_result_free(&result);
    spawn_result_free(&ended);
}

/* A terminal sends the signal to the whole group: to the command and to the recorder that it
 * started. */
static void interrupt_all(const struct spawn *command, const struct spawn *program)
{
    (void)program;
    cr_assert_eq(kill(-command->pid, SIGINT), 0);
}

static void kill_program(const struct spawn *command, const struct spawn *program)
{
    (void)command;
    cr_assert_eq(kill(program->held[0], SIGKILL), 0);
}

Test(leaks, one_interrupt_ends_the_recording_and_still_answers, .timeout = 120)
{
    expect_names(interrupt_all);
}

Test(leaks, a_program_that_is_killed_keeps_its_names, .timeout = 120)
{
    expect_names(kill_program);
}
