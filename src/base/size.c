/* SPDX-License-Identifier: MIT
 * size.c: see size.h. */
#include "base/size.h"
#include "base/compiler.h"
#include <errno.h>
#include <stdbool.h>
#include <strings.h>

int gp_size_parse(const char *text, int64_t *bytes)
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
