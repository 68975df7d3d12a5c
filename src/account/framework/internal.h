/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of framework/ share.
 */
#ifndef GP_ACCOUNT_FRAMEWORK_INTERNAL_H
#define GP_ACCOUNT_FRAMEWORK_INTERNAL_H

#include "account/feed/door.h"
#include "base/thread.h"
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* ==== slots of imported functions ================================================================================= */
/* Replaces a function that loaded objects import from another one, by writing into the slots (global
 * offset table) through which they call it.
 *
 * A slot holds the function's address, if it was bound when its object was loaded or has been
 * called since; or an address inside its own object, which resolves it at the first call; or a
 * small number, while another thread relocates the object. The last kind is left alone until the
 * next call, and so is a slot that will be made read-only and is not yet: the loader may be
 * relocating the rest. If the object's code is on the caller's stack, its relocation is over:
 * another tool has made the page writable and left it so. A thread inside the resolver may
 * overwrite a replaced slot with the original, so each call checks all slots again. */

struct gp_slot_import {
    const char *name;               /* of the symbol */
    void *replacement;              /* our function */
    const char *definer, *importer; /* file names of the objects that define it and import it start so */
    const char *user;               /* if not NULL: so do objects that are linked to one whose name starts so */
    void *x_original;               /* the definition; set before the first slot is replaced */
    uint32_t slots, refused;        /* slots that were found by the last call; slots that could not be written */
    uint32_t copies;                /* objects that define it, in the last call */
    uint32_t early;                 /* that must be looked at again, whether or not objects change */
    uint64_t early_ns;              /* private: since when such a page is writable */
    bool found;                     /* private: during a look */
};

/* The return addresses of the calling thread. */
struct gp_slot_caller {
    const uint64_t *pcs;
    unsigned count;
};

/* Looks through all loaded objects for each import, whose definition may have moved since the last
 * look, and replaces its slots. Runs under the loader's
 * lock, so that no object is unmapped meanwhile; calls mprotect for slots that were made read-only,
 * and makes them read-only again. False: the process is forking, and nothing was
 * done. One thread at a time; inside gp_loader_with if it holds a lock. caller: NULL if it is not known. */
bool gp_slots_replace(struct gp_slot_import *imports, unsigned count, const struct gp_slot_caller *caller);

/* Puts the definitions back where the replacement still is: another tool may have replaced it in turn.
 * Everything else as above. */
bool gp_slots_restore(struct gp_slot_import *imports, unsigned count);

/* Whether the program could write there now. */
bool gp_slot_writable(uint64_t *slot);
/* Writes the function into a table of an object that the loader has finished with. */
bool gp_slot_put(uint64_t *slot, void *function);

/* ==== libraries with pools ======================================================================================== */
/* Libraries with pools of their own, beside PyTorch (torch.c). Private to framework/. */

/* Looks for them, as gp_owner_on_change says. */
bool gp_doors_find(const uint64_t *pcs, unsigned count);
/* Puts their functions back. */
void gp_doors_restore(void);

/* A library whose pools' pieces are counted as it hands them out. */
struct gp_door_library {
    enum gp_door door;
    const char *name, *owner, *file;
    bool told;       /* under the doors' lock: viewers know how it is seen */
    uint32_t x_open; /* its pieces are counted */
};

/* Whether they are from now on; why: NULL, or why they cannot be. Inside gp_loader_with. */
bool gp_door_open(struct gp_door_library *library, const char *why);
/* Ends it for good. Any thread, as the next three. why: constant. */
void gp_door_shut(struct gp_door_library *library, const char *why);
/* A piece is out, or back; what contradicts those before ends it. */
void gp_door_piece(struct gp_door_library *library, uint64_t pool, uint64_t address, uint64_t bytes);
void gp_door_piece_back(struct gp_door_library *library, uint64_t pool, uint64_t address);

static inline bool gp_door_is_open(const struct gp_door_library *library)
{
    return __atomic_load_n(&library->x_open, __ATOMIC_RELAXED);
}

/* Leave with gp_thread_leave if it is true. */
static inline bool gp_door_enter(const struct gp_door_library *library)
{
    return gp_door_is_open(library) && gp_thread_enter();
}

/* rmm.c. Both inside gp_loader_with. */
bool gp_rmm_find(const struct gp_slot_caller *caller);
void gp_rmm_restore(void);
/* reported.c. The same. */
bool gp_reported_find(const struct gp_slot_caller *caller);
void gp_reported_restore(void);
/* pjrt.c. The first inside gp_loader_with; the second outside, as it calls the program. */
void gp_pjrt_find(const struct gp_slot_caller *caller);
void gp_pjrt_look(void);
void gp_pjrt_restore(void);

#define GP_DOOR_NAME 160u

/* doorlibrary.c. The names of functions that a loaded library defines, by their forms: '*' is any one character, '#' an
 * inline namespace for a version, such as 10_RMM_26_10, or nothing. names[i]: "" if there is none. Returns in how many
 * loaded objects whose file name starts with `library` any of them was found. */
unsigned gp_door_names(const char *library, const char *const *forms, unsigned count, char (*names)[GP_DOOR_NAME]);
/* doorlibrary.c. Whether a name has that form. */
bool gp_door_form(const char *form, const char *name);

/* ==== blocks from before ========================================================================================== */
/* The blocks that PyTorch had before gpuprof was attached. Private to framework/. */

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

/* survey.c. Has PyTorch make its snapshot, and calls the two functions of account/feed/survey.h with all of it.
 * On Python's main thread, with the GIL, outside the library (gp_thread_leave); `enter` says whether the
 * library may still be entered, and is called before each segment. The interpreter has no exception set
 * before. text: GP_SNAPSHOT_TEXT bytes. */
#define GP_SNAPSHOT_TEXT 160
enum gp_snapshot_end gp_survey_torch_snapshot(const struct gp_python_api *python, bool (*enter)(uint16_t life),
                                              uint16_t life, char *text);

#endif
