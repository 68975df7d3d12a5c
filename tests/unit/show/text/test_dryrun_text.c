/* SPDX-License-Identifier: MIT
 * test_dryrun_text.c: what the text of a dry run says of its end.  Run by the unit tests. */
#include <dryrun/model.h>
#include <show/text/dryrunformat.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of a run that --steps ended, of two processes with these steps; the first needs more. */
static char *ended(uint32_t first, uint32_t second)
{
    struct gp_need needs[2] = {{.steps = first, .needed_bytes = 2 << 20}, {.steps = second, .needed_bytes = 1 << 20}};
    struct gp_dryrun_run run = {.ended = true, .needs = needs, .need_count = 2};
    char *const command[] = {"train", NULL};
    const struct gp_dryrun_answer answer = {.command = command, .runs = &run, .run_count = 1};
    char *text = NULL;
    size_t bytes = 0;
    struct gp_text_page page = {.out = open_memstream(&text, &bytes), .width = 100};
    gp_text_dryrun(&page, &answer);
    fclose(page.out);
    return text;
}

static void expect_ended(uint32_t first, uint32_t second, const char *what)
{
    char *text = ended(first, second);
    cr_expect(strstr(text, what), "no '%s' in: %s", what, text);
    free(text);
}

Test(dryrun_text, steps_of_a_run_that_was_ended)
{
    expect_ended(3, 0, "CMD was ended after 3 steps, when");
    expect_ended(0, 2, "CMD was ended after 2 steps, when");
    expect_ended(1, 1, "CMD was ended after 1 step, when");
    expect_ended(0, 0, "The whole recording tells no steps, so a later peak may be missing");
    char *text = ended(0, 0);
    cr_expect(!strstr(text, "0 steps"), "%s", text);
    free(text);
}
