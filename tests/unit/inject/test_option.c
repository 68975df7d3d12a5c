/* SPDX-License-Identifier: MIT
 *
 * test_option.c: each variable with each of its values, the sizes at both ends of what fits, and the message for a value
 * that does not; from the environment and from the text of an attach.
 */
#include "base/compiler.h"
#include "inject/inject.h"
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gp_options options;
static char complaint[256];

/* Text of "NAME=VALUE" with the two NULs behind it. */
static void read_text(const char *setting)
{
    static char text[512]; /* the strings belong to it */
    strcpy(text, "GPUPROF_OTHER=1");
    size_t used = strlen(text) + 1;
    memset(text + used, 0, sizeof(text) - used);
    strcpy(text + used, setting);
    gp_options_read(&options, text, complaint, sizeof(complaint));
}

/* Everything that is not named is as without any setting. */
static void is(struct gp_options want, const char *setting)
{
    read_text(setting);
    cr_expect_str_eq(complaint, "", "%s", setting);
    cr_expect_eq(options.source, want.source, "%s", setting);
    cr_expect_eq(options.cupti, want.cupti, "%s", setting);
    cr_expect_eq(options.limit_bytes, want.limit_bytes, "%s: %llu", setting, (unsigned long long)options.limit_bytes);
    cr_expect_eq(options.stacks, want.stacks, "%s", setting);
    cr_expect_eq(options.stacks_set, want.stacks_set, "%s", setting);
    cr_expect_eq(options.record_since_ns, want.record_since_ns, "%s", setting);
    cr_expect_eq(options.ring_always, want.ring_always, "%s", setting);
    cr_expect_eq(!options.record + !options.allocator + !options.conf, 3, "%s", setting);
}

#define IS(_setting, ...) is((struct gp_options){__VA_ARGS__}, _setting)

Test(option, words)
{
    IS("GPUPROF_SOURCE=auto", .source = GP_OPTION_AUTO);
    IS("GPUPROF_SOURCE=cupti", .source = GP_OPTION_CUPTI);
    IS("GPUPROF_SOURCE=hooks", .source = GP_OPTION_HOOKS);
    IS("GPUPROF_SOURCE=", .source = GP_OPTION_AUTO);
    IS("GPUPROF_SOURCES=hooks", .source = GP_OPTION_AUTO);
    IS("GPUPROF_CUPTI=auto", .cupti = GP_CUPTI_AUTO);
    IS("GPUPROF_CUPTI=v1", .cupti = GP_CUPTI_V1);
    IS("GPUPROF_CUPTI=v2", .cupti = GP_CUPTI_V2);
    IS("GPUPROF_CUPTI=shared", .cupti = GP_CUPTI_SHARED);
    IS("GPUPROF_STACKS=off", .stacks_set = true);
    IS("GPUPROF_STACKS=native", .stacks_set = true, .stacks = GP_SITES_NATIVE);
    IS("GPUPROF_STACKS=python", .stacks_set = true, .stacks = GP_SITES_PYTHON);
    IS("GPUPROF_STACKS=all", .stacks_set = true, .stacks = GP_SITES_NATIVE | GP_SITES_PYTHON);
    IS("GPUPROF_RING=auto", .ring_always = false);
    IS("GPUPROF_RING=always", .ring_always = true);
    IS("GPUPROF_LOG=off", .source = GP_OPTION_AUTO);
}

Test(option, texts)
{
    read_text("GPUPROF_ALLOCATOR=any");
    cr_assert_str_eq(options.allocator, "any");
    read_text("GPUPROF_ALLOC_CONF=a:b,c:d");
    cr_assert_str_eq(options.conf, "a:b,c:d");
    read_text("GPUPROF_RECORD=/tmp/%p=x");
    cr_assert_str_eq(options.record, "/tmp/%p=x");
    cr_assert_null(options.allocator);
    cr_assert_str_eq(complaint, "");
}

