/* SPDX-License-Identifier: MIT
 *
 * celltext.c: how many cells a text takes, and numbers as short texts; see grid.h.  Malformed text
 * is never read beyond its NUL.
 */
#define _GNU_SOURCE /* wcwidth */
#include <show/terminal/grid.h>

#include <base/text.h>
#include <math.h>
#include <show/text/write.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>

int gp_grid_decode(const char *text, uint32_t *code)
{
    const char *at = text;
    *code = gp_utf8_next(&at);
    return (int)(at - text);
}

int gp_grid_code_width(uint32_t code)
{
    if (code < 0x20 || code == 0x7f)
        return 1;
    if (code < 0x7f)
        return 1;
    int width = wcwidth((wchar_t)code);
    return width < 0 ? 1 : width > 2 ? 2 : width;
}

int gp_grid_width(const char *text)
{
    int width = 0;
    uint32_t code;
    for (int bytes; (bytes = gp_grid_decode(text, &code)) > 0; text += bytes)
        width += gp_grid_code_width(code);
    return width;
}

/* Chooses the unit: a value that would round up to `step` (1023.5 does) becomes 1.0 of the next
 * unit. */
static void text_scaled(double value, double step, int *unit, int last, double *scaled)
{
    *unit = 0;
    while (*unit < last && value >= step - 0.5) {
        value /= step;
        ++*unit;
    }
    *scaled = value;
}

const char *gp_grid_bytes(int64_t bytes, enum gp_text_form form, char *out, size_t out_bytes)
{
    static const char *const units[] = {"", "K", "M", "G", "T", "P", "E"};
    char size[GP_SIZE_TEXT];
    int unit;
    double value;
    if (bytes < 0 || form == GP_TEXT_LONG) {
        snprintf(out, out_bytes, "%s", gp_size_text(size, bytes));
        return out;
    }
    text_scaled((double)bytes, 1024, &unit, 6, &value);
    snprintf(out, out_bytes, "%.*f%s", unit && value < 99.95 ? 1 : 0, value, units[unit]);
    return out;
}

const char *gp_grid_rate(double rate, char *out, size_t out_bytes)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    if (isnan(rate) || rate < 0) {
        snprintf(out, out_bytes, "-");
        return out;
    }
    int unit;
    double value;
    text_scaled(rate, 1000, &unit, 4, &value);
    snprintf(out, out_bytes, "%.*f%s", value < 99.95 && (unit || value != (double)(int64_t)value) ? 1 : 0, value,
             units[unit]);
    return out;
}

const char *gp_grid_count(int64_t count, char *out, size_t out_bytes)
{
    if (count < 0)
        snprintf(out, out_bytes, "-");
    else if (count < 100000) /* five digits are as wide as "99.9K" */
        snprintf(out, out_bytes, "%lld", (long long)count);
    else
        gp_grid_rate((double)count, out, out_bytes);
    return out;
}

const char *gp_grid_duration(double seconds, char *out, size_t out_bytes)
{
    if (seconds < 60)
        snprintf(out, out_bytes, seconds < 10 && seconds != (double)(int64_t)seconds ? "%.1fs" : "%.0fs", seconds);
    else if (seconds < 3600)
        snprintf(out, out_bytes, "%dm%02ds", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(out, out_bytes, "%dh%02dm", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    return out;
}
