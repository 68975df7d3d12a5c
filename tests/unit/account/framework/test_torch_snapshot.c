/* SPDX-License-Identifier: MIT
 *
 * test_torch_snapshot.c: PyTorch's snapshot of its blocks (src/account/framework/survey.c) and the request for it
 * (survey.c), with a stand-in for Python (tests/lib/fakepython.h): what is reported of each form of the snapshot, and what
 * becomes of it when any call of Python's fails, or the library is detached meanwhile. The accounts are noted as text.
 */
#include "account/feed/survey.h"
#include "account/framework/framework.h"
#include "base/thread.h"
#include "base/worker.h"
#include "lib/standin.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <lib/fakepython.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(torch_snapshot, .timeout = 60);

/* ---- the accounts, the interpreter's symbols and the workers ------------------------------------------------------ */

static char notes[4096];
static bool is_late, is_reported, begins, is_whole, has_python;
static bool moves_on; /* another thread changes the state first */
static const char *lacks, *has_too;
static uint32_t state;
static int worker_error, workers;

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    size_t used = strlen(notes);
    va_list args;
    va_start(args, format);
    vsnprintf(notes + used, sizeof(notes) - used, format, args);
    va_end(args);
}

STANDIN_SAYS(bool, gp_feed_survey_late, is_late, void);
STANDIN_SAYS(bool, gp_feed_survey_reported, is_reported, void);
STANDIN_SAYS(uint32_t, gp_feed_survey_state, state, void);

STANDIN(bool, gp_feed_survey_say, uint32_t from, uint32_t to, const char *text)
{
    if (from != state || moves_on)
        return false;
    state = to;
    note("%u%s%s\n", to, text ? " " : "", text ? text : "");
    return true;
}

STANDIN(bool, gp_feed_survey_begin, void)
{
    cr_expect(gp_thread.inside);
    return begins;
}

STANDIN(void, gp_feed_survey_segment, const struct gp_survey_piece *s)
{
    cr_expect(gp_thread.inside);
    note("segment %d %lx+%lx on %lx%s\n", s->device, s->address, s->bytes, s->stream, s->growable ? " grows" : "");
}

STANDIN(void, gp_feed_survey_block, const struct gp_survey_piece *b)
{
    cr_expect(gp_thread.inside);
    note("block %d %lx+%lx of %lx on %lx\n", b->device, b->address, b->bytes, b->requested_bytes, b->stream);
}

STANDIN(bool, gp_feed_survey_end, bool complete, uint64_t took_ns)
{
    cr_expect(gp_thread.inside);
    note("end %d%s\n", complete, took_ns < 60000000000ull ? "" : " long");
    return complete && is_whole;
}

STANDIN(bool, gp_python_symbols, const char *const *names, void **out, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        out[i] = fakepython_symbol(names[i]);
        if (lacks && strcmp(names[i], lacks) == 0)
            out[i] = NULL;
        if (has_too && strcmp(names[i], has_too) == 0)
            out[i] = fakepython_symbol("Py_IsFinalizing");
    }
    return has_python;
}

