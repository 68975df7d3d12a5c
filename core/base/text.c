/* SPDX-License-Identifier: MIT
 *
 * text.c: see text.h.
 */
#include "base/text.h"
#include "base/compiler.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ==== strings ===================================================================================================== */

/* How many bytes the first one announces; 0 if none begins with it. */
static size_t utf8_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if ((first & 0xe0) == 0xc0)
        return 2;
    if ((first & 0xf0) == 0xe0)
        return 3;
    return (first & 0xf8) == 0xf0 ? 4 : 0;
}

size_t gp_utf8_decode(const unsigned char *at, size_t left, uint32_t *code)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = utf8_length(at[0]);
    if (length == 0 || length > left)
        return 0;
    *code = length == 1 ? at[0] : at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        *code = (*code << 6) | (at[i] & 0x3fu);
    }
    if (*code < lowest[length] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff))
        return 0;
    return length;
}

uint32_t gp_utf8_next(const char **text)
{
    uint32_t code;
    if (!**text)
        return 0;
    size_t length = gp_utf8_decode((const unsigned char *)*text, 4, &code);
    *text += length ? length : 1;
    return length ? code : 0xfffdu;
}

size_t gp_utf8_put(char to[4], uint32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)((0xf00u >> length & 0xf0) | code);
    return length;
}

int gp_utf8_printable(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7f && code < 0xa0))
        return 0;
    if ((code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069))
        return 0;
    return code != 0xfeff;
}

void gp_text_clean(char *to, size_t to_bytes, const char *from, size_t from_bytes)
{
    size_t out = 0, in = 0;
    size_t length = strnlen(from, from_bytes);
    while (in < length) {
        uint32_t code = 0;
        size_t n = gp_utf8_decode((const unsigned char *)from + in, length - in, &code);
        int good = n && gp_utf8_printable(code);
        if (out + (good ? n : 1) >= to_bytes)
            break;
        if (good)
            memcpy(to + out, from + in, n);
        else
            to[out] = '?';
        out += good ? n : 1;
        in += n ? n : 1;
    }
    to[out] = '\0';
}

void gp_text_uuid(char *to, size_t to_bytes, const uint8_t u[16])
{
    unsigned any = 0;
    for (int i = 0; i < 16; i++)
        any |= u[i];
    to[0] = '\0';
    if (any)
        snprintf(to, to_bytes, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
                 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

/* ==== sizes ======================================================================================================= */

int gp_text_size_parse(const char *text, int64_t *bytes)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0},     {"B", 0},  {"K", 10},   {"KiB", 10}, {"M", 20},
                 {"MiB", 20}, {"G", 30}, {"GiB", 30}, {"T", 40},   {"TiB", 40}};
    const char *unit = text;
    int64_t value = 0;
    bool overflow = false;
    for (; *unit >= '0' && *unit <= '9'; unit++) { /* digits alone: strtoll would also accept "-1", "+1" and " 1" */
        overflow |= __builtin_mul_overflow(value, 10, &value);
        overflow |= __builtin_add_overflow(value, *unit - '0', &value);
    }
    for (size_t i = 0; unit > text && i < GP_COUNT(units); i++) {
        if (strcasecmp(unit, units[i].name) != 0)
            continue;
        if (overflow || value > INT64_MAX >> units[i].shift)
            return -ERANGE;
        *bytes = value << units[i].shift;
        return 0;
    }
    return -EINVAL;
}
