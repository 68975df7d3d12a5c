/* SPDX-License-Identifier: MIT
 * test_because.c: why a candidate is no suspect: what it means if it leaks, and nothing that is not known. */
#include <criterion/criterion.h>
#include <show/text/reportparts.h>
#include <stdio.h>
#include <string.h>

static const char *because(enum gp_leak_doubt doubt, const char *word, double seconds)
{
    static char text[GP_BECAUSE_TEXT];
    const struct gp_leak leak = {.doubt = (uint8_t)doubt,
                                 .bytes_per_step = 1 << 20,
                                 .bytes_per_second = 50 << 20,
                                 .repeats = 6,
                                 .repeat_kept = 1,
                                 .repeat_freed = 48,
                                 .seconds_to_oom = seconds};
    return gp_report_because(&leak, word, NULL, text);
}

Test(because, both_ends_of_the_doubt_are_named)
{
    for (int doubt = GP_LEAK_KNOWN + 1; doubt < GP_LEAK_DOUBTS; doubt++) {
        const char *text = because((enum gp_leak_doubt)doubt, "step", 90);
        cr_expect(strstr(text, "If ") && strstr(text, "does not leak"), "%s", text);
        /* That one generation goes on until the device is full is not meant. */
        cr_expect_eq(strstr(text, ", and the device is full in 90 s; if") != NULL, doubt != GP_LEAK_GENERATION, "%s",
                     text);
        text = because((enum gp_leak_doubt)doubt, "step", -1);
        cr_expect(!strstr(text, "full") && strstr(text, "does not leak"), "%s", text);
    }
}

Test(because, the_longest_text_has_its_end)
{
    char text[GP_BECAUSE_TEXT];
    for (int doubt = GP_LEAK_KNOWN + 1; doubt < GP_LEAK_DOUBTS; doubt++) {
        const struct gp_leak leak = {.doubt = (uint8_t)doubt,
                                     .bytes_per_step = 1023.9 * (1 << 20),
                                     .bytes_per_second = 1023.9 * (1 << 20),
                                     .repeats = 1000000,
                                     .repeat_kept = 123456789,
                                     .repeat_freed = 123456789};
        gp_report_because(&leak, "stretch", "1234 min to 12345 min", text);
        cr_expect_str_eq(text + strlen(text) - 13, "does not leak", "%s", text);
    }
}

/* Repeats and stretches of time are not called steps, and a stretch of time keeps nothing by itself. */
Test(because, repeats_and_stretches_are_no_steps)
{
    cr_expect_str_eq(
        because(GP_LEAK_SHORT, "step", -1),
        "it began to grow in the last of 6 steps. If it goes on so, it keeps 1.000 MiB of each; if it fills "
        "once, it does not leak");
    cr_expect_str_eq(because(GP_LEAK_SHORT, "repeat", -1),
                     "it began to grow in the last of 6 repeats. If it goes on so, it keeps 1.000 MiB of each; if it "
                     "fills once, it does not leak");
    cr_expect_str_eq(because(GP_LEAK_SHORT, "stretch", -1),
                     "it began to grow in the last of 6 stretches. If it goes on so, it keeps 50.00 MiB/s; if it fills "
                     "once, it does not leak");
    cr_expect(
        strstr(because(GP_LEAK_UNEVEN, "repeat", 2), "it keeps 1.000 MiB of each repeat, and the device is full"));
    cr_expect(strstr(because(GP_LEAK_UNEVEN, "stretch", 2), "it keeps 50.00 MiB/s, and the device is full"));
}
