/* SPDX-License-Identifier: MIT
 * test_cli_export_arrow.c: runs `gpuprof export --format=arrow` on folders of recordings: what is written where, what is left
 * out, and that a run goes on where a killed one was.  What is in the tables: test_export.c.  Run by the unit tests. */
#include "cli.h"

#include <lib/recmake.h>
#include <lib/recsave.h>
#include <sys/file.h>
#include <utime.h>

static char folder[64], text[512];

static const char *in(const char *name)
{
    static char path[8][160];
    static unsigned next;
    char *at = path[next++ % 8];
    snprintf(at, 160, "%s/%s", folder, name);
    return at;
}

static int shell(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return system(text);
}

static void write_blocks(const char *name, int rank, uint32_t line, unsigned blocks)
{
    struct recmake *make = recmake_new(1 << 30);
    uint32_t site = recmake_site(make, GP_KIND_LINEAR, (struct recmake_frame[]){{"make", "a.py", line}, {0}});
    for (unsigned i = 0; i < blocks; i++)
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x7000000 + i * 4096, 4096, site);
    struct gp_recording *recording = recmake_done(make);
    recording->has_rank = rank >= 0;
    recording->rank = rank;
    recording->world_size = 4;
    cr_assert_eq(recsave(recording, in(name)), 0);
    gp_recording_free(recording);
}

static void write_rank(const char *name, int rank)
{
    write_blocks(name, rank, 7, 40);
}

static void begin(void)
{
    find_binary();
    snprintf(folder, sizeof(folder), "/tmp/gp-cli-arrow.XXXXXX");
    cr_assert(mkdtemp(folder));
    cr_assert_eq(mkdir(in("run"), 0755), 0);
    write_rank("run/x.rank0.gpuprof", 0);
    write_rank("run/x.rank1.gpuprof", 1);
    write_rank("run/x.rank2.gpuprof", 2);
}

static void end(void)
{
    cr_assert_eq(shell("rm -rf %s", folder), 0);
}

TestSuite(export_arrow, .init = begin, .fini = end, .timeout = 60);

static bool there(const char *table, const char *rest)
{
    snprintf(text, sizeof(text), "%s/out/%s/%s", folder, table, rest);
    return access(text, F_OK) == 0;
}

/* Each table of a recording is there; each file has the begin and the end of a stream. */
static void expect_whole(const char *job, const char *rank, const char *name)
{
    char rest[160];
    snprintf(rest, sizeof(rest), "job=%s/rank=%s/%s.arrows", job, rank, name);
    static const char *const tables[] = {"events",  "blocks", "sites",   "frames",  "marks",
                                         "samples", "sleeps", "devices", "threads", "job"};
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        cr_expect(there(tables[i], rest), "no %s/%s", tables[i], rest);
        cr_expect_eq(shell("f=%s/out/%s/%s; test $({ head -c 4 $f; tail -c 8 $f; } | od -An -tx1 | tr -d ' ') = "
                           "ffffffffffffffff00000000",
                           folder, tables[i], rest),
                     0, "%s/%s is no whole file", tables[i], rest);
    }
}

Test(export_arrow, says_what_is_wrong_with_its_options)
{
    expect(run("export x --format=arrow"), 2, NULL, "name a folder for the tables with -o");
    expect(run("export x --format=csv --table=events"), 2, NULL, "--table: for --format=arrow alone");
    expect(run("export x --format=csv --job=a"), 2, NULL, "--job: for --format=arrow alone");
    expect(run("export x --format=arrow --table=event -o y"), 2, NULL, "did you mean 'events'");
    expect(run("export x --format=arrow --job= -o y"), 2, NULL, "the name is empty");
    expect(run("export x --format=arrow -o y --job=%0300d", 0), 2, NULL, "more than 255 bytes");
    /* A name of the longest kind is one that a file can have, or it is refused: never a shorter one. */
    expect(run("export %s --format=arrow -o %s --job=%0251d", in("run"), in("long"), 0), 0, NULL, "3 written");
    expect(run("export %s --format=arrow -o %s --job=%0252d", in("run"), in("long"), 0), 1, NULL, "name too long");
    expect(run("export %s --format=csv", in("run")), 2, NULL, "is a folder");
    expect(run("export %s --format=arrow --table=events -o %s", in("run"), in("one")), 2, NULL, "is a folder");
}

