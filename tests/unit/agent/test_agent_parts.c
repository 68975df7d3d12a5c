/* SPDX-License-Identifier: MIT
 *
 * test_agent_parts.c: tests the agent's small parts in isolation: its log, its messages to the
 * service manager, and the handling of failed allocations in untrusted records.
 */
#include <agent/failures.h>
#include <agent/internal.h>
#include <gpuprof/maps.h>
#include <gpuprof/wire.h>
#include <read/common/agentlog.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define RECORD_EVENTS 256u

/* ---- captured stderr --------------------------------------------------------------------------------------------- */

static int caught = -1, stderr_before = -1;

static void catch (int fd)
{
    caught = fd;
    stderr_before = dup(STDERR_FILENO);
    cr_assert(dup2(caught, STDERR_FILENO) >= 0);
}

static void catch_memory(void)
{
    catch (memfd_create("log", MFD_CLOEXEC));
}

/* Restores stderr, so that a failed assertion is visible. */
static char *caught_text(void)
{
    static char text[1 << 17];
    dup2(stderr_before, STDERR_FILENO);
    close(stderr_before);
    ssize_t n = pread(caught, text, sizeof(text) - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static unsigned lines_with(const char *text, const char *word)
{
    unsigned count = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        count++;
    return count;
}

/* ---- log --------------------------------------------------------------------------------------------------------- */

Test(agent_log, writes_lines_up_to_its_level)
{
    catch_memory();
    unsetenv("JOURNAL_STREAM");
    gp_agent_log_open(GP_AGENTLOG_INFO);
    errno = 7;
    gp_agent_log(GP_AGENTLOG_INFO, "one %d", 1);
    gp_agent_log(GP_AGENTLOG_DEBUG, "two");
    int left = errno;
    cr_assert_str_eq(caught_text(), "gpuprof: agent: one 1\n");
    cr_assert_eq(left, 7);
}

Test(agent_log, uses_the_journals_priorities)
{
    struct stat about;
    char stream[64];
    catch_memory();
    fstat(caught, &about);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)about.st_dev, (unsigned long long)about.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    gp_agent_log_open(GP_AGENTLOG_DEBUG);
    gp_agent_log(GP_AGENTLOG_WARNING, "w");
    gp_agent_log(GP_AGENTLOG_DEBUG, "d");
    /* stderr was redirected after the journal's stream was opened, so the plain format is used. */
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)about.st_dev,
             (unsigned long long)about.st_ino + 1);
    setenv("JOURNAL_STREAM", stream, 1);
    gp_agent_log_open(GP_AGENTLOG_INFO);
    gp_agent_log(GP_AGENTLOG_WARNING, "w");
    cr_assert_str_eq(caught_text(), "<4>w\n<7>d\ngpuprof: agent: w\n");
}

Test(agent_log, a_long_line_is_cut)
{
    static char words[5000];
    memset(words, 'x', sizeof(words) - 1);
    catch_memory();
    unsetenv("JOURNAL_STREAM");
    gp_agent_log_open(GP_AGENTLOG_INFO);
    gp_agent_log(GP_AGENTLOG_INFO, "%s", words);
    gp_agent_log(GP_AGENTLOG_INFO, "next");
    char *text = caught_text(), *end = strchr(text, '\n');
    cr_assert(end != NULL && end - text > 500 && end - text < 2000);
    cr_assert_str_eq(end, "\ngpuprof: agent: next\n");
}

/* If the pipe is full, the writer does not wait, and the number of lost lines is logged once there
 * is room. */
Test(agent_log, a_full_pipe_loses_lines_and_reports_it, .timeout = 20)
{
    int ends[2];
    static char read_back[1 << 17];
    cr_assert(pipe2(ends, O_CLOEXEC) == 0);
    unsetenv("JOURNAL_STREAM");
    gp_agent_log_open(GP_AGENTLOG_INFO);
    catch (ends[1]);
    for (int i = 0; i < 5000; i++)
        gp_agent_log(GP_AGENTLOG_INFO, "line %d", i);
    ssize_t first = read(ends[0], read_back, sizeof(read_back));
    gp_agent_log(GP_AGENTLOG_INFO, "after");
    ssize_t second = read(ends[0], read_back + first, sizeof(read_back) - 1 - (size_t)first);
    caught_text();
    cr_assert(first > 0 && second > 0);
    read_back[first + second] = '\0';
    unsigned said = lines_with(read_back, "agent: line "), lost = 0;
    char *note = strstr(read_back, "log lines were dropped");
    cr_assert(note != NULL && lines_with(read_back, "log lines were dropped") == 1);
    while (note > read_back && note[-1] != '\n')
        note--;
    cr_assert(sscanf(note, "gpuprof: agent: %u log lines", &lost) == 1);
    cr_assert_eq(said + lost, 5000u, "%u said, %u lost", said, lost);
    cr_assert(lost > 0);
    cr_assert_str_eq(read_back + first + second - strlen("gpuprof: agent: after\n"), "gpuprof: agent: after\n");
}

