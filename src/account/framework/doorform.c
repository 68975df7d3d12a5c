/* SPDX-License-Identifier: MIT
 * doorform.c: the forms of names; see doors.h. */
#include "account/framework/doors.h"
#include <stdlib.h>
#include <string.h>

/* The length of the name of an inline namespace for a version, with its count of characters; 0: none is there. */
static size_t form_namespace(const char *name)
{
    size_t digits = strspn(name, "0123456789"), length = digits && digits < 3 ? (size_t)strtoul(name, NULL, 10) : 0;
    bool is = length && name[digits] == '_' && strnlen(name + digits, length) == length;
    for (size_t i = 0; is && i < length; i++) {
        char c = name[digits + i];
        is = c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
    }
    return is ? digits + length : 0;
}

bool gp_door_form(const char *form, const char *name)
{
    for (; *form; form++) {
        if (*form == '#') {
            name += form_namespace(name);
            continue;
        }
        if (!*name || (*form != '*' && *form != *name))
            return false;
        name++;
    }
    return !*name;
}
