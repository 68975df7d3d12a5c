/* SPDX-License-Identifier: MIT
 *
 * survey.c: asks PyTorch for the blocks that it had before gpuprof was attached. Only Python has
 * them, and only its own threads may call it: so Python's main thread is asked to call a function
 * here when it comes to its next safe point (Py_AddPendingCall), with the GIL held. Called by
 * inject/ for a viewer.
 *
 *      a thread of ours   looks up the interpreter's functions; ASKED; Py_AddPendingCall
 *      the main thread    RUNNING; the watch; the snapshot; DONE, or why not
 *
 * If the main thread is in a long call, the request waits. After a detach the call finds the library
 * off, or in another life in which nothing was asked, and does nothing. At most one call is in the
 * interpreter's queue, which is small. The library is not entered while Python's code runs: reports
 * of PyTorch's that it causes (a garbage collection frees tensors) count as any other, and a detach
 * does not wait for it.
 */
#include "account/feed/survey.h"
#include "account/framework/framework.h"
#include "account/framework/internal.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/worker.h"
#include "stack/stack.h"
#include <errno.h>
#include <gpuprof/wire.h>
#include <stdio.h>
#include <string.h>

/* ==== PyTorch's snapshot ========================================================================================== */
/* PyTorch's snapshot of its memory, through the C interface of the interpreter.
 *
 * PyTorch's function is called directly, and it is no Python code: so no handler of a signal runs
 * here, no other thread gets the GIL, and no exception of the program's can be lost. Nothing is
 * imported, and CUDA is not initialised. */

static uint64_t snapshot_number(const struct gp_python_api *python, gp_python_ref dict, const char *key)
{
    gp_python_ref value = python->PyDict_GetItemString(dict, key); /* borrowed */
    unsigned long long number = value ? python->PyLong_AsUnsignedLongLong(value) : 0;
    if (number == UINT64_MAX && python->PyErr_Occurred())
        python->PyErr_Clear();
    return number == UINT64_MAX ? 0 : number;
}

static bool snapshot_flag(const struct gp_python_api *python, gp_python_ref dict, const char *key)
{
    gp_python_ref value = python->PyDict_GetItemString(dict, key);
    return value && python->PyObject_IsTrue(value) == 1;
}

/* A block that PyTorch has taken back, and that another stream may still use, was reported as freed. */
static bool snapshot_is_live(const struct gp_python_api *python, gp_python_ref block)
{
    gp_python_ref state = python->PyDict_GetItemString(block, "state");
    return state && python->PyUnicode_CompareWithASCIIString(state, "active_allocated") == 0;
}

/* The blocks of a segment cover it. Versions before 2.1 do not give their addresses. */
static bool snapshot_blocks(const struct gp_python_api *python, gp_python_ref blocks, struct gp_survey_piece piece)
{
    intptr_t count = python->PySequence_Size(blocks);
    for (intptr_t i = 0; i < count; i++) {
        gp_python_ref block = python->PySequence_GetItem(blocks, i);
        if (!block)
            return false;
        uint64_t address = snapshot_number(python, block, "address");
        piece.address = address ? address : piece.address;
        piece.bytes = snapshot_number(python, block, "size");
        piece.requested_bytes = snapshot_number(python, block, "requested_size");
        if (piece.requested_bytes == 0 || piece.requested_bytes > piece.bytes)
            piece.requested_bytes = piece.bytes;
        if (snapshot_is_live(python, block))
            gp_feed_survey_block(&piece);
        piece.address += piece.bytes;
        python->Py_DecRef(block);
    }
    return count >= 0;
}

static bool snapshot_segment(const struct gp_python_api *python, gp_python_ref segment)
{
    struct gp_survey_piece piece = {
        .device = (int)snapshot_number(python, segment, "device"),
        .address = snapshot_number(python, segment, "address"),
        .bytes = snapshot_number(python, segment, "total_size"),
        .stream = snapshot_number(python, segment, "stream"),
        .growable = snapshot_flag(python, segment, "is_expandable"),
    };
    gp_python_ref blocks = python->PyDict_GetItemString(segment, "blocks");
    if (!piece.address || !blocks)
        return false;
    gp_feed_survey_segment(&piece);
    return snapshot_blocks(python, blocks, piece);
}

