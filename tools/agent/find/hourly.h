/* SPDX-License-Identifier: MIT
 *
 * hourly.h: writes a line of the log once an hour, however often its event occurs. A library on a shared
 * machine is loaded by many short programs, and one line for each of them would fill the journal.
 */
#ifndef GP_FIND_HOURLY_H
#define GP_FIND_HOURLY_H

#include <stdbool.h>
#include <stdint.h>

#define GP_HOURLY_LINES 64u
#define GP_HOURLY_TEXT  240u /* of a longer text only the beginning is compared */
/* Different lines: so many at once, then one a minute. Names come from tenants. */
#define GP_HOURLY_BURST 16u

struct gp_hourly_line {
    char text[GP_HOURLY_TEXT];
    uint64_t logged_ns; /* 0: the entry is free */
    uint64_t more;      /* events since then */
};

struct gp_hourly { /* zeros: no line yet */
    struct gp_hourly_line lines[GP_HOURLY_LINES];
    uint64_t full_ns;   /* when the whole burst is there again */
    uint64_t forgotten; /* events without a line of their own */
};

/* Whether to write the line `text` at this time; *more is then how many events like it had none since
 * the last one, and *others how many of texts that were not logged or had to make room. */
bool gp_hourly_take(struct gp_hourly *hourly, const char *text, uint64_t now_ns, uint64_t *more, uint64_t *others);

#endif
