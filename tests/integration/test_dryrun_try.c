/* SPDX-License-Identifier: MIT
 *
 * test_dryrun_try.c: `gpuprof dryrun --try` as a user and a script see it: changes that a program says it can have, in
 * the place of the hook of Python programs, and what each saves.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integration/dryruncase.h"

TestSuite(dryrun_try, .init = work_begin, .fini = work_end, .timeout = 120);

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

Test(dryrun_try, changes_are_to_programs_of_pytorch)
{
    dryrun("--gpu=t4 --try -- %s mib=64", 0);
    SAYS("nothing was tried: CMD loads no PyTorch");
    json_t *top = dryrun_json("--gpu=t4 --try=loss,checkpoint --json -- %s mib=64", 0);
    cr_expect_eq(json_array_size(json_object_get(top, "tried")), 0);
    json_decref(top);
    top = dryrun_json("--gpu=t4 --json -- %s mib=64", 0);
    cr_expect(json_is_null(json_object_get(top, "tried")));
    json_decref(top);
    dryrun("--gpu=t4 --try=magic -- %s mib=64", 2);
    cr_expect(strstr(said.err, "--try=magic: it takes allocator, checkpoint, loss"));
    dryrun("--gpu=t4,a100-40g --try -- %s mib=64", 2);
    cr_expect(strstr(said.err, "--try: name one GPU"));
}

/* A program that says what could be changed, as the hook of Python does, and takes less with the change. */
#define CHANGEABLE                                                                                                     \
    "f() { printf '%%s\t%%s\t%%s\t%%s\n' \"$@\" >>\"$GPUPROF_SIM_TRY_FOUND\"; }; f torch torch '' ''\n"                \
    "mib=2048\n"                                                                                                       \
    "case $GPUPROF_SIM_TRY in\n"                                                                                       \
    "'') f can checkpoint checkpoint=a:Block 'checkpoint Block'; f can loss loss=8 'chunks'; f cannot offload '' no\n" \
    "    f can optimizer optimizer=fused unmet; f can magic magic=1 magic;;\n"                                         \
    "checkpoint=a:Block) mib=512; f did checkpoint checkpoint=a:Block '';;\n"                                          \
    "loss=8) f did loss loss=8 ''; f note loss loss=8 'on rank 0'; mib=1536;;\n"                                       \
    "'checkpoint=a:Block;loss=8') f did checkpoint checkpoint=a:Block ''; f did loss loss=8 ''; mib=256;;\n"           \
    "esac\n"                                                                                                           \
    "exec %s mib=$mib\n"

static const char *tried_text(json_t *top, size_t i, const char *key)
{
    return json_string_value(json_object_get(at(top, "tried", i), key));
}

Test(dryrun_try, changes_are_run_and_sorted)
{
    char path[160], arguments[320], text[4096];
    snprintf(path, sizeof(path), "%s/changeable", folder);
    left[0] = "changeable";
    snprintf(text, sizeof(text), CHANGEABLE, path_program("job"));
    write_file(path, text);
    snprintf(arguments, sizeof(arguments), "--gpu=t4 --memory=1400MiB --try --json -- sh %s", path);
    json_t *top = dryrun_json(arguments, 3); /* %s: none */
    cr_assert_eq(json_array_size(json_object_get(top, "tried")), 5);
    cr_expect_str_eq(tried_text(top, 0, "name"), "combination");
    cr_expect_str_eq(tried_text(top, 1, "spec"), "checkpoint=a:Block");
    cr_expect_str_eq(tried_text(top, 2, "spec"), "loss=8");
    cr_expect_str_eq(tried_text(top, 2, "note"), "on rank 0");
    cr_expect_null(tried_text(top, 1, "note"));
    /* job takes a quarter more than mib= says */
    cr_expect_eq(number(at(top, "tried", 1), "saved_bytes"), 1920 * MIB);
    cr_expect_eq(number(at(top, "tried", 2), "saved_bytes"), 640 * MIB);
    cr_expect(json_is_true(json_object_get(at(top, "tried", 1), "fits")));
    cr_expect(json_is_false(json_object_get(at(top, "tried", 2), "fits")));
    for (size_t i = 3; i < 5; i++) /* what the run did not meet, and what could not be */
        cr_expect_str_eq(tried_text(top, i, "status"), "not possible");
    json_decref(top);
    snprintf(arguments, sizeof(arguments), "--gpu=t4 --memory=1400MiB --try=loss -- sh %s", path);
    dryrun(arguments, 3);
    SAYS("none of them makes it fit t4");
    cr_expect_null(strstr(said.out, "Block"));
    snprintf(arguments, sizeof(arguments), "--gpu=t4 --memory=1400MiB --try -- sh %s", path);
    dryrun(arguments, 3);
    SAYS("fits t4 with: checkpoint Block + chunks");
}

