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

/* Digits alone, perhaps with a fraction: strtod would also accept "-1", " 1", "0x1", "inf" and the point of a language.
 * *whole is -1 if it does not fit.  Returns the end; `text` if there is no number. */
static const char *size_number(const char *text, int64_t *whole, const char **fraction)
{
    const char *at = text;
    bool overflow = false;
    for (*whole = 0; *at >= '0' && *at <= '9'; at++) {
        overflow |= __builtin_mul_overflow(*whole, 10, whole);
        overflow |= __builtin_add_overflow(*whole, *at - '0', whole);
    }
    *whole = overflow ? -1 : *whole;
    *fraction = at;
    if (at == text || *at != '.')
        return at;
    *fraction = ++at;
    while (*at >= '0' && *at <= '9')
        at++;
    return at == *fraction ? text : at; /* "1." */
}

/* The power of ten of "e9" at *text, which is advanced; 1 without one; 0 if it is out of range. */
static int64_t size_power(const char **text)
{
    const char *at = *text + 1;
    int64_t power = 1;
    unsigned exponent = 0;
    if ((**text != 'e' && **text != 'E') || *at < '0' || *at > '9')
        return 1;
    for (; *at >= '0' && *at <= '9'; at++)
        exponent = exponent < 100 ? 10 * exponent + (unsigned)(*at - '0') : exponent;
    for (*text = at; exponent && power < INT64_MAX / 10; exponent--)
        power *= 10;
    return exponent ? 0 : power;
}

/* Bytes of a unit; 0 if there is none of that name.  *bare: the unit is "". */
static int64_t size_unit(const char *name, bool *bare)
{
    static const char letters[] = "KMGT", *const binary[] = {"", "i", "iB"};
    *bare = !*name;
    if (!*name || strcasecmp(name, "B") == 0)
        return 1;
    int64_t power = 1000;
    for (unsigned i = 0; letters[i]; i++, power *= 1000) {
        if ((letters[i] | 0x20) != (*name | 0x20))
            continue;
        for (size_t k = 0; k < GP_COUNT(binary); k++)
            if (strcasecmp(name + 1, binary[k]) == 0)
                return (int64_t)1 << 10 * (i + 1);
        return strcasecmp(name + 1, "B") == 0 ? power : 0;
    }
    return 0;
}

int gp_text_size_parse(const char *text, int64_t *bytes)
{
    const char *fraction;
    int64_t whole, value, part = 0;
    bool bare = false;
    const char *after = size_number(text, &whole, &fraction), *digit = after, *unit = after;
    int64_t power = size_power(&unit);
    unit += strspn(unit, " ");
    int64_t one = after > text ? size_unit(unit, &bare) : 0;
    if (!one || (unit > after && bare && unit[-1] == ' '))
        return -EINVAL;
    if (whole < 0 || !power || __builtin_mul_overflow(one, power, &one) || __builtin_mul_overflow(whole, one, &value))
        return -ERANGE;
    /* From the last digit on: each place is a tenth of the one before it.  Nothing is lost but what is less than a byte. */
    for (; digit > fraction; digit--)
        part = one / 10 * (digit[-1] - '0') + (one % 10 * (digit[-1] - '0') + part) / 10;
    if (__builtin_add_overflow(value, part, &value))
        return -ERANGE;
    *bytes = value;
    return bare && value > 0 && value < 1 << 20 ? -EDOM : 0;
}

const char *gp_text_size_why(char why[GP_TEXT_WHY], const char *text)
{
    int64_t bytes;
    int rc = gp_text_size_parse(text, &bytes);
    if (rc == -EDOM) /* no longer than a number below 1 MiB, but for leading zeros */
        snprintf(why, GP_TEXT_WHY, "a number without a unit: did you mean %.20sGiB? %.20sB is bytes", text, text);
    else if (rc == -ERANGE)
        snprintf(why, GP_TEXT_WHY, "out of range");
    else
        snprintf(why, GP_TEXT_WHY, "not a size (like 512MiB, 7.5GiB, 24G or 8GB)");
    return why;
}

int gp_text_percent_parse(const char *text, double *percent)
{
    const char *fraction;
    int64_t whole;
    const char *end = size_number(text, &whole, &fraction), *digit = end;
    double part = 0;
    if (end == text || strcmp(end, "%") != 0)
        return -EINVAL;
    for (; digit > fraction; digit--)
        part = (part + (digit[-1] - '0')) / 10;
    if (whole < 0 || whole > 100 || whole + part > 100 || whole + part <= 0)
        return -ERANGE;
    *percent = (double)whole + part;
    return 0;
}