Test(export_arrow, a_folder_of_recordings_is_a_folder_of_tables)
{
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "of 3 recordings 3 written\n");
    expect_whole("run", "0", "x.rank0");
    expect_whole("run", "1", "x.rank1");
    expect_whole("run", "2", "x.rank2");
    cr_expect_eq(shell("test $(find %s/out -type f | wc -l) = 31", folder), 0, "10 tables of 3, and the lock");
    expect(run("export %s --format=arrow -o %s", in("run/x.rank1.gpuprof"), in("out")), 0, "", "1 written");
    expect_whole("x", "1", "x.rank1");
    write_rank("y.ranking.rank2.gpuprof", 2);
    expect(run("export %s --format=arrow -o %s", in("y.ranking.rank2.gpuprof"), in("out")), 0, "", "1 written");
    expect_whole("y.ranking", "2", "y.ranking.rank2");
    expect(run("export %s --format=arrow -o %s --job=_a/b=c", in("run"), in("out")), 0, "", "3 written");
    expect_whole("%5Fa%2Fb%3Dc", "2", "x.rank2");
}

Test(export_arrow, the_rank_is_recorded_or_named_or_unknown)
{
    write_rank("run/y_rank17.gpuprof", -1);
    write_rank("run/z.gpuprof", -1);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "5 written");
    expect_whole("run", "17", "y_rank17");
    expect_whole("run", "__HIVE_DEFAULT_PARTITION__", "z");
}

Test(export_arrow, what_is_no_recording_is_named_left_out_and_counted)
{
    cr_assert_eq(shell("echo hello >%s/run/hello.gpuprof; head -c 100 %s/run/x.rank0.gpuprof >%s/run/cut.gpuprof",
                       folder, folder, folder),
                 0);
    struct result r = run("export %s --format=arrow -o %s", in("run"), in("out"));
    cr_expect(strstr(r.err, "hello.gpuprof: ") && strstr(r.err, "cut.gpuprof: "), "%s", r.err);
    expect(r, 0, "", "of 5 recordings 3 written, 2 left out\n");
    cr_expect(!there("job", "job=run/rank=__HIVE_DEFAULT_PARTITION__"));
    cr_assert_eq(shell("rm %s/run/x.*", folder), 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("none")), 1, "", "2 recordings 0 written, 2 left out");
}

/* A pipe that nobody writes into was waited for. */
Test(export_arrow, what_is_no_regular_file_is_left_out)
{
    cr_assert_eq(mkfifo(in("run/pipe.gpuprof"), 0600), 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "",
           "run/pipe.gpuprof: a pipe, not a regular file; it is left out");
    cr_assert_eq(shell("rm %s/run/x.*", folder), 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("none")), 1, "", "1 recordings 0 written, 1 left out");
}

/* As a damaged recording may have it: it ended the export of all recordings. */
Test(export_arrow, a_number_that_its_column_cannot_have_is_null)
{
    write_blocks("run/x.rank0.gpuprof", 0, UINT32_MAX, 40);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "of 3 recordings 3 written\n");
    expect_whole("run", "0", "x.rank0");
    cr_expect_eq(shell("cd tests/lib && PYTHONDONTWRITEBYTECODE=1 python3 -c \"import arrow_stream, sys\n"
                       "print([row['line'] for name in sys.argv[1:] for row in arrow_stream.read(name)[1]])\" "
                       "%s/out/frames/job=run/rank=[01]/x.rank?.arrows | grep -Fx '[None, 7]'",
                       folder),
                 0);
}

Test(export_arrow, a_second_run_writes_what_has_changed)
{
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "3 written\n");
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "0 written, 3 there already\n");
    write_rank("run/x.rank1.gpuprof", 3);
    struct utimbuf later = {time(NULL) + 2, time(NULL) + 2};
    cr_assert_eq(utime(in("run/x.rank1.gpuprof"), &later), 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "",
           "1 written, 1 of them in place of others with these names, 2 there already\n");
    expect_whole("run", "3", "x.rank1");
    cr_expect(!there("events", "job=run/rank=1/x.rank1.arrows"), "of the rank that it was before");
    cr_expect(!there("job", "job=run/rank=1/x.rank1.arrows"));
    expect(run("export %s --format=arrow -o %s --force", in("run"), in("out")), 0, "",
           "3 written, 3 of them in place of others with these names\n");
    /* Of another week, and older than what is there. */
    write_rank("run/x.rank0.gpuprof", 0);
    struct utimbuf before = {1000, 1000};
    cr_assert_eq(utime(in("run/x.rank0.gpuprof"), &before), 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "1 written, 1 of them in place");
    expect(run("export %s --format=arrow -o %s", in("run/x.rank7.gpuprof"), in("out")), 1, "", "1 left out");
    expect_whole("run", "2", "x.rank2");
}

/* It was of another rank when the run that wrote it was killed. */
Test(export_arrow, no_table_of_a_killed_run_is_left)
{
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "3 written\n");
    cr_assert_eq(shell("cd %s/out && rm job/job=run/rank=1/*", folder), 0);
    write_rank("run/x.rank1.gpuprof", 3);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "",
           "of 3 recordings 1 written, 2 there already\n");
    expect_whole("run", "3", "x.rank1");
    cr_expect(!there("events", "job=run/rank=1/x.rank1.arrows"), "of the rank that it was before");
}

