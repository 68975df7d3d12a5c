/* SPDX-License-Identifier: MIT
 *
 * oompage.c: the lines of the out-of-memory report: wrapping, labels and sizes.  Called by oomtext.c and oomadvice.c.
 */
#include "oom/oom.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *gp_oom_size(char text[GP_OOM_SIZE], int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double value = (double)bytes;
    while (value >= 1023.95 && unit + 1 < GP_COUNT(units)) { /* 1023.95 would print as 1024.0 */
        value /= 1024;
        unit++;
    }
    if (bytes < 0) {
        snprintf(text, GP_OOM_SIZE, "an unknown size");
        return text;
    }
    int used = snprintf(text, GP_OOM_SIZE, "%.*f", value < 9.9995 ? 3 : value < 99.995 ? 2 : 1, value);
    while (text[used - 1] == '0')
        used--;
    used -= text[used - 1] == '.';
    snprintf(text + used, GP_OOM_SIZE - (size_t)used, " %s", units[unit]);
    return text;
}

#define GP_PAGE_LABEL 12 /* "allocator" and a space after it */

static void page_line(struct gp_oom_page *page, int column, const char *label, const char *text, size_t length)
{
    size_t room = page->bytes - page->used;
    if (page->lines == GP_OOM_PAGE_LINES || room < (size_t)column + length + 2)
        return;
    page->used += (size_t)snprintf(page->out + page->used, room, "%-*s%.*s\n", column, label, (int)length, text);
    page->lines++;
}

/* Length of the first line of text that is not wider than width: it ends at a space, if there is
 * one. */
static size_t page_break(const char *text, size_t length, size_t width)
{
    if (length <= width)
        return length;
    for (size_t at = width; at > width / 2; at--)
        if (text[at] == ' ')
            return at;
    while ((text[width] & 0xc0) == 0x80) /* not inside a character */
        width--;
    return width;
}

void gp_oom_title(struct gp_oom_page *page, const char *text)
{
    page_line(page, 0, "", text, page_break(text, strlen(text), GP_OOM_PAGE_COLUMNS));
}

void gp_oom_say(struct gp_oom_page *page, const char *label, const char *format, ...)
{
    char text[640];
    va_list args;
    va_start(args, format);
    int printed = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size_t length = printed < (int)sizeof(text) ? (size_t)printed : sizeof(text) - 1;
    const char *at = text;
    if (!label) {
        label = page->label;
        page->label = "";
    }
    do {
        size_t part = page_break(at, length, GP_OOM_PAGE_COLUMNS - GP_PAGE_LABEL);
        page_line(page, GP_PAGE_LABEL, label, at, part);
        for (at += part, length -= part; length && *at == ' '; length--)
            at++;
        label = "";
    } while (length);
}

int64_t gp_oom_asked(const struct gp_wire_oom *oom)
{
    return oom->asked_bytes > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)oom->asked_bytes; /* the sums stay in range */
}

/* PyTorch asks the driver for a segment (kSmallBuffer, kLargeBuffer, kRoundLarge). */
int64_t gp_oom_needed(const struct gp_wire_oom *oom, const struct gp_wire_oom_framework *framework)
{
    int64_t asked = gp_oom_asked(oom), mib = 1ll << 20;
    if (!(framework->flags & GP_OOM_FRAMEWORK) || framework->flags & GP_OOM_BESIDE || asked == 0)
        return asked;
    if (asked <= mib)
        return 2 * mib;
    return asked < 10 * mib ? 20 * mib : (asked + 2 * mib - 1) / (2 * mib) * (2 * mib);
}

const struct gp_wire_oom_framework *gp_oom_framework_of(const struct gp_oom_facts *facts)
{
    static const struct gp_wire_oom_framework none;
    return facts->framework ? facts->framework : &none;
}
