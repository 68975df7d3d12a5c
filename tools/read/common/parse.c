/* SPDX-License-Identifier: MIT
 *
 * parse.c: parsers of option values; see parse.h.
 */
#include <read/common/parse.h>

#include <base/compiler.h>
#include <gpuprof/wire.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Digits only: strtoll would also accept "-1", "+1" and " 1". */
static int parse_digits(const char *text, const char **end, uint64_t *value)
{
    uint64_t sum = 0;
    const char *at = text;
    bool overflow = false;
    for (; *at >= '0' && *at <= '9'; at++) {
        overflow |= __builtin_mul_overflow(sum, 10u, &sum);
        overflow |= __builtin_add_overflow(sum, (uint64_t)(*at - '0'), &sum);
    }
    if (at == text)
        return -EINVAL;
    *end = at;
    *value = sum;
    return overflow ? -ERANGE : 0;
}

int gp_parse_duration(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1},
                 {"us", 1000},
                 {"ms", 1000000},
                 {"s", 1000000000ull},
                 {"min", 60000000000ull},
                 {"h", 3600000000000ull}};
    const char *at = text;
    uint64_t whole, part = 0, scale = 1, sum;
    int rc = parse_digits(text, &at, &whole);
    if (rc == -EINVAL)
        return rc;
    if (*at == '.') {
        const char *digit = ++at;
        for (; *at >= '0' && *at <= '9'; at++) {
            if (at - digit >= 6) /* finer than needed; all products below fit 64 bits */
                continue;
            part = part * 10 + (uint64_t)(*at - '0');
            scale *= 10;
        }
        if (at == digit)
            return -EINVAL;
    }
    for (size_t i = 0; i < GP_COUNT(units); i++) {
        if (strcmp(at, units[i].name) != 0)
            continue;
        if (rc || __builtin_mul_overflow(whole, units[i].ns, &sum) || sum > INT64_MAX - units[i].ns)
            return -ERANGE;
        /* Hours times a million parts is below 2^62. */
        *ns = sum + units[i].ns * part / scale;
        return 0;
    }
    return -EINVAL;
}

int gp_parse_number(const char *text, int64_t low, int64_t high, int64_t *value)
{
    const char *end = text;
    uint64_t number;
    int rc = parse_digits(text, &end, &number);
    if (rc == -EINVAL || *end)
        return -EINVAL;
    if (rc || number > (uint64_t)INT64_MAX || (int64_t)number < low || (int64_t)number > high)
        return -ERANGE;
    *value = (int64_t)number;
    return 0;
}

int gp_parse_pids(const char *text, pid_t **pids, int *count)
{
    size_t commas = 0;
    for (const char *at = text; *at; at++)
        commas += *at == ',';
    char *copy = strdup(text), *state = copy, *word;
    pid_t *list = calloc(commas + 1, sizeof(*list));
    int n = 0, rc = copy && list ? 0 : -ENOMEM;
    while (!rc && (word = strsep(&state, ","))) {
        int64_t pid;
        /* A number above the limit of the kernel is "no such process", not a wrong option. */
        rc = gp_parse_number(word, 1, INT32_MAX, &pid) ? -EINVAL : 0;
        bool again = false;
        for (int i = 0; !rc && i < n; i++)
            again |= list[i] == (pid_t)pid;
        if (!rc && !again)
            list[n++] = (pid_t)pid;
    }
    free(copy);
    if (rc) {
        free(list);
        return rc;
    }
    *pids = list;
    *count = n;
    return 0;
}

int gp_parse_device(const char *text, int *device)
{
    int64_t number;
    if (strcmp(text, "host") == 0) {
        *device = (int)GP_WIRE_HOST;
        return 0;
    }
    int rc = gp_parse_number(text, 0, GP_WIRE_GPUS - 1, &number);
    if (!rc)
        *device = (int)number;
    return rc;
}
