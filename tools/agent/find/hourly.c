/* SPDX-License-Identifier: MIT
 *
 * hourly.c: which lines of the log are due; see find.h. Called by library.c.
 */
#include <agent/find/find.h>
#include <stdio.h>
#include <string.h>

#define HOUR_NS   3600000000000ull
#define MINUTE_NS 60000000000ull

static struct gp_hourly_line *hourly_find(struct gp_hourly *hourly, const char *text)
{
    for (unsigned i = 0; i < GP_HOURLY_LINES; i++)
        if (hourly->lines[i].logged_ns && !strncmp(hourly->lines[i].text, text, GP_HOURLY_TEXT - 1))
            return &hourly->lines[i];
    return NULL;
}

static struct gp_hourly_line *hourly_oldest(struct gp_hourly *hourly)
{
    struct gp_hourly_line *oldest = hourly->lines;
    for (unsigned i = 1; i < GP_HOURLY_LINES; i++)
        if (hourly->lines[i].logged_ns < oldest->logged_ns)
            oldest = &hourly->lines[i];
    return oldest;
}

bool gp_library_hourly_take(struct gp_hourly *hourly, const char *text, uint64_t now_ns, uint64_t *more,
                            uint64_t *others)
{
    struct gp_hourly_line *line = hourly_find(hourly, text);
    if (line && now_ns - line->logged_ns < HOUR_NS) {
        line->more++;
        return false;
    }
    uint64_t from = hourly->full_ns > now_ns ? hourly->full_ns : now_ns;
    if (from + MINUTE_NS > now_ns + GP_HOURLY_BURST * MINUTE_NS) {
        *(line ? &line->more : &hourly->forgotten) += 1;
        return false;
    }
    hourly->full_ns = from + MINUTE_NS;
    *more = line ? line->more : 0;
    if (!line) {
        line = hourly_oldest(hourly);
        hourly->forgotten += line->more;
        snprintf(line->text, sizeof(line->text), "%s", text);
    }
    *others = hourly->forgotten;
    hourly->forgotten = 0;
    line->more = 0;
    line->logged_ns = now_ns;
    return true;
}