STANDIN(int, gp_worker_start, void *(*main)(void *), const char *name)
{
    cr_expect_leq(strlen(name), 15);
    workers++;
    if (!worker_error)
        cr_expect_null(main(NULL));
    return worker_error;
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

static struct gp_python_api python;

static void put_number(gp_python_ref dict, const char *key, unsigned long long number)
{
    fakepython_put(dict, key, fakepython_number(number));
}

static gp_python_ref segment(gp_python_ref segments, unsigned device, unsigned long long address, bool grows)
{
    gp_python_ref one = fakepython_dict();
    put_number(one, "device", device);
    if (address)
        put_number(one, "address", address);
    put_number(one, "total_size", 0x200000);
    put_number(one, "stream", 0x50 + device);
    put_number(one, "is_expandable", grows);
    fakepython_put(one, "blocks", fakepython_list());
    fakepython_append(segments, one);
    return one;
}

/* 0: no such entry. */
static void block(gp_python_ref of, unsigned long long address, unsigned long long size, unsigned long long requested,
                  const char *name)
{
    gp_python_ref one = fakepython_dict();
    if (address)
        put_number(one, "address", address);
    put_number(one, "size", size);
    if (requested)
        put_number(one, "requested_size", requested);
    fakepython_put(one, "state", name ? fakepython_text(name) : NULL);
    fakepython_append(of, one);
}

static gp_python_ref blocks_of(gp_python_ref of)
{
    return python.PyDict_GetItemString(of, "blocks");
}

/* A program with PyTorch and a snapshot of two segments; returns the list. */
static gp_python_ref prepare(bool in_dict)
{
    fakepython_new(&python);
    notes[0] = '\0';
    gp_python_ref inner = fakepython_dict(), cuda = fakepython_dict(), segments = fakepython_list();
    fakepython.modules = fakepython_dict();
    fakepython_put(fakepython.modules, "torch._C", inner);
    fakepython_put(fakepython.modules, "torch.cuda", cuda);
    put_number(cuda, "_initialized", 1);
    fakepython_put(inner, "_cuda_memorySnapshot", fakepython_function());
    gp_python_ref one = blocks_of(segment(segments, 1, 0x7000, false));
    block(one, 0, 0x200, 0x1f0, "active_allocated");
    block(one, 0, 0x400, 0, "inactive");
    block(one, 0, 0x600, 0x600, "active_pending_free");
    block(one, 0, 0x800, 0x801, "active_allocated");
    one = blocks_of(segment(segments, 63, 0x90000, true));
    block(one, 0x90100, 0x100, 0, "active_allocated");
    block(one, 0, 0x300, 0x1, "active_allocated");
    block(one, 0, 0x10, 0x1, NULL);
    fakepython.snapshot = segments;
    if (in_dict) {
        fakepython.snapshot = fakepython_dict();
        fakepython_put(fakepython.snapshot, "segments", segments);
    }
    fakepython.calls = 0;
    return segments;
}

#define WHOLE_1 "segment 1 7000+200000 on 51\nblock 1 7000+200 of 1f0 on 51\nblock 1 7c00+800 of 800 on 51\n"
#define WHOLE_2 "segment 63 90000+200000 on 8f grows\nblock 63 90100+100 of 100 on 8f\nblock 63 90200+300 of 1 on 8f\n"
#define WHOLE   WHOLE_1 WHOLE_2

static uint16_t allowed = 7;

static bool enter_7(uint16_t life)
{
    return life == allowed && gp_thread_enter();
}

static enum gp_snapshot_end snapshot(char *text)
{
    memset(text, 0, GP_SNAPSHOT_TEXT);
    enum gp_snapshot_end end = gp_survey_torch_snapshot(&python, enter_7, 7, text);
    cr_expect(!gp_thread.inside);
    cr_expect_eq(fakepython.owned, 0, "%ld references", fakepython.owned);
    return end;
}

/* Each version's arguments, with and without the dictionary around the list. */
Test(torch_snapshot, every_form)
{
    char text[GP_SNAPSHOT_TEXT];
    cr_assert_eq(gp_thread_life_start(), 0);
    for (int accepts = 0; accepts < 4; accepts++)
        for (int in_dict = 0; in_dict < 2; in_dict++) {
            prepare(in_dict);
            fakepython.accepts = accepts;
            cr_expect_eq(snapshot(text), accepts < 3 ? GP_SNAPSHOT_ALL : GP_SNAPSHOT_FAILED);
            cr_expect_str_eq(notes, accepts < 3 ? WHOLE : "", "%s", notes);
            cr_expect_str_eq(text, accepts < 3 ? "" : "PyTorch's snapshot failed: an exception");
            cr_expect_eq(fakepython_raised(), FAKEPYTHON_NONE);
        }
}

/* A snapshot without segments, and a segment without blocks, are whole. */
Test(torch_snapshot, empty_lists)
{
    char text[GP_SNAPSHOT_TEXT];
    cr_assert_eq(gp_thread_life_start(), 0);
    segment(prepare(true), 2, 0x100, false);
    cr_expect_eq(snapshot(text), GP_SNAPSHOT_ALL);
    cr_expect_str_eq(notes, WHOLE "segment 2 100+200000 on 52\n", "%s", notes);
    prepare(true);
    fakepython.snapshot = fakepython_list();
    cr_expect_eq(snapshot(text), GP_SNAPSHOT_ALL);
    cr_expect_str_eq(notes, "");
}

Test(torch_snapshot, without_pytorch)
{
    static const char *const lacking[] = {"torch._C", "torch.cuda"};
    char text[GP_SNAPSHOT_TEXT];
    for (unsigned i = 0; i < 2; i++) {
        prepare(true);
        fakepython.modules = fakepython_dict();
        fakepython_put(fakepython.modules, lacking[i], fakepython_dict());
        cr_expect_eq(snapshot(text), GP_SNAPSHOT_ABSENT);
        cr_expect_str_eq(text, "PyTorch is not loaded there");
    }
    prepare(true);
    fakepython.modules = NULL;
    cr_expect_eq(snapshot(text), GP_SNAPSHOT_ABSENT);
    prepare(true);
    gp_python_ref inner = fakepython_dict(), cuda = fakepython_dict();
    fakepython.modules = fakepython_dict();
    fakepython_put(fakepython.modules, "torch._C", inner);
    fakepython_put(fakepython.modules, "torch.cuda", cuda);
    fakepython.said = "no attribute\nsecond line";
    cr_expect_eq(snapshot(text), GP_SNAPSHOT_FAILED);
    cr_expect_str_eq(text, "PyTorch's snapshot failed: no attribute");
    cr_expect_eq(fakepython_raised(), FAKEPYTHON_NONE);
    static const char *const steps[] = {"PyObject_Str", "PyUnicode_AsUTF8"};
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) { /* the text of the exception cannot be had */
        fakepython.fail = 5 + i;
        fakepython.fail_with = FAKEPYTHON_EXCEPTION;
        cr_expect_eq(snapshot(text), GP_SNAPSHOT_FAILED);
        cr_expect_str_eq(text, "PyTorch's snapshot failed: an exception", "%s", steps[i]);
        cr_expect_eq(fakepython_raised(), FAKEPYTHON_NONE, "%s", steps[i]);
    }
    put_number(cuda, "_initialized", 0);
    cr_expect_eq(snapshot(text), GP_SNAPSHOT_ABSENT);
    cr_expect_str_eq(text, "PyTorch has not used CUDA yet");
    cr_expect_str_eq(notes, "");
}