/* ---- notify ------------------------------------------------------------------------------------------------------ */

static int manager(const char *name, char *got, size_t got_bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    memcpy(address.sun_path, name, length);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    cr_assert(bind(fd, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (name[0] != '@'))) == 0);
    setenv("NOTIFY_SOCKET", name, 1);
    int sent = gp_agent_notify("READY=1\nSTATUS=%d of %s", 3, "them");
    ssize_t n = recv(fd, got, got_bytes - 1, 0);
    got[n < 0 ? 0 : n] = '\0';
    close(fd);
    if (name[0] == '/')
        unlink(name);
    return sent;
}

Test(agent_notify, tells_the_manager)
{
    char got[256], name[64];
    snprintf(name, sizeof(name), "/tmp/gpuprof-test-notify-%d", (int)getpid());
    cr_assert_eq(manager(name, got, sizeof(got)), 0);
    cr_assert_str_eq(got, "READY=1\nSTATUS=3 of them");
    cr_assert(gp_agent_notify("WATCHDOG=1") < 0, "the manager has ended and notify does not fail");
    snprintf(name, sizeof(name), "@gpuprof-test-notify-%d", (int)getpid());
    cr_assert_eq(manager(name, got, sizeof(got)), 0);
    cr_assert_str_eq(got, "READY=1\nSTATUS=3 of them");
    unsetenv("NOTIFY_SOCKET");
    cr_assert_eq(gp_agent_notify("READY=1"), 0, "no manager is an error");
    char longer[200];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[0] = '/';
    longer[199] = '\0';
    setenv("NOTIFY_SOCKET", longer, 1);
    cr_assert_eq(gp_agent_notify("READY=1"), 0, "an invalid address is an error");
}