static enum gp_snapshot_end snapshot_read(const struct gp_python_api *python, gp_python_ref segments,
                                          bool (*enter)(uint16_t life), uint16_t life, char *text)
{
    intptr_t count = python->PySequence_Size(segments);
    bool sound = count >= 0;
    for (intptr_t i = 0; i < count && sound; i++) {
        gp_python_ref segment = python->PySequence_GetItem(segments, i);
        sound = segment && enter(life);
        if (sound) {
            sound = snapshot_segment(python, segment);
            gp_thread_leave();
        }
        if (segment)
            python->Py_DecRef(segment);
    }
    if (!sound)
        snprintf(text, GP_SNAPSHOT_TEXT, "PyTorch's snapshot has another form than is known here");
    return sound ? GP_SNAPSHOT_ALL : GP_SNAPSHOT_FAILED;
}

/* An exception that is set becomes the text, unless it ends the program, as KeyboardInterrupt does: that
 * belongs to the program. */
static enum gp_snapshot_end snapshot_error(const struct gp_python_api *python, char *text)
{
    gp_python_ref type = NULL, value = NULL, trace = NULL;
    if (!python->PyErr_Occurred()) {
        snprintf(text, GP_SNAPSHOT_TEXT, "PyTorch's snapshot failed");
        return GP_SNAPSHOT_FAILED;
    }
    if (!python->PyErr_ExceptionMatches(*python->exception_type))
        return GP_SNAPSHOT_RAISED;
    python->PyErr_Fetch(&type, &value, &trace);
    gp_python_ref string = value ? python->PyObject_Str(value) : NULL;
    const char *said = string ? python->PyUnicode_AsUTF8(string) : NULL;
    snprintf(text, GP_SNAPSHOT_TEXT, "PyTorch's snapshot failed: %s", said ? said : "an exception");
    text[strcspn(text, "\n")] = '\0';
    python->PyErr_Clear(); /* of these calls */
    python->Py_DecRef(string);
    python->Py_DecRef(type);
    python->Py_DecRef(value);
    python->Py_DecRef(trace);
    return GP_SNAPSHOT_FAILED;
}

static bool snapshot_again(const struct gp_python_api *python)
{
    if (!python->PyErr_Occurred() || !python->PyErr_ExceptionMatches(*python->exception_type))
        return false;
    python->PyErr_Clear();
    return true;
}

/* Its arguments by version: none; the pool, or None for all of them; the pool (0, 0 is every one) and whether
 * the history is wanted, which takes long. */
static gp_python_ref snapshot_call(const struct gp_python_api *python, gp_python_ref function)
{
    gp_python_ref result = python->PyObject_CallFunction(function, NULL);
    if (!result && snapshot_again(python))
        result = python->PyObject_CallFunction(function, "((iiO))", 0, 0, python->no);
    if (!result && snapshot_again(python))
        result = python->PyObject_CallFunction(function, "(O)", python->none);
    return result;
}

static enum gp_snapshot_end snapshot_absent(char *text, const char *why)
{
    snprintf(text, GP_SNAPSHOT_TEXT, "%s", why);
    return GP_SNAPSHOT_ABSENT;
}