/* A snapshot of another form is refused, after the segments that were sound. */
Test(torch_snapshot, other_forms)
{
    char text[GP_SNAPSHOT_TEXT];
    cr_assert_eq(gp_thread_life_start(), 0);
    for (unsigned way = 0; way < 5; way++) {
        gp_python_ref segments = prepare(true), last = way == 1 ? fakepython_dict() : segment(segments, 2, way != 0, 0);
        if (way == 1) {
            put_number(last, "address", 0x55); /* no blocks */
            fakepython_append(segments, last);
        }
        if (way == 2) {
            last = fakepython_dict();
            put_number(last, "address", 0x66);
            fakepython_put(last, "blocks", fakepython_number(5));
            fakepython_append(segments, last);
        }
        if (way == 3)
            fakepython.snapshot = fakepython_number(9);
        allowed = way == 4 ? 8 : 7; /* detached */
        cr_expect_eq(snapshot(text), GP_SNAPSHOT_FAILED, "way %u", way);
        cr_expect_str_eq(text, "PyTorch's snapshot has another form than is known here");
        cr_expect_eq(fakepython_raised(), FAKEPYTHON_NONE, "way %u", way);
        static const char *const seen[] = {WHOLE, WHOLE, WHOLE "segment 2 1+200000 on 52\nsegment 0 66+0 on 0\n", "",
                                           ""};
        cr_expect_str_eq(notes, seen[way], "way %u: %s", way, notes);
    }
    allowed = 7;
}

/* Numbers that are none, and the largest one, count as 0. */
Test(torch_snapshot, numbers_that_cannot_be)
{
    char text[GP_SNAPSHOT_TEXT];
    cr_assert_eq(gp_thread_life_start(), 0);
    gp_python_ref segments = prepare(true), one = fakepython_dict(), blocks = fakepython_list();
    put_number(one, "address", 0x5000);
    put_number(one, "total_size", UINT64_MAX);
    put_number(one, "stream", UINT64_MAX - 1);
    fakepython_put(one, "device", fakepython_negative());
    fakepython_put(one, "blocks", blocks);
    block(blocks, UINT64_MAX, 0x20, UINT64_MAX, "active_allocated");
    fakepython_append(segments, one);
    cr_expect_eq(snapshot(text), GP_SNAPSHOT_ALL);
    cr_expect_str_eq(notes, WHOLE "segment 0 5000+0 on fffffffffffffffe\nblock 0 5000+20 of 20 on fffffffffffffffe\n",
                     "%s", notes);
    cr_expect_eq(fakepython_raised(), FAKEPYTHON_NONE);
}

/* Any call of Python's fails, with an exception, with one that ends the program, or without. No reference is kept, and only
 * the program's exception stays. */