Test(agent_notify, watchdog)
{
    char pid[16];
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    cr_assert_eq(gp_agent_watchdog_ns(), 0u);
    setenv("WATCHDOG_USEC", "30000000", 1);
    cr_assert_eq(gp_agent_watchdog_ns(), 15000000000u);
    setenv("WATCHDOG_PID", "1", 1);
    cr_assert_eq(gp_agent_watchdog_ns(), 0u, "another's watchdog");
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    cr_assert_eq(gp_agent_watchdog_ns(), 15000000000u);
    setenv("WATCHDOG_USEC", "30 s", 1);
    cr_assert_eq(gp_agent_watchdog_ns(), 0u);
    setenv("WATCHDOG_USEC", "99999999999999999999", 1);
    cr_assert_eq(gp_agent_watchdog_ns(), 0u);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

struct record {
    struct gp_map_record head;
    struct gp_wire_event events[RECORD_EVENTS];
};

static size_t bytes_of(uint32_t events)
{
    return sizeof(struct gp_map_record) + events * sizeof(struct gp_wire_event);
}

static struct record record_of(uint64_t cgroup_id, uint32_t events)
{
    struct record record = {
        .head = {.cgroup_id = cgroup_id, .tgid = 4000000, .uid = 1000, .comm = "py\033[2Jthon", .count = events}};
    for (uint32_t i = 0; i < events; i++)
        record.events[i] = (struct gp_wire_event){.type = GP_EVENT_ALLOC, .bytes = 4096};
    return record;
}

static void fail(struct record *record, uint32_t index, uint64_t bytes)
{
    record->events[index] = (struct gp_wire_event){.type = GP_EVENT_OOM, .bytes = bytes, .device = 3, .error = 2};
}

static struct gp_failures *failures_begin(void)
{
    struct gp_failures *failures = NULL;
    unsetenv("JOURNAL_STREAM");
    gp_agent_log_open(GP_AGENTLOG_INFO);
    cr_assert_eq(gp_failures_open(&failures, NULL), 0);
    return failures;
}

Test(agent_failures, a_failure_is_one_line)
{
    struct gp_failures *failures = failures_begin();
    struct record record = record_of(1ull << 40, 8);
    fail(&record, 5, 123456789012ull);
    catch_memory();
    gp_failures_take(failures, &record, bytes_of(8));
    fail(&record, 5, 0);
    record.events[5].device = UINT8_MAX;
    gp_failures_take(failures, &record, bytes_of(8));
    char *text = caught_text();
    struct gp_failures_count count = gp_failures_count(failures);
    gp_failures_close(failures);
    cr_assert_eq(lines_with(text, "\n"), 2u, "%s", text);
    cr_assert(strstr(text, "allocation failed: pid 4000000 (py?[2Jthon) in cgroup 1099511627776 requested 123456789012 "
                           "bytes on its GPU 3: error 2\n"),
              "%s", text);
    cr_assert(strstr(text, "requested memory on an unknown GPU: error 2\n"), "%s", text);
    cr_assert(count.records == 2 && count.events == 16 && count.failures == 2 && count.suppressed == 0);
}

/* In a flood each container has ten lines and all together a hundred; suppressed lines are counted
 * and logged. */
Test(agent_failures, a_flood_is_logged_in_few_lines, .timeout = 20)
{
    struct gp_failures *failures = failures_begin();
    struct record record = record_of(1ull << 40, RECORD_EVENTS);
    for (uint32_t i = 0; i < RECORD_EVENTS; i++)
        fail(&record, i, 1);
    catch_memory();
    gp_failures_take(failures, &record, bytes_of(RECORD_EVENTS));
    for (uint64_t other = 1; other <= 40; other++) {
        struct record small = record_of((1ull << 40) + other, 5);
        for (uint32_t i = 0; i < 5; i++)
            fail(&small, i, 2);
        gp_failures_take(failures, &small, bytes_of(5));
    }
    struct gp_failures_count count = gp_failures_count(failures);
    usleep(1100000);
    gp_failures_turn(failures);
    usleep(1100000);
    gp_failures_turn(failures); /* no new failures: no further line */
    struct record after = record_of(1ull << 40, 1);
    fail(&after, 0, 3);
    gp_failures_take(failures, &after, bytes_of(1));
    char *text = caught_text();
    gp_failures_close(failures);
    unsigned flooder = lines_with(text, "in cgroup 1099511627776 requested 1 "),
             all = lines_with(text, "allocation failed:");
    cr_assert_eq(count.failures, RECORD_EVENTS + 200u);
    /* On a slow machine a second may end in the middle: then there are two of each. */
    cr_assert(flooder == 10 || flooder == 20, "%u", flooder);
    cr_assert(all == 101 || all == 201, "%u", all);
    cr_assert_eq(count.failures - count.suppressed, all - 1);
    cr_assert(strstr(text, "requested 3 bytes"), "no line in a new second");
    unsigned long long told = 0;
    for (char *at = text; (at = strstr(at, "suppressed ")); at++)
        told += strtoull(at + strlen("suppressed "), NULL, 10);
    cr_assert_eq(told, count.suppressed, "%llu told of %llu", told, (unsigned long long)count.suppressed);
}

Test(agent_failures, claims_are_checked_against_the_length)
{
    struct gp_failures *failures = failures_begin();
    struct record record = record_of(1, RECORD_EVENTS);
    for (uint32_t i = 0; i < RECORD_EVENTS; i++)
        fail(&record, i, 1);
    catch_memory();
    /* Each record is on the heap with exactly its size, so the sanitizer detects reads beyond it. */
    static const uint32_t claims[] = {0, 1, 2, 7, 8, 9, 255, 256, 257, 1u << 26, 1u << 31, UINT32_MAX};
    uint64_t want_broken = 0, want_events = 0, looks = 0;
    for (size_t bytes = 0; bytes <= bytes_of(9); bytes += 4) {
        for (size_t c = 0; c < sizeof(claims) / sizeof(claims[0]); c++, looks++) {
            record.head.count = claims[c];
            void *exact = malloc(bytes ? bytes : 1);
            memcpy(exact, &record, bytes);
            gp_failures_take(failures, exact, bytes);
            free(exact);
            bool holds = bytes >= bytes_of(0) && bytes_of(0) + (uint64_t)claims[c] * 64 <= bytes;
            want_broken += !holds;
            want_events += holds ? claims[c] : 0;
        }
    }
    caught_text();
    struct gp_failures_count count = gp_failures_count(failures);
    gp_failures_close(failures);
    cr_assert(want_broken > 0 && want_events > 0);
    cr_assert_eq(count.records, looks);
    cr_assert_eq(count.malformed, want_broken);
    cr_assert_eq(count.events, want_events);
    cr_assert_eq(count.failures, want_events);
}
