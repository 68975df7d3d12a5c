/* SPDX-License-Identifier: MIT
 *
 * pickleread.h: reads Python's pickles, and JSON into the same values.
 */
#ifndef GP_READ_RECORDING_PICKLEREAD_H
#define GP_READ_RECORDING_PICKLEREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_pickle_items;

/* Plain data from a file: dictionaries, lists, strings and numbers.  pickleread.c reads Python
 * pickles, protocols 2 to 5, and refuses opcodes that name a class or call a function, so a file can
 * execute nothing.  unjson.c reads JSON into the same values.  Values of a pickle may be shared and
 * may even contain themselves: every walk over them needs a bound. Threads: one caller at a time. */

enum gp_pickle_type {
    GP_PICKLE_NONE,
    GP_PICKLE_BOOL,
    GP_PICKLE_INT,
    GP_PICKLE_FLOAT,
    GP_PICKLE_TEXT,
    GP_PICKLE_LIST, /* and tuples and sets */
    GP_PICKLE_DICT, /* items: key, value, key, value */
    GP_PICKLE_MARK, /* only inside the reader */
};

struct gp_pickle {
    uint8_t type;
    uint32_t length; /* of a text, in bytes */
    union {
        int64_t number;
        double real;
        const char *text; /* points into the data that was read; not terminated by a zero */
        struct gp_pickle_items *items;
    };
};
struct gp_pickle_items {
    struct gp_pickle_items *next; /* links all items, to free them */
    struct gp_pickle *at;
    uint32_t count, room;
};

struct gp_pickle_file {
    struct gp_pickle root;
    struct gp_pickle_items *all;
    char *texts;     /* of JSON: those that had escape sequences */
    const char *why; /* a refusal, as a sentence */
    size_t position; /* where */
    uint64_t left;   /* bytes that the values may still take */
};

/* All values of a file of so many bytes take at most so many bytes.  An entry of a real snapshot
 * takes six times its bytes. */
#define GP_PICKLE_MEMORY(_bytes) ((32ull << 20) + 12ull * (_bytes))

/* Reads one pickle.  Texts point into data, which must outlive the file.  0, -EINVAL (with why),
 * -ENOMEM, -E2BIG; the caller frees the file in every case. */
int gp_pickle_read(struct gp_pickle_file *file, const uint8_t *data, size_t bytes);
/* The same of one JSON value (unjson.c). */
int gp_unjson_read(struct gp_pickle_file *file, const uint8_t *data, size_t bytes);
void gp_pickle_free(struct gp_pickle_file *file);

/* NULL: not a dictionary, or no such key. */
const struct gp_pickle *gp_pickle_get(const struct gp_pickle *dict, const char *key);
bool gp_pickle_is(const struct gp_pickle *value, const char *text);
/* The value of an integer or a bool; `otherwise` for any other type and for NULL. */
int64_t gp_pickle_number(const struct gp_pickle *value, int64_t otherwise);
uint32_t gp_pickle_count(const struct gp_pickle *list); /* 0 if it is not a list */
const struct gp_pickle *gp_pickle_at(const struct gp_pickle *list, uint32_t index);

/* Before anything else: no values, and memory for a file of so many bytes. */
void gp_pickle_begin(struct gp_pickle_file *file, size_t bytes);
/* Takes so many bytes of the file's memory.  0, or -EINVAL with why. */
int gp_pickle_take(struct gp_pickle_file *file, uint64_t bytes);
/* Makes an empty container.  0, -EINVAL with why, -ENOMEM. */
int gp_pickle_container(struct gp_pickle_file *file, enum gp_pickle_type type, struct gp_pickle *value);
/* Appends values to a container.  0, -EINVAL with why, -E2BIG, -ENOMEM. */
int gp_pickle_append(struct gp_pickle_file *file, const struct gp_pickle *container, const struct gp_pickle *values,
                     uint32_t count);

#endif