/* A run with a change that a signal ends, as PyTorch's threads may end it, is made once more, and that is said. */
Test(dryrun_try, a_change_whose_run_a_signal_ends)
{
    char path[160], arguments[320], text[4096], once[160];
    snprintf(path, sizeof(path), "%s/changeable", folder);
    snprintf(once, sizeof(once), "%s/once", folder);
    left[0] = "changeable", left[1] = "once";
    snprintf(text, sizeof(text),
             "f() { printf '%%s\t%%s\t%%s\t%%s\n' \"$@\" >>\"$GPUPROF_SIM_TRY_FOUND\"; }; f torch torch '' ''\n"
             "case $GPUPROF_SIM_TRY in\n"
             "'') f can loss loss=8 chunks;;\n"
             "loss=8) f did loss loss=8 ''; [ -e %s ] || { : >%s; kill -ABRT $$; };;\n"
             "esac\n"
             "exec %s mib=64\n",
             once, once, path_program("job"));
    write_file(path, text);
    snprintf(arguments, sizeof(arguments), "--gpu=t4 --try --json -- sh %s", path);
    json_t *top = dryrun_json(arguments, 0);
    cr_assert_eq(json_array_size(json_object_get(top, "tried")), 1);
    cr_expect_str_eq(tried_text(top, 0, "status"), "ok");
    cr_expect_str_eq(tried_text(top, 0, "note"), "signal 6 ended the first run with it; this is of the second");
    json_decref(top);
    cr_expect(strstr(said.err, "signal 6 ended CMD with this change, and not without it: it runs once more with it"));
}

/* Of the same program with another setting of its allocator. */
Test(dryrun_try, at_least_is_no_more_than_with_a_setting_that_ran)
{
    char path[160], arguments[320], text[4096];
    long long least[2];
    snprintf(path, sizeof(path), "%s/changeable", folder);
    left[0] = "changeable";
    snprintf(text, sizeof(text),
             "f() { printf '%%s\t%%s\t%%s\t%%s\n' \"$@\" >>\"$GPUPROF_SIM_TRY_FOUND\"; }; f torch torch '' ''\n"
             "mib=512; case $GPUPROF_SIM_TRY in '') f can allocator allocator=less:1 less; f can loss loss=8 loss;;\n"
             "allocator=less:1) f did allocator allocator=less:1 ''; mib=256;; *) f did loss loss=8 ''; mib=64;; esac\n"
             "exec %s mib=$mib\n",
             path_program("job"));
    write_file(path, text);
    for (int i = 0; i < 2; i++) {
        snprintf(arguments, sizeof(arguments), "--gpu=t4 --try=%s --json -- sh %s", i ? "allocator" : "loss", path);
        json_t *top = dryrun_json(arguments, 0);
        least[i] = number(at(top, "gpus", 0), "smallest_bytes");
        json_decref(top);
    }
    cr_expect_geq(least[0], 640 * MIB);
    cr_expect_lt(least[1], 640 * MIB);
}

