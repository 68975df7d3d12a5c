/* SPDX-License-Identifier: MIT
 * Stand-ins for NVIDIA's mathematics libraries: what they share.  A library is a table, NAME.def, of
 * the functions that the real one exports, and NAME.c with those that need more than a rule.
 *
 * A row is F(function, rule); a rule says what each output gets, by the position of the argument among
 * those that are integers or pointers, from 1 on (floating-point arguments travel apart):
 *
 *   none       nothing
 *   w13_4      argument 13 points to an output of 4 bytes (0: of unknown size).  In device memory it
 *              counts as computed; in host memory it becomes zero.  w3_4_w9_8 has two of them
 *   m5         argument 5 points to an int that becomes -1: no position was found
 *   c2, d1     argument 2 points to a new handle; argument 1 is a handle that ends
 * SIZE rows are answers of 0 to questions for a workspace, REFUSED ones return NOT_SUPPORTED; the
 * report names each once.
 *
 * A row's function is an alias of its rule's function, which takes as many arguments as any: those
 * beyond the caller's are never read. */
#ifndef SIM_STANDIN_H
#define SIM_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uintptr_t word;

#define EXPORT __attribute__((visibility("default")))
#define ARGS                                                                                                           \
    word a1, word a2, word a3, word a4, word a5, word a6, word a7, word a8, word a9, word a10, word a11, word a12,     \
        word a13, word a14, word a15, word a16, word a17, word a18, word a19, word a20, word a21, word a22, word a23,  \
        word a24, word a25, word a26, word a27, word a28, word a29, word a30

/* ---- objects: handles and descriptors ---------------------------------------------------------------------------- */

struct standin_object;

/* With one reference.  NULL: out of memory. */
struct standin_object *standin_new(int type);
struct standin_object *standin_hold(struct standin_object *object);
/* Programs end descriptors before others that refer to them, so the others hold a reference. */
void standin_drop(struct standin_object *object);
/* NULL unless it is one of ours: some handles lie in memory of the program. */
struct standin_object *standin_object(word handle);
int standin_type(const struct standin_object *object);
/* What is known under a key.  Objects among the values are held if `objects`.  false: out of memory. */
bool standin_set(struct standin_object *object, long key, const void *bytes, size_t size, bool objects);
const void *standin_get(const struct standin_object *object, long key, size_t *size);
bool standin_copy(struct standin_object *to, const struct standin_object *from);
int64_t standin_number(const struct standin_object *object, long key, int64_t otherwise);
bool standin_set_number(struct standin_object *object, long key, int64_t value);
/* Memory of the device, or pinned memory of the host, that ends with the object.  false: no memory. */
bool standin_take(struct standin_object *object, size_t bytes, bool pinned);
/* What a handle of cuBLAS takes, with the object of the library that makes it. */
bool standin_take_blas(struct standin_object *object, int cublas_major);

/* ---- the device -------------------------------------------------------------------------------------------------- */

/* What the library's kernels would have written.  bytes 0: unknown. */
void standin_written(word pointer, size_t bytes);
/* An int on either side becomes -1. */
void standin_minus_one(word pointer);
/* 0: no memory. */
word standin_device_alloc(size_t bytes);
void standin_device_free(word pointer);
/* A copy as the driver makes it, whichever side each is on; 0 or an error of the driver. */
int standin_device_copy(word to, size_t to_pitch, word from, size_t from_pitch, size_t width, size_t height);
/* 10 * major + minor of the current device; 0 unknown. */
int standin_capability(void);
/* The workspace of cuBLAS that the documents recommend for the current device. */
size_t standin_blas_recommended(void);
/* Of the current device; 0 unknown. */
int standin_multiprocessors(void);

/* ---- the report (GPUPROF_STANDIN_REPORT) ------------------------------------------------------------------------- */

/* Once per distinct text and process. */
void standin_assumed(const char *text);
void standin_unsupported(const char *function);
/* The number after ".so." of this library's name. */
int standin_major(void);
/* Part 0, 1 or 2 of the version of the library whose place this one takes, where its file or its
 * Python package names one; else that of `newest`. */