/* The time of the recording does not tell which part of it is there. */
Test(export_arrow, a_part_is_not_taken_for_the_whole)
{
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "3 written\n");
    for (unsigned i = 0; i < 2; i++)
        expect(run("export %s --format=arrow -o %s --from=1us", in("run"), in("out")), 0, "",
               "3 written, 3 of them in place of others with these names\n");
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "",
           "3 written, 3 of them in place of others with these names\n");
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "0 written, 3 there already\n");
}

/* Each byte of the name has three in that of the tables, and the recordings after it are written. */
Test(export_arrow, a_name_that_is_too_long_is_left_out)
{
    char name[] =
        "run/a==========================================================================================.gpuprof";
    write_rank(name, 3);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "",
           "of 4 recordings 3 written, 1 left out\n");
    expect(run("export %s --format=arrow -o %s", in(name), in("one")), 1, "", "too long");
}

Test(export_arrow, a_run_goes_on_where_a_killed_one_was)
{
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "3 written\n");
    /* The run has its lock when it opens the pipe, and nothing is written into that. */
    cr_assert_eq(mkfifo(in("pipe"), 0600), 0);
    pid_t pid = fork();
    if (pid == 0) {
        execl(binary, binary, "export", in("pipe"), "--format=arrow", "-o", in("out"), NULL);
        _exit(98);
    }
    int writer = -1;
    for (unsigned i = 0; i < 3000 && (writer = open(in("pipe"), O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0; i++)
        usleep(10000);
    cr_assert_geq(writer, 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 1, "", "another 'gpuprof export' writes");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(writer);
    write_rank("run/x.rank9.gpuprof", 9);
    /* As a run leaves it that is killed while it writes. */
    cr_assert_eq(shell("cd %s/out && rm job/job=run/rank=1/* && cd events/job=run/rank=1 && "
                       "head -c 200 x.rank1.arrows >.x.rank1.arrows.part && rm x.rank1.arrows",
                       folder),
                 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "",
           "of 4 recordings 2 written, 2 there already\n");
    expect_whole("run", "1", "x.rank1");
    expect_whole("run", "9", "x.rank9");
    cr_expect_eq(shell("test -z \"$(find %s/out -name '*.part')\"", folder), 0, "a part is left");
}

/* The kernel ends the process that writes too large a table; as a file that was left out, it once was no failure. */
Test(export_arrow, a_recording_whose_process_was_killed_is_named_and_a_failure)
{
    write_blocks("run/x.rank1.gpuprof", 1, 7, 20000);
    cr_expect_eq(
        shell("ulimit -f 200; %s export %s/run --format=arrow -o %s/out 2>%s/said", binary, folder, folder, folder) >>
            8,
        1);
    cr_expect_eq(shell("grep -q 'x.rank1.gpuprof: the process that read it was ended by signal 25; it is left out' "
                       "%s/said && grep -q 'of 3 recordings 2 written, 1 left out$' %s/said",
                       folder, folder),
                 0);
    expect_whole("run", "0", "x.rank0");
    expect_whole("run", "2", "x.rank2");
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "1 written, 2 there already\n");
    expect_whole("run", "1", "x.rank1");
}

Test(export_arrow, a_folder_of_others_is_not_written_into)
{
    cr_assert_eq(mkdir(in("out"), 0755), 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 0, "", "3 written");
    cr_assert_eq(mkdir(in("other"), 0755), 0);
    cr_assert_eq(shell("echo mine >%s/other/file", folder), 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("other")), 1, "", "not written by 'gpuprof export'");
    cr_expect_eq(shell("test $(ls -A %s/other | wc -l) = 1", folder), 0);
    expect(run("export %s --format=arrow -o %s --force", in("run"), in("other")), 0, "", "3 written");
    expect(run("export %s --format=arrow -o %s", in("run"), in("other/file")), 1, "", "files in a folder");
    expect(run("export %s --format=arrow -o %s/no/out", in("run"), folder), 1, "", "cannot be made");
}

Test(export_arrow, one_table_is_a_stream)
{
    expect(run("export %s --format=arrow --table=job -o %s", in("run/x.rank0.gpuprof"), in("one")), 0, "", "written");
    cr_expect_eq(shell("test $(head -c 4 %s/one | od -An -tx1 | tr -d ' ') = ffffffff", folder), 0);
    expect(run("export %s --format=arrow --table=job -o %s", in("run/x.rank0.gpuprof"), in("one")), 0, "", "written");
}

Test(export_arrow, what_cannot_be_written_is_an_error)
{
    cr_assert_eq(mkdir(in("out"), 0755), 0);
    cr_assert_eq(shell("cd %s/out && touch .gpuprof-export events", folder), 0);
    expect(run("export %s --format=arrow -o %s", in("run"), in("out")), 1, "", "cannot be written");
    cr_expect(!there("job", "job=run"));
}
