/* SPDX-License-Identifier: MIT
 * values.c: the values that the readers of pickles and of JSON make, and the memory that they may
 * take; see pickleread.h. */
#include <read/recording/pickleread.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GP_PICKLE_ITEMS (1u << 26)

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void gp_pickle_begin(struct gp_pickle_file *file, size_t bytes)
{
    *file = (struct gp_pickle_file){.left = GP_PICKLE_MEMORY(bytes)};
}

int gp_pickle_take(struct gp_pickle_file *file, uint64_t bytes)
{
    if (bytes > file->left) {
        file->why = "it needs more memory than a snapshot of its size ever does";
        return -EINVAL;
    }
    file->left -= bytes;
    return 0;
}

int gp_pickle_container(struct gp_pickle_file *file, enum gp_pickle_type type, struct gp_pickle *value)
{
    int rc = gp_pickle_take(file, sizeof(*value->items));
    struct gp_pickle_items *items = rc ? NULL : calloc(1, sizeof(*items));
    if (!items)
        return rc ? rc : -ENOMEM;
    items->next = file->all;
    file->all = items;
    *value = (struct gp_pickle){.type = (uint8_t)type, .items = items};
    return 0;
}

int gp_pickle_append(struct gp_pickle_file *file, const struct gp_pickle *container, const struct gp_pickle *values,
                     uint32_t count)
{
    struct gp_pickle_items *items = container->items;
    if (count > GP_PICKLE_ITEMS - items->count)
        return -E2BIG;
    if (items->count + count > items->room) {
        /* Most containers get all they ever have at once: a million dictionaries with no room to spare. */
        uint32_t room = items->room ? items->room : count;
        while (room < items->count + count)
            room *= 2;
        int rc = gp_pickle_take(file, (uint64_t)(room - items->room) * sizeof(*items->at));
        struct gp_pickle *bigger = rc ? NULL : realloc(items->at, room * sizeof(*bigger));
        if (!bigger)
            return rc ? rc : -ENOMEM;
        items->at = bigger;
        items->room = room;
    }
    if (count)
        memcpy(items->at + items->count, values, count * sizeof(values[0]));
    items->count += count;
    return 0;
}

void gp_pickle_free(struct gp_pickle_file *file)
{
    while (file->all) {
        struct gp_pickle_items *next = file->all->next;
        free(file->all->at);
        free(file->all);
        file->all = next;
    }
    free(file->texts);
    file->texts = NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

bool gp_pickle_is(const struct gp_pickle *value, const char *text)
{
    return value && value->type == GP_PICKLE_TEXT && value->length == strlen(text) &&
           memcmp(value->text, text, value->length) == 0;
}

const struct gp_pickle *gp_pickle_get(const struct gp_pickle *dict, const char *key)
{
    /* Dictionaries of a snapshot have a dozen keys.  A hostile one may be large and appear in every
     * place of a list. */
    uint32_t count = dict && dict->type == GP_PICKLE_DICT ? dict->items->count : 0;
    for (uint32_t i = 0; i + 1 < count && i < 2 * 256; i += 2) {
        if (gp_pickle_is(&dict->items->at[i], key))
            return &dict->items->at[i + 1];
    }
    return NULL;
}

int64_t gp_pickle_number(const struct gp_pickle *value, int64_t otherwise)
{
    return value && (value->type == GP_PICKLE_INT || value->type == GP_PICKLE_BOOL) ? value->number : otherwise;
}

uint32_t gp_pickle_count(const struct gp_pickle *list)
{
    return list && list->type == GP_PICKLE_LIST ? list->items->count : 0;
}

const struct gp_pickle *gp_pickle_at(const struct gp_pickle *list, uint32_t index)
{
    return index < gp_pickle_count(list) ? &list->items->at[index] : NULL;
}

double gp_pickle_real(const struct gp_pickle *value, double otherwise)
{
    return value && value->type == GP_PICKLE_FLOAT ? value->real
           : value && value->type == GP_PICKLE_INT ? (double)value->number
                                                   : otherwise;
}