Test(torch_snapshot, any_call_of_python_fails)
{
    char text[GP_SNAPSHOT_TEXT];
    unsigned total = 0, failed = 0, raised = 0;
    cr_assert_eq(gp_thread_life_start(), 0);
    prepare(true);
    snapshot(text);
    total = fakepython.calls;
    for (unsigned n = 1; n <= total; n++)
        for (enum fakepython_error with = FAKEPYTHON_NONE; with <= FAKEPYTHON_INTERRUPT; with++) {
            prepare(true);
            fakepython.fail = n;
            fakepython.fail_with = with;
            fakepython.said = "it";
            enum gp_snapshot_end end = snapshot(text);
            failed += end == GP_SNAPSHOT_FAILED;
            raised += end == GP_SNAPSHOT_RAISED;
            if (end == GP_SNAPSHOT_FAILED || end == GP_SNAPSHOT_ABSENT)
                cr_expect_eq(fakepython_raised(), FAKEPYTHON_NONE, "call %u", n);
            else if (end == GP_SNAPSHOT_RAISED)
                cr_expect(fakepython_raised() == FAKEPYTHON_INTERRUPT || with == FAKEPYTHON_NONE, "call %u", n);
            cr_expect((end == GP_SNAPSHOT_ALL || end == GP_SNAPSHOT_RAISED) == (text[0] == '\0'), "call %u: %s", n,
                      text);
        }
    cr_expect(failed > 12 && raised >= 4, "%u %u", failed, raised);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* A program in which everything is as it should be. */
static void request_new(void)
{
    prepare(true);
    is_late = is_reported = begins = is_whole = has_python = fakepython.is_initialized = true;
    lacks = has_too = NULL;
    state = GP_BLOCKS_NONE;
    worker_error = workers = 0;
}

static void expect_request(int result, const char *said, bool queued)
{
    cr_expect_eq(gp_framework_survey(), result);
    cr_expect_str_eq(notes, said, "%s", notes);
    cr_expect_eq(fakepython.pending != NULL, queued);
    notes[0] = '\0';
}

static void run_pending(int result, const char *said)
{
    int (*pending)(void *) = fakepython.pending;
    fakepython.pending = NULL;
    errno = 4321;
    cr_expect_eq(pending(NULL), result);
    cr_expect_eq(errno, 4321);
    cr_expect_str_eq(notes, said, "%s", notes);
    cr_expect(!gp_thread.inside);
    cr_expect_eq(fakepython.owned, 0);
    notes[0] = '\0';
}

static void change_errno(const char *function)
{
    (void)function;
    errno = 99;
}

Test(torch_snapshot, a_request_is_answered)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    request_new();
    is_late = false;
    expect_request(-ENODATA, "", false);
    cr_expect_eq(workers, 0);
    is_late = moves_on = true;
    expect_request(0, "", false);
    cr_expect_eq(workers, 0);
    moves_on = false;
    expect_request(0, "1\n", true);
    expect_request(0, "", true); /* it is under way */
    cr_expect_eq(workers, 1);
    state = GP_BLOCKS_RUNNING;
    expect_request(0, "", true);
    cr_expect_eq(workers, 1);
    state = GP_BLOCKS_ASKED;
    fakepython.called = change_errno;
    run_pending(0, "2\n" WHOLE "end 1\n3\n");
    expect_request(0, "1\n", true); /* again */
    is_whole = false;
    run_pending(0, "2\n" WHOLE "end 1\n5 there is no memory for a list of its blocks\n");
    expect_request(0, "1\n", true);
    begins = false;
    run_pending(0, "2\n5 there is no memory for a list of its blocks\n");
    begins = is_whole = true;
    expect_request(0, "1\n", true);
    state = GP_BLOCKS_NONE; /* another life: nothing was asked */
    run_pending(0, "");
    expect_request(0, "1\n", true);
    gp_thread_life_leave();
    run_pending(0, "");
    cr_expect_eq(state, GP_BLOCKS_ASKED);
}

Test(torch_snapshot, a_request_without_pytorch_or_python)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    request_new();
    is_reported = false;
    expect_request(0, "1\n4 PyTorch is not loaded there, or its allocator reports no blocks\n", false);
    request_new();
    has_python = false;
    expect_request(0, "1\n4 there is no Python there\n", false);
    request_new();
    fakepython.is_initialized = false;
    expect_request(0, "1\n4 Python does not run there\n", false);
    request_new();
    has_too = "PyUnstable_Module_SetGIL";
    expect_request(0, "1\n5 a Python without the GIL is not supported\n", false);
    request_new();
    worker_error = -EAGAIN;
    expect_request(-EAGAIN, "1\n5 no thread could be made\n", false);
    request_new();
    fakepython.is_full = true;
    expect_request(0, "1\n5 Python's queue of pending calls is full\n", false);
    fakepython.is_full = false;
    expect_request(0, "1\n", true); /* nothing stays in the queue from the time before */
    run_pending(0, "2\n" WHOLE "end 1\n3\n");
}