enum gp_snapshot_end gp_survey_torch_snapshot(const struct gp_python_api *python, bool (*enter)(uint16_t life),
                                              uint16_t life, char *text)
{
    gp_python_ref modules = python->PyImport_GetModuleDict(); /* borrowed, as the next two */
    gp_python_ref inner = modules ? python->PyDict_GetItemString(modules, "torch._C") : NULL;
    gp_python_ref cuda = modules ? python->PyDict_GetItemString(modules, "torch.cuda") : NULL;
    if (!inner || !cuda)
        return snapshot_absent(text, "PyTorch is not loaded there");
    gp_python_ref begun = python->PyObject_GetAttrString(cuda, "_initialized");
    int is_begun = begun ? python->PyObject_IsTrue(begun) : -1;
    python->Py_DecRef(begun);
    if (is_begun < 0)
        return snapshot_error(python, text);
    if (!is_begun)
        return snapshot_absent(text, "PyTorch has not used CUDA yet");
    gp_python_ref function = python->PyObject_GetAttrString(inner, "_cuda_memorySnapshot");
    gp_python_ref all = function ? snapshot_call(python, function) : NULL;
    python->Py_DecRef(function);
    if (!all)
        return snapshot_error(python, text);
    gp_python_ref segments = python->PyMapping_GetItemString(all, "segments");
    if (!segments && !snapshot_again(python)) {
        python->Py_DecRef(all);
        return GP_SNAPSHOT_RAISED;
    }
    /* Before 2.0 the list itself. */
    enum gp_snapshot_end end = snapshot_read(python, segments ? segments : all, enter, life, text);
    if (end == GP_SNAPSHOT_FAILED)
        python->PyErr_Clear();
    python->Py_DecRef(segments);
    python->Py_DecRef(all);
    return end;
}

/* ==== the request ================================================================================================= */

/* Used outside the library, in a call that may end in another life. */
static struct gp_python_api api;
GP_KEEP(api);
static uint32_t x_queued; /* a call is in the interpreter's queue */
GP_KEEP(x_queued);
static char survey_text[GP_SNAPSHOT_TEXT]; /* of the survey that has ended */

static const char *survey_names[] = {
#define SURVEY_NAME(_result, _name, _arguments) #_name,
    GP_PYTHON_API(SURVEY_NAME)
#undef SURVEY_NAME
        "PyExc_Exception",
    "_Py_NoneStruct",
    "_Py_FalseStruct",
    "Py_IsFinalizing",
    "_Py_IsFinalizing",
    "PyUnstable_Module_SetGIL"};

enum { SURVEY_OPTIONAL = 3, SURVEY_NAMES = GP_COUNT(survey_names) };

/* Looks up the interpreter's functions. NULL, or why that failed; *ended is then the state in which the survey ends. */
static const char *survey_functions(enum gp_wire_blocks_state *ended)
{
    void *found[SURVEY_NAMES] = {0};
    *ended = GP_BLOCKS_ABSENT;
    if (!gp_python_symbols(survey_names, found, SURVEY_NAMES))
        return "there is no Python there";
    *ended = GP_BLOCKS_FAILED;
    for (unsigned i = 0; i < SURVEY_NAMES - SURVEY_OPTIONAL; i++)
        if (!found[i])
            return "the Python there lacks a function of its C interface";
    if (found[SURVEY_NAMES - 1]) /* borrowed references are not safe there */
        return "a Python without the GIL is not supported";
    struct gp_python_api now = {0};
    unsigned at = 0;
#define SURVEY_SET(_result, _name, _arguments) *(void **)&now._name = found[at++];
    GP_PYTHON_API(SURVEY_SET)
#undef SURVEY_SET
    now.exception_type = found[at++];
    now.none = found[at++];
    now.no = found[at++];
    *(void **)&now.finalizing = found[at] ? found[at] : found[at + 1];
    if (memcmp(&api, &now, sizeof(now)) != 0) /* the same in each life, in which a call may be reading it */
        api = now;
    return NULL;
}

/* ---- on Python's main thread ------------------------------------------------------------------------------------- */

static bool survey_enter(uint16_t life)
{
    if (!gp_thread_enter())
        return false;
    if (gp_thread.life == life)
        return true;
    gp_thread_leave();
    return false;
}

static void survey_done(enum gp_snapshot_end end, const char *text, uint64_t took_ns)
{
    static const uint32_t states[] = {[GP_SNAPSHOT_ALL] = GP_BLOCKS_DONE,
                                      [GP_SNAPSHOT_ABSENT] = GP_BLOCKS_ABSENT,
                                      [GP_SNAPSHOT_FAILED] = GP_BLOCKS_FAILED,
                                      [GP_SNAPSHOT_RAISED] = GP_BLOCKS_FAILED};
    bool all = gp_feed_survey_end(end == GP_SNAPSHOT_ALL, took_ns);
    if (end == GP_SNAPSHOT_ALL && !all)
        text = "there is no memory for a list of its blocks";
    else if (end == GP_SNAPSHOT_RAISED)
        text = "the program was interrupted meanwhile";
    snprintf(survey_text, sizeof(survey_text), "%s", text);
    gp_feed_survey_say(GP_BLOCKS_RUNNING, all || end != GP_SNAPSHOT_ALL ? states[end] : GP_BLOCKS_FAILED,
                       survey_text[0] ? survey_text : NULL);
}

