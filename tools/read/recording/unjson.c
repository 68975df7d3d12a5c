/* SPDX-License-Identifier: MIT
 * unjson.c: reads JSON into the values of pickleread.h.  Numbers with a fraction or an exponent, and
 * integers beyond 64 bits, are floats.
 *
 * Bounds: each byte is looked at once, a text that has escape sequences twice.  Containers are at most
 * GP_JSON_DEPTH deep, and all values take at most GP_PICKLE_MEMORY. */
#include <read/recording/pickleread.h>

#include <base/text.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A snapshot has seven levels, a trace of Kineto four. */
#define GP_JSON_DEPTH 64

struct gp_json {
    const uint8_t *at, *end;
    struct gp_pickle_file *file;
    size_t bytes, texts; /* of the file; used in file->texts, which never moves */
};

static int json_refuse(struct gp_json *j, const char *why)
{
    j->file->why = why;
    return -EINVAL;
}

static void json_blank(struct gp_json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r'))
        j->at++;
}

static bool json_next(struct gp_json *j, char c)
{
    json_blank(j);
    if (j->at == j->end || *j->at != (uint8_t)c)
        return false;
    j->at++;
    return true;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static int json_hex(const uint8_t *at)
{
    int code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = at[i] >= '0' && at[i] <= '9'                 ? at[i] - '0'
                    : (at[i] | 32) >= 'a' && (at[i] | 32) <= 'f' ? (at[i] | 32) - 'a' + 10
                                                                 : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* at: behind "\u".  Both halves of a pair are taken.  0: not four digits. */
static size_t json_unicode(const uint8_t *at, const uint8_t *end, uint32_t *code)
{
    int first = end - at >= 4 ? json_hex(at) : -1, second = -1;
    if (first < 0)
        return 0;
    if (first >= 0xd800 && first < 0xdc00 && end - at >= 10 && at[4] == '\\' && at[5] == 'u')
        second = json_hex(at + 6);
    bool pair = second >= 0xdc00 && second < 0xe000;
    *code = pair ? 0x10000u + ((uint32_t)(first - 0xd800) << 10) + (uint32_t)(second - 0xdc00) : (uint32_t)first;
    return pair ? 10 : 4;
}

/* A text from `from` to `to` with escape sequences; it never gets longer. */
static int json_unescape(struct gp_json *j, const uint8_t *from, const uint8_t *to, struct gp_pickle *value)
{
    static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    if (!j->file->texts) {
        int rc = gp_pickle_take(j->file, j->bytes);
        if (rc || !(j->file->texts = malloc(j->bytes)))
            return rc ? rc : -ENOMEM;
    }
    char *text = j->file->texts + j->texts, *put = text;
    for (const uint8_t *at = from; at < to; at++) {
        uint32_t code = 0;
        if (*at != '\\') {
            *put++ = (char)*at;
        } else if (at[1] == 'u') {
            size_t taken = json_unicode(at + 2, to, &code);
            if (!taken)
                return json_refuse(j, "a wrong escape sequence");
            put += gp_utf8_put(put, code >= 0xd800 && code < 0xe000 ? '?' : code); /* half of a pair alone */
            at += 1 + taken;
        } else {
            const char *known = escapes;
            while (*known && *known != (char)at[1])
                known += 2;
            if (!*known)
                return json_refuse(j, "a wrong escape sequence");
            *put++ = known[1];
            at++;
        }
    }
    *value = (struct gp_pickle){.type = GP_PICKLE_TEXT, .length = (uint32_t)(put - text), .text = text};
    j->texts += (size_t)(put - text);
    return 0;
}

static int json_text(struct gp_json *j, struct gp_pickle *value)
{
    const uint8_t *from = j->at;
    bool escapes = false;
    for (; j->at < j->end && *j->at != '"'; j->at++) {
        if (*j->at == '\\') {
            escapes = true;
            j->at += j->end - j->at > 1;
        }
    }
    if (j->at == j->end)
        return json_refuse(j, "it ends in the middle of a text");
    if (j->at - from > UINT32_MAX)
        return -E2BIG;
    const uint8_t *to = j->at++;
    if (escapes)
        return json_unescape(j, from, to, value);
    *value = (struct gp_pickle){.type = GP_PICKLE_TEXT, .length = (uint32_t)(to - from), .text = (const char *)from};
    return 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int json_number(struct gp_json *j, struct gp_pickle *value)
{
    char text[64];
    size_t length = 0;
    bool real = false;
    while (j->at < j->end && length < sizeof(text) - 1 && *j->at && strchr("0123456789+-.eE", *j->at)) {
        real |= *j->at == '.' || (*j->at | 32) == 'e';
        text[length++] = (char)*j->at++;
    }
    text[length] = '\0';
    char *end;
    errno = 0;
    *value = (struct gp_pickle){.type = GP_PICKLE_INT};
    if (!real)
        value->number = text[0] == '-' ? strtoll(text, &end, 10) : (int64_t)strtoull(text, &end, 10);
    if (real || errno == ERANGE)
        *value = (struct gp_pickle){.type = GP_PICKLE_FLOAT, .real = strtod(text, &end)};
    return length && *end == '\0' ? 0 : json_refuse(j, "not a JSON value");
}

static int json_word(struct gp_json *j, const char *word, struct gp_pickle made, struct gp_pickle *value)
{
    size_t length = strlen(word);
    if ((size_t)(j->end - j->at) < length || memcmp(j->at, word, length) != 0)
        return json_refuse(j, "not a JSON value");
    j->at += length;
    *value = made;
    return 0;
}

static int json_value(struct gp_json *j, unsigned depth, struct gp_pickle *value);

static int json_pair(struct gp_json *j, struct gp_pickle *key)
{
    if (!json_next(j, '"'))
        return json_refuse(j, "a key is missing");
    int rc = json_text(j, key);
    if (!rc && !json_next(j, ':'))
        rc = json_refuse(j, "a value is missing");
    return rc;
}

static int json_container(struct gp_json *j, unsigned depth, bool pairs, struct gp_pickle *value)
{
    struct gp_pickle some[32]; /* collected, so that most containers are allocated once */
    uint32_t count = 0;
    char close = pairs ? '}' : ']';
    int rc = gp_pickle_container(j->file, pairs ? GP_PICKLE_DICT : GP_PICKLE_LIST, value);
    bool more = !rc && !json_next(j, close);
    while (!rc && more) {
        if (pairs)
            rc = json_pair(j, &some[count++]);
        if (!rc)
            rc = json_value(j, depth + 1, &some[count++]);
        if (rc)
            break;
        more = json_next(j, ',');
        if (!more && !json_next(j, close))
            rc = json_refuse(j, "a comma or the end of a container is missing");
        if (!rc && (!more || count == sizeof(some) / sizeof(some[0]))) {
            rc = gp_pickle_append(j->file, value, some, count);
            count = 0;
        }
    }
    return rc;
}

static int json_value(struct gp_json *j, unsigned depth, struct gp_pickle *value)
{
    if (depth > GP_JSON_DEPTH)
        return json_refuse(j, "deeper than any snapshot");
    json_blank(j);
    if (j->at == j->end)
        return json_refuse(j, "it ends in the middle of a value");
    switch (*j->at) {
    case '{':
    case '[':
        return j->at++, json_container(j, depth, j->at[-1] == '{', value);
    case '"':
        return j->at++, json_text(j, value);
    case 't':
        return json_word(j, "true", (struct gp_pickle){.type = GP_PICKLE_BOOL, .number = 1}, value);
    case 'f':
        return json_word(j, "false", (struct gp_pickle){.type = GP_PICKLE_BOOL}, value);
    case 'n':
        return json_word(j, "null", (struct gp_pickle){.type = GP_PICKLE_NONE}, value);
    case 'N':
        return json_word(j, "NaN", (struct gp_pickle){.type = GP_PICKLE_NONE}, value);
    default:
        return json_number(j, value);
    }
}

int gp_unjson_read(struct gp_pickle_file *file, const uint8_t *data, size_t bytes)
{
    struct gp_json j = {.at = data, .end = data + bytes, .file = file, .bytes = bytes};
    gp_pickle_begin(file, bytes);
    int rc = json_value(&j, 0, &file->root);
    json_blank(&j);
    if (!rc && j.at != j.end)
        rc = json_refuse(&j, "something follows its end");
    file->position = (size_t)(j.at - data);
    return rc;
}
