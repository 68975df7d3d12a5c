/* SPDX-License-Identifier: MIT
 *
 * survey.h: the blocks that PyTorch had before gpuprof was attached. Private to framework/.
 */
#ifndef GP_FRAMEWORK_SURVEY_H
#define GP_FRAMEWORK_SURVEY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gp_python_object_any *gp_python_ref; /* PyObject * */

/* X(result, function, arguments): functions of the interpreter, all in its stable interface. */
#define GP_PYTHON_API(X)                                                                                               \
    X(int, Py_AddPendingCall, (int (*)(void *), void *))                                                               \
    X(int, Py_IsInitialized, (void))                                                                                   \
    X(void, Py_DecRef, (gp_python_ref))                                                                                \
    X(gp_python_ref, PyImport_GetModuleDict, (void))                                                                   \
    X(gp_python_ref, PyDict_GetItemString, (gp_python_ref, const char *))                                              \
    X(gp_python_ref, PyObject_GetAttrString, (gp_python_ref, const char *))                                            \
    X(int, PyObject_IsTrue, (gp_python_ref))                                                                           \
    X(gp_python_ref, PyObject_Str, (gp_python_ref))                                                                    \
    X(gp_python_ref, PyObject_CallFunction, (gp_python_ref, const char *, ...))                                        \
    X(gp_python_ref, PyMapping_GetItemString, (gp_python_ref, const char *))                                           \
    X(intptr_t, PySequence_Size, (gp_python_ref))                                                                      \
    X(gp_python_ref, PySequence_GetItem, (gp_python_ref, intptr_t))                                                    \
    X(unsigned long long, PyLong_AsUnsignedLongLong, (gp_python_ref))                                                  \
    X(int, PyUnicode_CompareWithASCIIString, (gp_python_ref, const char *))                                            \
    X(const char *, PyUnicode_AsUTF8, (gp_python_ref))                                                                 \
    X(gp_python_ref, PyErr_Occurred, (void))                                                                           \
    X(int, PyErr_ExceptionMatches, (gp_python_ref))                                                                    \
    X(void, PyErr_Clear, (void))                                                                                       \
    X(void, PyErr_Fetch, (gp_python_ref *, gp_python_ref *, gp_python_ref *))                                          \
    X(void, PyErr_Restore, (gp_python_ref, gp_python_ref, gp_python_ref))

struct gp_python_api {
#define GP_PYTHON_FIELD(_result, _name, _arguments) _result(*_name) _arguments;
    GP_PYTHON_API(GP_PYTHON_FIELD)
#undef GP_PYTHON_FIELD
    int (*finalizing)(void);       /* may be NULL */
    gp_python_ref *exception_type; /* PyExc_Exception */
    gp_python_ref none, no;        /* Py_None, Py_False */
};

enum gp_snapshot_end {
    GP_SNAPSHOT_ALL,
    GP_SNAPSHOT_ABSENT, /* PyTorch has no blocks; text says why */
    GP_SNAPSHOT_FAILED, /* text says why */
    GP_SNAPSHOT_RAISED, /* an exception that is not ours is set in the interpreter */
};

/* torchsnapshot.c. Has PyTorch make its snapshot, and calls the two functions of account/feed.h with all of it.
 * On Python's main thread, with the GIL, outside the library (gp_thread_leave); `enter` says whether the
 * library may still be entered, and is called before each segment. The interpreter has no exception set
 * before. text: GP_SNAPSHOT_TEXT bytes. */
#define GP_SNAPSHOT_TEXT 160
enum gp_snapshot_end gp_torch_snapshot(const struct gp_python_api *python, bool (*enter)(uint16_t life), uint16_t life,
                                       char *text);

#endif