static int survey_run(const struct gp_python_api *python, uint16_t life)
{
    gp_python_ref type = NULL, value = NULL, trace = NULL;
    enum gp_snapshot_end end = GP_SNAPSHOT_ABSENT;
    char text[GP_SNAPSHOT_TEXT] = "Python is ending";
    uint64_t begin_ns = gp_clock_ns();
    python->PyErr_Fetch(&type, &value, &trace);
    if (!python->finalizing || !python->finalizing()) {
        text[0] = '\0';
        end = gp_survey_torch_snapshot(python, survey_enter, life, text);
    }
    uint64_t took_ns = gp_clock_ns() - begin_ns;
    if (survey_enter(life)) {
        survey_done(end, text, took_ns);
        gp_thread_leave();
    }
    if (end == GP_SNAPSHOT_RAISED && !type)
        return -1;
    python->PyErr_Restore(type, value, trace);
    return 0;
}

static int survey_pending(void *arg)
{
    struct gp_python_api python;
    int saved_errno = errno, status = 0;
    (void)arg;
    /* Before the state is looked at: gp_framework_survey writes the state, and then looks at this. */
    __atomic_store_n(&x_queued, 0, __ATOMIC_SEQ_CST);
    if (gp_thread_enter()) {
        uint16_t life = gp_thread.life;
        bool asked = gp_feed_survey_say(GP_BLOCKS_ASKED, GP_BLOCKS_RUNNING, NULL);
        bool begun = asked && gp_feed_survey_begin();
        if (asked && !begun)
            gp_feed_survey_say(GP_BLOCKS_RUNNING, GP_BLOCKS_FAILED, "there is no memory for a list of its blocks");
        python = api;
        gp_thread_leave();
        if (begun)
            status = survey_run(&python, life);
    }
    errno = saved_errno;
    return status;
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static void survey_fail(enum gp_wire_blocks_state state, const char *text)
{
    gp_log(GP_LOG_INFO, "blocks from before the attach: %s", text);
    gp_feed_survey_say(GP_BLOCKS_ASKED, state, text);
}

static void *survey_post(void *arg)
{
    enum gp_wire_blocks_state ended = GP_BLOCKS_ABSENT;
    const char *why;
    (void)arg;
    if (!gp_feed_survey_reported()) { /* without them its frees would not be seen */
        survey_fail(GP_BLOCKS_ABSENT, "PyTorch is not loaded there, or its allocator reports no blocks");
        return NULL;
    }
    if ((why = survey_functions(&ended))) {
        survey_fail(ended, why);
        return NULL;
    }
    if (!api.Py_IsInitialized()) {
        survey_fail(GP_BLOCKS_ABSENT, "Python does not run there");
        return NULL;
    }
    if (__atomic_exchange_n(&x_queued, 1, __ATOMIC_SEQ_CST))
        return NULL; /* a call from before is still in the queue, and will do */
    if (api.Py_AddPendingCall(survey_pending, NULL) != 0) {
        __atomic_store_n(&x_queued, 0, __ATOMIC_SEQ_CST);
        survey_fail(GP_BLOCKS_FAILED, "Python's queue of pending calls is full");
    }
    return NULL;
}

int gp_framework_survey(void)
{
    uint32_t state = gp_feed_survey_state();
    if (!gp_feed_survey_late())
        return -ENODATA;
    if (state == GP_BLOCKS_ASKED || state == GP_BLOCKS_RUNNING)
        return 0; /* it is under way */
    if (!gp_feed_survey_say(state, GP_BLOCKS_ASKED, NULL))
        return 0;
    int error = gp_worker_start(survey_post, "gpuprof-blocks");
    if (error)
        gp_feed_survey_say(GP_BLOCKS_ASKED, GP_BLOCKS_FAILED, "no thread could be made");
    return error;
}
