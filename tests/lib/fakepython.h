/* SPDX-License-Identifier: MIT
 *
 * fakepython.h: a stand-in for the C interface of Python (src/account/framework/internal.h): dictionaries, lists, numbers and texts
 * that the test makes, references that are counted, and each call can be made to fail. One at a time.
 */
#ifndef GP_TEST_LIB_FAKEPYTHON_H
#define GP_TEST_LIB_FAKEPYTHON_H

#include <account/framework/internal.h>

enum fakepython_error { FAKEPYTHON_NONE, FAKEPYTHON_EXCEPTION, FAKEPYTHON_INTERRUPT };

struct fakepython {
    unsigned calls;
    unsigned fail; /* the number of the call that fails: 1 the next one, 0 none */
    enum fakepython_error fail_with;
    const char *said; /* the text of that exception */
    long owned;       /* references that were given and not dropped */
    gp_python_ref modules;
    int accepts; /* arguments of the snapshot's function: 0 none, 1 ((0, 0), False), 2 (None), 3 nothing at all */
    gp_python_ref snapshot;               /* what the function answers */
    void (*called)(const char *function); /* before each call of the interface; may be NULL */
    int (*pending)(void *);
    bool is_initialized, is_full, is_finalizing;
};
extern struct fakepython fakepython;

/* Forgets all objects, and fills *api. */
void fakepython_new(struct gp_python_api *api);
gp_python_ref fakepython_dict(void);
gp_python_ref fakepython_list(void);
gp_python_ref fakepython_number(unsigned long long number);
gp_python_ref fakepython_negative(void); /* a number that AsUnsignedLongLong refuses */
gp_python_ref fakepython_text(const char *text);
gp_python_ref fakepython_function(void); /* the snapshot's */
/* value may be NULL: nothing is put. Attributes of a module are its entries. */
void fakepython_put(gp_python_ref dict, const char *key, gp_python_ref value);
void fakepython_append(gp_python_ref list, gp_python_ref value);
/* Sets or takes away the exception. */
void fakepython_raise(enum fakepython_error error);
enum fakepython_error fakepython_raised(void);
/* The address of a function or variable of the interface; NULL: there is none of this name. */
void *fakepython_symbol(const char *name);

#endif
