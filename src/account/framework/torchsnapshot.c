/* SPDX-License-Identifier: MIT
 *
 * torchsnapshot.c: PyTorch's snapshot of its memory, through the C interface of the interpreter. Called by
 * survey.c.
 *
 * PyTorch's function is called directly, and it is no Python code: so no handler of a signal runs here, no
 * other thread gets the GIL, and no exception of the program's can be lost. Nothing is imported, and CUDA is
 * not initialised.
 */
#include "account/feed.h"
#include "account/framework/survey.h"
#include "base/thread.h"
#include <stdio.h>
#include <string.h>

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

enum gp_snapshot_end gp_torch_snapshot(const struct gp_python_api *python, bool (*enter)(uint16_t life), uint16_t life,
                                       char *text)
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