Test(option, sizes)
{
    static const struct {
        const char *text;
        uint64_t unit;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"b", 1},
                 {"K", 1ull << 10},
                 {"KiB", 1ull << 10},
                 {"M", 1ull << 20},
                 {"mib", 1ull << 20},
                 {"G", 1ull << 30},
                 {"GiB", 1ull << 30},
                 {"T", 1ull << 40},
                 {"TIB", 1ull << 40}};
    char setting[64];
    for (unsigned i = 0; i < GP_COUNT(units); i++) {
        uint64_t most = (uint64_t)INT64_MAX / units[i].unit;
        for (uint64_t number = 1; number <= 3; number++) {
            snprintf(setting, sizeof(setting), "GPUPROF_MEMORY_LIMIT=%llu%s", (unsigned long long)number,
                     units[i].text);
            if (units[i].text[0])
                IS(setting, .limit_bytes = number * units[i].unit);
        }
        snprintf(setting, sizeof(setting), "GPUPROF_MEMORY_LIMIT=%llu%s", (unsigned long long)most, units[i].text);
        IS(setting, .limit_bytes = most * units[i].unit);
        snprintf(setting, sizeof(setting), "GPUPROF_MEMORY_LIMIT=%llu%s", (unsigned long long)most + 1, units[i].text);
        read_text(setting);
        cr_expect_eq(options.limit_bytes, 0, "%s", setting);
        cr_expect_not_null(strstr(complaint, "is out of range"), "%s: %s", setting, complaint);
    }
    IS("GPUPROF_MEMORY_LIMIT=922337203685477580", .limit_bytes = 922337203685477580ull);
    IS("GPUPROF_MEMORY_LIMIT=16B", .limit_bytes = 16);
    IS("GPUPROF_MEMORY_LIMIT=1.5 GiB", .limit_bytes = 3ull << 29);
    IS("GPUPROF_MEMORY_LIMIT=1234567890", .limit_bytes = 1234567890);
    IS("GPUPROF_MEMORY_LIMIT=9223372036854775807", .limit_bytes = 9223372036854775807ull);
    read_text("GPUPROF_MEMORY_LIMIT=9223372036854775808");
    cr_expect_str_eq(complaint, "GPUPROF_MEMORY_LIMIT=9223372036854775808 is out of range");
}

Test(option, times)
{
    IS("GPUPROF_RECORD_SINCE=0", .record_since_ns = 0);
    IS("GPUPROF_RECORD_SINCE=1795397589123456789", .record_since_ns = 1795397589123456789ull);
    IS("GPUPROF_RECORD_SINCE=9", .record_since_ns = 9);
    IS("GPUPROF_RECORD_SINCE=18446744073709551599", .record_since_ns = 18446744073709551599ull);
    static const char *const bad[] = {"18446744073709551600", "x", "5 ", "5:", "-1", "/"};
    for (unsigned i = 0; i < GP_COUNT(bad); i++) { /* the last digit of the largest number is not read */
        char setting[64];
        snprintf(setting, sizeof(setting), "GPUPROF_RECORD_SINCE=%s", bad[i]);
        read_text(setting);
        cr_expect_not_null(strstr(complaint, "must be a number of nanoseconds"), "%s", setting);
    }
}