int standin_version(int part, const int newest[3]);
/* A library's GetProperty: what its `version` says of the part; `invalid`, its error, if there is no such part. */
int standin_property(int part, int *value, int (*version)(int part), int invalid);

/* ---- rules ------------------------------------------------------------------------------------------------------- */

#define RULE(_name, ...)                                                                                               \
    __attribute__((unused)) static int rule_##_name(ARGS);                                                             \
    __attribute__((unused, noinline, noclone)) static int rule_##_name(ARGS)                                           \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        __VA_ARGS__ return 0;                                                                                          \
    }
#define UNREAD                                                                                                         \
    (void)a1, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8, (void)a9, (void)a10, (void)a11,    \
        (void)a12, (void)a13, (void)a14, (void)a15, (void)a16, (void)a17, (void)a18, (void)a19, (void)a20, (void)a21,  \
        (void)a22, (void)a23, (void)a24, (void)a25, (void)a26, (void)a27, (void)a28, (void)a29, (void)a30
#define W(_position, _bytes) standin_written(a##_position, _bytes);
#define M(_position)         standin_minus_one(a##_position);
#define F(_function, _rule)  EXPORT int _function(void) __attribute__((alias("rule_" #_rule)));
/* The function and the one of the same arguments whose numbers have 64 bits. */
#define F64(_function, _rule) F(_function, _rule) F(_function##_64, _rule)
#define ALL                                                                                                            \
    a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24,     \
        a25, a26, a27, a28, a29, a30
/* F for a question for the size of a workspace, whose answer is 0. */
#define SIZE(_function, _rule)                                                                                         \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        standin_assumed(#_function ": no workspace");                                                                  \
        return rule_##_rule(ALL);                                                                                      \
    }
/* A descriptor that remembers its arguments from the second on.  CREATED makes it, KEPT has it made.
 * TOLD gives them back: argument N points to a place for argument N of what was kept, of a width of
 * its own: i 4 bytes, l 8, - none. */
#define CREATED(_function, _kind)                                                                                      \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        struct standin_object *object = standin_new(_kind);                                                            \
        *(struct standin_object **)a1 = object;                                                                        \
        return object && standin_keep(object, (const word[]){ALL}) ? 0 : STANDIN_NO_MEMORY;                            \
    }
#define KEPT(_function)                                                                                                \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        return standin_keep(standin_object(a1), (const word[]){ALL}) ? 0 : STANDIN_NO_MEMORY;                          \
    }
#define TOLD(_function, _widths)                                                                                       \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        standin_tell(standin_object(a1), _widths, (const word[]){ALL});                                                \
        return 0;                                                                                                      \
    }
#define CREATE(_position)                                                                                              \
    if (!standin_create(a##_position))                                                                                 \
        return STANDIN_NO_MEMORY;
#define DROP(_position) standin_drop(standin_object(a##_position));
#define REFUSED(_function)                                                                                             \
    EXPORT int _function(void);                                                                                        \
    EXPORT int _function(void)                                                                                         \
    {                                                                                                                  \
        standin_unsupported(#_function);                                                                               \
        return STANDIN_NOT_SUPPORTED;                                                                                  \
    }
/* A pair of functions: argument _p of the one is kept with the handle, and given back by the other. */
#define S(_function, _key, _p)                                                                                         \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        return standin_set_number(standin_object(a1), _key, (int64_t)a##_p) ? 0 : STANDIN_NO_MEMORY;                   \
    }
#define G(_function, _key, _p, _type, _otherwise)                                                                      \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        *(_type *)a##_p = (_type)standin_number(standin_object(a1), _key, (int64_t)(_otherwise));                      \
        return 0;                                                                                                      \
    }

bool standin_create(word pointer);
bool standin_keep(struct standin_object *object, const word *arguments);
void standin_tell(const struct standin_object *object, const char *widths, const word *arguments);
/* Argument N of what was kept; 0 without. */
word standin_kept(const struct standin_object *object, int position);
/* The same with another value. */
bool standin_replace(struct standin_object *object, int position, word value);

#pragma GCC diagnostic ignored "-Wattribute-alias"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#endif