/* A change with which CMD fails before it is made is no change that met nothing. */
Test(dryrun_try, a_change_with_which_the_program_fails)
{
    char path[160], arguments[320], text[4096];
    snprintf(path, sizeof(path), "%s/changeable", folder);
    left[0] = "changeable";
    snprintf(text, sizeof(text),
             "f() { printf '%%s\t%%s\t%%s\t%%s\n' \"$@\" >>\"$GPUPROF_SIM_TRY_FOUND\"; }; f torch torch '' ''\n"
             "case $GPUPROF_SIM_TRY in '') f can loss loss=8 chunks;; *) %s mib=8; exit 5;; esac\n"
             "exec %s mib=64\n",
             path_program("job"), path_program("job"));
    write_file(path, text);
    snprintf(arguments, sizeof(arguments), "--gpu=t4 --try --json -- sh %s", path);
    json_t *top = dryrun_json(arguments, 0);
    cr_assert_eq(json_array_size(json_object_get(top, "tried")), 1);
    cr_expect_str_eq(tried_text(top, 0, "status"), "failed");
    cr_expect_str_eq(tried_text(top, 0, "why"), "CMD failed with status 5 with this change");
    json_decref(top);
}

/* The document in a page of at most 1 MiB. */
static json_t *page_document(const char *path)
{
    static const char mark[] = "<script type=\"application/json\" id=\"gpuprof-data\">";
    static char page[4 << 20];
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s", path);
    page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
    fclose(file);
    char *at = strstr(page, mark), *end = at ? strstr(at, "</script>") : NULL;
    cr_assert(end, "no document in %s", path);
    json_t *document = json_loadb(at + strlen(mark), (size_t)(end - at) - strlen(mark), 0, NULL);
    cr_assert(document);
    return document;
}

/* The page has the rows that the text and the JSON have, and no row where nothing was run. */
Test(dryrun_try, the_page_has_the_changes)
{
    char path[160], page[160], arguments[512], text[4096];
    snprintf(path, sizeof(path), "%s/changeable", folder);
    snprintf(page, sizeof(page), "%s/page.html", folder);
    left[0] = "changeable", left[1] = "page.html";
    snprintf(text, sizeof(text), CHANGEABLE, path_program("job"));
    write_file(path, text);
    snprintf(arguments, sizeof(arguments), "--gpu=t4 --memory=1400MiB --try --json -o %s -- sh %s", page, path);
    json_t *top = dryrun_json(arguments, 3), *document = page_document(page);
    json_t *of = json_object_get(document, "dryrun");
    cr_expect_eq(json_array_size(json_object_get(of, "tried")), 5);
    cr_expect(json_equal(json_object_get(of, "tried"), json_object_get(top, "tried")));
    cr_expect_eq(number(of, "needed_bytes"), number(at(top, "gpus", 0), "needed_bytes"));
    cr_expect(json_is_false(json_object_get(of, "fits")));
    json_decref(top);
    json_decref(document);
    snprintf(arguments, sizeof(arguments), "--gpu=t4 --try --force -o %s -- %%s mib=64", page);
    dryrun(arguments, 0);
    document = page_document(page);
    of = json_object_get(document, "dryrun");
    cr_expect(json_array_size(json_object_get(of, "tried")) == 0 && json_is_array(json_object_get(of, "tried")));
    cr_expect(strstr(json_string_value(json_object_get(of, "why")), "CMD loads no PyTorch"));
    json_decref(document);
    snprintf(arguments, sizeof(arguments), "--gpu=t4 --force -o %s -- %%s mib=64", page);
    dryrun(arguments, 0);
    document = page_document(page);
    of = json_object_get(document, "dryrun");
    cr_expect(json_is_null(json_object_get(of, "tried")) && json_is_null(json_object_get(of, "why")));
    json_decref(document);
}