Test(option, what_is_said_of_a_value_that_does_not_fit)
{
    static const char *const bad[][2] = {
        {"GPUPROF_SOURCE=CUPTI", "GPUPROF_SOURCE=CUPTI must be auto, cupti or hooks"},
        {"GPUPROF_SOURCE=cuptis", "GPUPROF_SOURCE=cuptis must be auto, cupti or hooks"},
        {"GPUPROF_CUPTI=V1", "GPUPROF_CUPTI=V1 must be auto, v1, v2 or shared"},
        {"GPUPROF_LOG=loud", "GPUPROF_LOG=loud must be off, error, warning, info or debug"},
        {"GPUPROF_LOG=warn", "GPUPROF_LOG=warn must be off, error, warning, info or debug"},
        {"GPUPROF_LOG=offx", "GPUPROF_LOG=offx must be off, error, warning, info or debug"},
        {"GPUPROF_LOG=info:/none/x", "GPUPROF_LOG=info:/none/x names a file that cannot be opened"},
        {"GPUPROF_STACKS=both", "GPUPROF_STACKS=both must be off, native, python or all"},
        {"GPUPROF_RING=never", "GPUPROF_RING=never must be auto or always"},
        {"GPUPROF_MEMORY_LIMIT=0", "GPUPROF_MEMORY_LIMIT=0 is out of range"},
        {"GPUPROF_MEMORY_LIMIT=0T", "GPUPROF_MEMORY_LIMIT=0T is out of range"},
        {"GPUPROF_MEMORY_LIMIT=99999999999999999999", "GPUPROF_MEMORY_LIMIT=99999999999999999999 is out of range"},
        {"GPUPROF_MEMORY_LIMIT=9999999999999999999", "GPUPROF_MEMORY_LIMIT=9999999999999999999 is out of range"},
        {"GPUPROF_MEMORY_LIMIT=M", "GPUPROF_MEMORY_LIMIT=M must be a size, like 512MiB or 16GiB"},
        {"GPUPROF_MEMORY_LIMIT=-1", "GPUPROF_MEMORY_LIMIT=-1 must be a size, like 512MiB or 16GiB"},
        {"GPUPROF_MEMORY_LIMIT=1.G", "GPUPROF_MEMORY_LIMIT=1.G must be a size, like 512MiB or 16GiB"},
        {"GPUPROF_MEMORY_LIMIT=1 Q", "GPUPROF_MEMORY_LIMIT=1 Q must be a size, like 512MiB or 16GiB"},
        {"GPUPROF_MEMORY_LIMIT=16", "GPUPROF_MEMORY_LIMIT=16 needs a unit, as in 16GiB; B is bytes"},
        {"GPUPROF_MEMORY_LIMIT=1:", "GPUPROF_MEMORY_LIMIT=1: must be a size, like 512MiB or 16GiB"},
        {"GPUPROF_MEMORY_LIMIT=1/", "GPUPROF_MEMORY_LIMIT=1/ must be a size, like 512MiB or 16GiB"},
        {"GPUPROF_MEMORY_LIMIT=1PB", "GPUPROF_MEMORY_LIMIT=1PB must be a size, like 512MiB or 16GiB"},
        {"GPUPROF_RECORD_SINCE=now", "GPUPROF_RECORD_SINCE=now must be a number of nanoseconds"},
        {"GPUPROF_RECORD_SINCE=1:", "GPUPROF_RECORD_SINCE=1: must be a number of nanoseconds"},
        {"GPUPROF_RECORD_SINCE=1/", "GPUPROF_RECORD_SINCE=1/ must be a number of nanoseconds"},
        {"GPUPROF_SOURCE=a_word_of_more_than_24_bytes",
         "GPUPROF_SOURCE=a_word_of_more_than_24_b must be auto, cupti or hooks"},
    };
    for (unsigned i = 0; i < GP_COUNT(bad); i++) {
        read_text(bad[i][0]);
        cr_expect_str_eq(complaint, bad[i][1], "%s", complaint);
        cr_expect(!options.source && !options.cupti && !options.stacks && !options.stacks_set && !options.ring_always &&
                  !options.limit_bytes);
    }
}

/* All of them, one sentence after the other; the last has no room, and the text keeps its NUL. */
Test(option, several_and_from_the_environment)
{
    setenv("GPUPROF_SOURCE", "hooks", 1);
    setenv("GPUPROF_MEMORY_LIMIT", "3MiB", 1);
    setenv("GPUPROF_RECORD", "here", 1);
    gp_options_read(&options, NULL, complaint, sizeof(complaint));
    cr_assert_str_eq(complaint, "");
    cr_assert(options.source == GP_OPTION_HOOKS && options.limit_bytes == 3 << 20 && !strcmp(options.record, "here"));
    read_text("GPUPROF_RING=always");
    cr_assert(options.source == GP_OPTION_AUTO && !options.record, "the environment is not read");
    setenv("GPUPROF_SOURCE", "one", 1);
    setenv("GPUPROF_STACKS", "two", 1);
    setenv("GPUPROF_RING", "three", 1);
    gp_options_read(&options, NULL, complaint, sizeof(complaint));
    cr_assert_str_eq(complaint,
                     "GPUPROF_SOURCE=one must be auto, cupti or hooks; GPUPROF_STACKS=two must be off, native, "
                     "python or all; GPUPROF_RING=three must be auto or always");
    cr_assert_eq(options.limit_bytes, 3 << 20);
    char whole[256];
    strcpy(whole, complaint);
    for (size_t bytes = 1; bytes < 200; bytes++) {
        memset(complaint, 'x', sizeof(complaint));
        gp_options_read(&options, NULL, complaint, bytes);
        size_t length = strnlen(complaint, bytes);
        cr_assert_lt(length, bytes);
        cr_assert_eq(strncmp(complaint, whole, length), 0);
        cr_assert(length == bytes - 1 || length == strlen(whole), "%zu of %zu", length, bytes);
        cr_assert_eq(complaint[bytes], 'x');
    }
}
