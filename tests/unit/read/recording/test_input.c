/* SPDX-License-Identifier: MIT
 *
 * test_input.c: files as people have them: compressed, as JSON, inside a page, from a pipe; logs of RMM; and what files of
 * a few bytes may cost.
 */
#include <lib/sanitized.h>

#include <cmd/cmd.h>
#include <convert/replay/replay.h>
#include <gpuprof/wire.h>
#include <lib/recfile.h>
#include <read/collect/watch.h>
#include <read/recording/pickleread.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <run/recorded.h>

#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static char why[256];

static struct gp_recording *parse(const void *data, size_t bytes)
{
    struct gp_recording *r = NULL;
    int rc = gp_recording_parse(&r, data, bytes, why, sizeof(why));
    cr_assert_eq(rc, 0, "%d: %s", rc, why);
    return r;
}

static void refused(const void *data, size_t bytes, const char *says)
{
    struct gp_recording *r = NULL;
    cr_expect_eq(gp_recording_parse(&r, data, bytes, why, sizeof(why)), -EPROTO);
    cr_expect(strstr(why, says), "'%s' does not say '%s'", why, says);
    for (const char *at = why; *at; at++)
        cr_expect((unsigned char)*at >= ' ', "a control character in '%s'", why);
}

static size_t gzip(const void *data, size_t bytes, uint8_t *to, size_t room)
{
    z_stream z = {
        .next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)bytes, .next_out = to, .avail_out = (uInt)room};
    cr_assert_eq(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
    cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

/* ---- forms of one snapshot --------------------------------------------------------------------------------------- */

#define SEGMENTS                                                                                                       \
    "[{\"device\": 0, \"address\": 139637976727552, \"total_size\": 2097152, \"stream\": 0, \"blocks\": "              \
    "[{\"address\":"                                                                                                   \
    " 139637976727552, \"size\": 1048576, \"requested_size\": 1000000, \"state\": \"active_allocated\", \"frames\":"   \
    " [{\"name\": \"f\", \"filename\": \"a\\u002epy\", \"line\": 3}]}]}]"
/* The same as pickle.dumps writes it. */
#define BASE64                                                                                                         \
    "gAJ9cQAoWAgAAABzZWdtZW50c3EBXXECfXEDKFgGAAAAZGV2aWNlcQRLAFgHAAAAYWRkcmVzc3EFigYAAAAAAH9YCgAAAHRvdGFsX3NpemVxBkoA" \
    "ACAAWAYAAABzdHJlYW1xB0sAWAYAAABibG9ja3NxCF1xCX1xCihoBYoGAAAAAAB/WAQAAABzaXplcQtKAAAQAFgOAAAAcmVxdWVzdGVkX3NpemVx" \
    "DEpAQg8AWAUAAABzdGF0ZXENWBAAAABhY3RpdmVfYWxsb2NhdGVkcQ5YBgAAAGZyYW1lc3EPXXEQfXERKFgEAAAAbmFtZXESWAEAAABmcRNYCAAA" \
    "AGZpbGVuYW1lcRRYBAAAAGEucHlxFVgEAAAAbGluZXEWSwN1YXVhdWFYDQAAAGRldmljZV90cmFjZXNxF11xGF1xGWF1Lg=="

static const char json[] =
    "{\"segments\": " SEGMENTS ", \"device_traces\": [[]], \"x\": [1.5e3, -2, true, null, \"\\ud83d\\ude00\"]}\n";
static const char page[] =
    "<!DOCTYPE html>\n<script>const local_files = [{\"name\": \"snapshot.pickle\", \"base64\": \"" BASE64
    "\"}]\n</script>\n";

static void check(struct gp_recording *r)
{
    cr_assert(r->from_torch && r->baseline_count == 2 && r->device_count == 1);
    const struct gp_rec_event *block = &r->baseline[r->baseline[0].type == GP_EVENT_ALLOC ? 0 : 1];
    cr_expect(block->address == 0x7f0000000000 && block->bytes == 1048576 && gp_rec_requested(block) == 1000000);
    const struct gp_rec_frame *frame = &r->frames[r->sites[block->site].first_frame];
    cr_expect_str_eq(r->strings + frame->function, "f");
    cr_expect_str_eq(r->strings + frame->file, "a.py");
    cr_expect_eq(frame->line, 3);
    gp_recording_free(r);
}

Test(input, a_snapshot_in_each_form)
{
    static uint8_t packed[4096];
    static const char *const forms[] = {json, SEGMENTS, page};
    for (size_t i = 0; i < GP_COUNT(forms); i++) {
        size_t bytes = strlen(forms[i]);
        check(parse(forms[i], bytes));
        size_t first = gzip(forms[i], bytes / 2, packed, sizeof(packed));
        size_t all = first + gzip(forms[i] + bytes / 2, bytes - bytes / 2, packed + first, sizeof(packed) - first);
        check(parse(packed, all)); /* of two members, as two files that were joined */
        refused(packed, all - 9, "damaged or cut");
    }
}

/* As in Python, they are numbers. */
Test(input, true_and_false_of_json)
{
    static const char *const words[] = {"false", "true"};
    for (unsigned i = 0; i < 2; i++) {
        char text[sizeof(SEGMENTS) + 8], *line;
        strcpy(text, SEGMENTS);
        line = strstr(text, "3}]}]}]");
        cr_assert_not_null(line);
        sprintf(line, "%s}]}]}]", words[i]);
        struct gp_recording *r = parse(text, strlen(text));
        cr_expect_eq(r->frames[r->frame_count - 1].line, i);
        gp_recording_free(r);
    }
}

static void write_to(int to, const char *text)
{
    cr_assert_eq(write(to, text, strlen(text)), (ssize_t)strlen(text));
    close(to);
}

Test(input, pipes_and_standard_input)
{
    struct gp_recording *r;
    struct gp_replay_trace trace;
    struct gp_replay_problem problem;
    for (int way = 0; way < 3; way++) {
        int ends[2];
        char path[64] = "-";
        cr_assert_eq(pipe(ends), 0);
        write_to(ends[1], json);
        if (way)
            snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
        else
            dup2(ends[0], STDIN_FILENO);
        if (way < 2) {
            cr_assert_eq(gp_recording_open(&r, path, why, sizeof(why), NULL, NULL), 0, "%s: %s", path, why);
            check(r);
        } else {
            cr_assert_eq(gp_replay_load(&trace, path, &problem), 0, "%s", problem.text);
            cr_expect(trace.blocks == 1 && trace.ops[0].bytes == 1000000);
            gp_replay_trace_free(&trace);
        }
        close(ends[0]);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

Test(input, what_is_not_read)
{
    refused("hello", 5, "gpuprof reads recordings of gpuprof, memory snapshots of PyTorch (pickle, JSON");
    refused("SQLite format 3\0.....", 20, "Nsight Systems");
    char ours[73] = "SQLite format 3";
    memcpy(ours + 68, "gprf", 4);
    refused(ours, 72, "an export of gpuprof");
    refused("event,time_ns,unix_ns,type\n", 27, "an export of gpuprof");
    refused("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}", 42, "an export of gpuprof");
    refused("device 0;main (a.c:3);[linear] 4096\n", 36, "an export of gpuprof");
    refused("host;main (a.c:3);[pinned] 4096\n", 33, "an export of gpuprof");
    refused("\xff\xff\xff\xff....gpuprof.events/1", 24, "an export of gpuprof");
    refused("\xff\xff\xff\xff....events", 14, "not a recording");
    refused("PAR1....", 8, "in Parquet");
    refused("device ;", 8, "not a recording");
    refused("device 1", 8, "not a recording");
    static const char lines[] = "{\"schema\":\"gpuprof.event/1\"}\n{}",
                      answer[] = "{\n \"schema\": \"gpuprof.report/1\"}";
    refused(lines, sizeof(lines) - 1, "an answer of gpuprof");
    refused(answer, sizeof(answer) - 1, "an answer of gpuprof");
    refused("{\"schema\":\"other\"}", 18, "JSON");
    refused("[ 1234][12:34:56:000001][info  ] text", 37, "debug log of RMM");
    refused("[12", 3, "JSON");
    refused("\x0a\x04\x08\x01\x10\x02\x0a\x04", 8, "a profile of pprof, but it is damaged or cut");
    refused("2\0002\rtext", 8, "a profile of pprof");
    refused("\x28\xb5\x2f\xfd....", 8, "zstd -d");
    refused("PK\3\4....", 8, "unzip");
    refused("<!DOCTYPE html><p>\"base64\": \"!\"", 31, "a page without a snapshot");
    refused("{\"traceEvents\": []}", 19, "a trace of events");
    refused("{\"segments\": [}", 15, "JSON, but at byte 14: not a JSON value");
    refused("{\"segments\": []} 1", 18, "something follows its end");
    refused("{\"a\": \"\\x\"}", 11, "wrong escape");
    refused("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 70, "deeper");
    refused("gpuprof.trace/1\nalloc 1 2\n", 26, "only 'gpuprof replay'");
    refused("", 0, "the file is empty");
}

Test(input, endless_files_are_not_read)
{
    struct gp_recording *r;
    struct gp_replay_trace trace;
    struct gp_replay_problem problem;
    struct rusage usage;
    cr_expect_eq(gp_recording_open(&r, "/dev/zero", why, sizeof(why), NULL, NULL), -EPROTO);
    const struct rlimit limit = {1ull << 30, 1ull << 30};
    if (!GP_TEST_SANITIZED) /* a sanitizer maps more */
        setrlimit(RLIMIT_DATA, &limit);
    cr_expect_eq(gp_replay_load(&trace, "/dev/zero", &problem), -EPROTO);
    getrusage(RUSAGE_SELF, &usage);
    cr_expect(GP_TEST_SANITIZED || usage.ru_maxrss < 256 << 10, "%ld", usage.ru_maxrss);
}

/* The end of a recording is written for a process that was killed, whose file somebody replaced by a pipe. */
Test(input, a_pipe_in_the_place_of_a_recording, .timeout = 20)
{
    struct gp_watched *watched = calloc(1, sizeof(*watched));
    uint64_t events, lost;
    char path[64];
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    watched->process.pid = child;
    snprintf(path, sizeof(path), "/tmp/gp-input-%d", (int)getpid());
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_not(gp_recorded_end(path, watched, &events, &lost));
    unlink(path);
    free(watched);
}

/* ---- logs of RMM ------------------------------------------------------------------------------------------------- */

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

Test(input, a_log_of_rmm_is_a_recording)
{
    static const char log[] = HEADER "140243915855680,23:59:59.000001,allocate,0x7f0000000000,1000,0x0\n"
                                     "140243915855681,23:59:59:5,allocate,0x7f0000001000,64,0x2\n" HEADER
                                     "140243915855680,00:00:00.000002,free,0x7f0000000000,1000,0x1\r\n"
                                     "140243915855680,00:00:01,allocate failure,(nil),5000,0x0\n"
                                     "140243915855680,00:00:01,free,0x7f0000002000,70,0x0\n";
    struct gp_recording *r = parse(log, sizeof(log) - 1);
    cr_assert(r->event_count == 5 && r->thread_count == 2 && r->device_count == 1 && r->complete && !r->from_torch);
    cr_expect(r->events[0].time_ns == 86399000001000 && r->events[1].time_ns == 86399500000000);
    cr_expect_eq(r->events[2].time_ns, 86400000002000, "the next day");
    cr_expect(r->peer[0] == 2 && r->events[1].thread == 1 && r->streams[r->events[1].stream] == 2);
    cr_expect(r->events[3].type == GP_EVENT_OOM && r->events[3].bytes == 5000);
    cr_expect(r->baseline_count == 1 && r->before_bytes == 70, "a block from before the log");
    cr_expect_str_eq(r->comm, "RMM log");
    gp_recording_free(r);
}

Test(input, a_log_may_end_in_a_line)
{
    static const char log[] = HEADER "1,10:00:00.1,allocate,0x10,1048576,0\n1,10:00:00.2,allocate,0x7f0000100000,10485";
    struct gp_recording *r = parse(log, sizeof(log) - 1);
    cr_expect(r->event_count == 1 && !r->complete);
    gp_recording_free(r);
    refused(HEADER "1,10:00:00.1,allocate,0x10\n", sizeof(HEADER) + 26, "line 2: not the six fields");
}

Test(input, text_of_a_log_is_cleaned)
{
    static const char log[] = HEADER "1,0,\033]0;title\a\033[31mred,0x10,5,0\n";
    refused(log, sizeof(log) - 1, "action '?]0;title??[31mred'");
}

Test(input, a_log_with_more_threads_than_a_replay_has)
{
    static char log[8192];
    struct gp_replay_trace trace;
    struct gp_replay_problem problem;
    int used = snprintf(log, sizeof(log), HEADER);
    for (unsigned i = 0; i < 80; i++)
        used += snprintf(log + used, sizeof(log) - (size_t)used, "%u,10:00:00.0,allocate,%u,512,0\n", 1000 + i, i + 1);
    cr_assert_eq(gp_replay_read(&trace, (const uint8_t *)log, (size_t)used, &problem), 0, "%s", problem.text);
    cr_expect(trace.blocks == 80 && trace.threads == GP_REPLAY_THREADS);
    gp_replay_trace_free(&trace);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

Test(input, one_address_on_two_devices)
{
    static const char text[] =
        "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 4096, \"size\": 512, \"time_us\": 1}],"
        "[{\"action\": \"alloc\", \"addr\": 4096, \"size\": 700, \"time_us\": 1}]]}";
    struct gp_replay_trace trace;
    struct gp_replay_problem problem;
    cr_assert_eq(gp_replay_read(&trace, (const uint8_t *)text, sizeof(text) - 1, &problem), 0, "%s", problem.text);
    cr_expect(trace.blocks == 2 && trace.devices == 2);
    gp_replay_trace_free(&trace);
}

/* ---- what a small file costs ------------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static long resident_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

Test(input, pops_of_a_deep_stack_take_linear_time)
{
    const size_t count = 300000;
    struct gp_pickle_file file;
    uint8_t *data = malloc(2 * count + 4);
    memcpy(data, "\x80\2", 2);
    memset(data + 2, 'N', count);
    memset(data + 2 + count, '0', count - 1);
    data[1 + 2 * count] = '.';
    double began = seconds();
    cr_expect_eq(gp_pickle_read(&file, data, 2 + 2 * count), 0, "%s", file.why);
    cr_expect_lt(seconds() - began, 2.0);
    gp_pickle_free(&file);
    free(data);
}

Test(input, gaps_in_the_memo_take_no_memory)
{
    static uint8_t data[8192] = "\x80\2]";
    struct gp_pickle_file file;
    size_t put = 3;
    for (uint32_t i = 1; put + 6 < sizeof(data); i++, put += 5) {
        uint32_t index = i * 65536;
        data[put] = 'r';
        memcpy(data + put + 1, &index, sizeof(index));
    }
    data[put] = '.';
    cr_expect_eq(gp_pickle_read(&file, data, put + 1), -EINVAL);
    gp_pickle_free(&file);
    cr_expect_lt(resident_kib(), 128 << 10);
}

/* Rows of zeros, packed a thousandfold. */
Test(input, packed_rows_are_counted)
{
    static uint8_t zeros[1 << 20], packed[65536];
    struct recfile file;
    struct gp_recording *r = NULL;
    struct gp_format_head head = recfile_head_of(1, 1);
    size_t bytes = ZSTD_compress(packed, sizeof(packed), zeros, sizeof(zeros), 3);
    struct gp_format_block block = {.type = GP_BLOCK_THREADS,
                                    .coding = GP_CODING_ZSTD,
                                    .count = sizeof(zeros) / 2,
                                    .bytes = sizeof(zeros),
                                    .stored_bytes = (uint32_t)bytes};
    recfile_begin(&file);
    recfile_head(&file, &head);
    for (unsigned i = 0; i < 400; i++)
        recfile_block_as(&file, &block, packed);
    double began = seconds();
    cr_expect_eq(gp_recording_parse(&r, file.at, file.size, why, sizeof(why)), -EPROTO);
    cr_expect(strstr(why, "more rows than a recording of its size"), "%s", why);
    cr_expect_lt(seconds() - began, 2.0);
    free(file.at);
}

Test(input, what_is_packed_too_well_is_refused)
{
    const size_t bytes = 64u << 20;
    uint8_t *zeros = calloc(1, bytes), *packed = malloc(1 << 20);
    size_t used = gzip(zeros, bytes, packed, 1 << 20);
    free(zeros);
    refused(packed, used, "more than a hundredfold");
    free(packed);
}