/* Each function is needed, but Py_IsFinalizing has two names, and some versions lack both. */
Test(torch_snapshot, a_python_that_lacks_a_function)
{
    static const char *const needed[] = {
#define NAME(_result, _name, _arguments) #_name,
        GP_PYTHON_API(NAME)
#undef NAME
            "PyExc_Exception",
        "_Py_NoneStruct", "_Py_FalseStruct"};
    cr_assert_eq(gp_thread_life_start(), 0);
    for (unsigned i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        request_new();
        lacks = needed[i];
        expect_request(0, "1\n5 the Python there lacks a function of its C interface\n", false);
    }
    for (unsigned way = 0; way < 3; way++) {
        request_new();
        lacks = way ? "Py_IsFinalizing" : NULL;
        has_too = way == 1 ? "_Py_IsFinalizing" : NULL;
        expect_request(0, "1\n", true);
        fakepython.is_finalizing = true;
        run_pending(0, way < 2 ? "2\nend 0\n4 Python is ending\n" : "2\n" WHOLE "end 1\n3\n");
    }
}

/* A call that is still in the queue answers a later request; there is never a second one. */
Test(torch_snapshot, one_call_is_queued)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    request_new();
    expect_request(0, "1\n", true);
    int (*first)(void *) = fakepython.pending;
    fakepython.pending = NULL;
    gp_thread_life_leave();
    cr_assert_eq(gp_thread_life_start(), 0);
    state = GP_BLOCKS_NONE;
    expect_request(0, "1\n", false);
    fakepython.pending = first;
    run_pending(0, "2\n" WHOLE "end 1\n3\n");
}

/* An exception that ends the program is its own, whether it was there before or comes meanwhile. */
Test(torch_snapshot, exceptions_of_the_program)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    request_new();
    expect_request(0, "1\n", true);
    fakepython_raise(FAKEPYTHON_INTERRUPT);
    run_pending(0, "2\n" WHOLE "end 1\n3\n");
    cr_expect_eq(fakepython_raised(), FAKEPYTHON_INTERRUPT);
    for (int had = 0; had < 2; had++) {
        request_new();
        expect_request(0, "1\n", true);
        fakepython_raise(had ? FAKEPYTHON_EXCEPTION : FAKEPYTHON_NONE);
        fakepython.fail = 4; /* of _initialized */
        fakepython.fail_with = FAKEPYTHON_INTERRUPT;
        run_pending(had ? 0 : -1, "2\nend 0\n5 the program was interrupted meanwhile\n");
        cr_expect_eq(fakepython_raised(), had ? FAKEPYTHON_EXCEPTION : FAKEPYTHON_INTERRUPT);
    }
    request_new();
    expect_request(0, "1\n", true);
    fakepython.said =
        "a text that is longer than the row of the session, which has place for 159 bytes of it; the rest is "
        "cut off, because no reader wants so much of it: abcdefghijklmnopqrstuvwxyz";
    fakepython.fail = 4;
    fakepython.fail_with = FAKEPYTHON_EXCEPTION;
    cr_expect_eq(fakepython.pending(NULL), 0);
    cr_expect_eq(strlen(strstr(notes, "5 ")), 2 + 159 + 1, "%s", notes);
}

static unsigned detach_at, seen_calls;
static bool starts_again;

static void detach(const char *function)
{
    (void)function;
    if (++seen_calls != detach_at)
        return;
    gp_thread_life_leave();
    if (starts_again)
        cr_assert_eq(gp_thread_life_start(), 0);
}

/* The library is detached, and perhaps started again, at any call: nothing more is told. */
Test(torch_snapshot, detached_at_any_call)
{
    for (int again = 0; again < 2; again++)
        for (detach_at = 1; detach_at < 60; detach_at++) {
            cr_assert_eq(gp_thread_life_start(), 0);
            request_new();
            cr_assert_eq(gp_framework_survey(), 0);
            seen_calls = 0;
            starts_again = again;
            fakepython.called = detach;
            cr_expect_eq(fakepython.pending(NULL), 0);
            if (seen_calls < detach_at)
                cr_expect_str_eq(notes, "1\n2\n" WHOLE "end 1\n3\n");
            else
                cr_expect_null(strstr(notes, "end"), "%u: %s", detach_at, notes);
            cr_expect_eq(fakepython.owned, 0);
            cr_expect(!gp_thread.inside);
            gp_thread_life_leave();
        }
}
