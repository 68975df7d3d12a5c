/* SPDX-License-Identifier: MIT
 * libraries.c: what libraries that hold memory do with it, for `report`, `explain` and `stat`; see write.h. */
#include <analyze/libraries.h>
#include <show/text/write.h>

#include <stdio.h>

/* The library that holds most of those that hold less than `below`, or as much and come after `last`; GP_LIBRARIES: none. */
static uint32_t libraries_next(const int64_t *bytes, int64_t below, uint32_t last)
{
    uint32_t next = GP_LIBRARIES;
    for (uint32_t i = 0; i < GP_LIBRARIES; i++)
        if (bytes[i] > 0 && (bytes[i] < below || (bytes[i] == below && i > last)) &&
            (next == GP_LIBRARIES || bytes[i] > bytes[next]))
            next = i;
    return next;
}

json_t *gp_libraries_json(const int64_t *bytes)
{
    json_t *list = json_array();
    int64_t below = INT64_MAX;
    for (uint32_t i = 0; list && (i = libraries_next(bytes, below, i)) < GP_LIBRARIES;) {
        const struct gp_library *library = gp_library(i);
        below = bytes[i];
        json_array_append_new(list, json_pack("{s:s,s:s,s:I,s:s}", "library", library->name, "version_seen",
                                              library->version, "bytes", (json_int_t)below, "rule", library->rule));
    }
    return list;
}

const char *gp_library_line(char text[GP_LIBRARY_TEXT], const json_t *row)
{
    char size[GP_SIZE_TEXT];
    snprintf(text, GP_LIBRARY_TEXT, "%s (%s; as seen in version %s): %s",
             json_string_value(json_object_get(row, "library")),
             gp_size_text(size, json_integer_value(json_object_get(row, "bytes"))),
             json_string_value(json_object_get(row, "version_seen")), json_string_value(json_object_get(row, "rule")));
    return text;
}
