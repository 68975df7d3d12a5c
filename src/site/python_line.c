/* SPDX-License-Identifier: MIT
 *
 * python_line.c: from an instruction to its line, by the code object's line table.  Two formats:
 *
 *   3.10   pairs of bytes: how many bytes of code, and by how much the line changes (-128: belongs to no line)
 *   3.11+  entries that begin with a byte >= 128, whose bits 0-2 are the number of code units less one and bits 3-6 the
 *          form; what follows (all below 128) are line and columns as the form says, and lines are relative
 *
 * Both have to be read from the start.
 */
#include "base/compiler.h"
#include "site/python.h"

/* Forms of an entry from 3.11 on. */
enum {
    GP_FORM_SAME = 10,    /* 10, 11, 12: 0, 1, 2 lines on, columns in two bytes; below: same line, column in one */
    GP_FORM_COLUMNS = 13, /* line change alone */
    GP_FORM_LONG = 14,    /* line change, then three numbers */
    GP_FORM_NONE = 15     /* no line */
};

/* A window on the table: all of it, or the part that was copied. */
struct gp_python_window {
    const uint8_t *at, *end;
    uint64_t next, left; /* what comes after it */
    uint8_t room[512];
};

/* The longest entry: a head and four numbers of at most six bytes. */
#define GP_ENTRY_MAX 25

/* Makes sure that the entry at window->at is in the window as a whole.  False: the table ends, or cannot be read. */
static bool gp_python_window_more(const struct gp_python_way *way, struct gp_python_window *window)
{
    if (GP_LIKELY(window->end - window->at >= GP_ENTRY_MAX || window->left == 0))
        return window->at < window->end;
    uint64_t kept = (uint64_t)(window->end - window->at);
    uint64_t from = window->next - kept, left = window->left + kept;
    uint64_t bytes = way->pid && left > sizeof window->room ? sizeof window->room : left;
    window->at = gp_python_at(way, from, window->room, bytes);
    if (!window->at)
        return false;
    window->end = window->at + bytes;
    window->next = from + bytes;
    window->left = left - bytes;
    return bytes > 0;
}

static uint32_t gp_python_line_310(const struct gp_python_way *way, struct gp_python_window *window, int64_t line,
                                   int64_t offset)
{
    int64_t end = 0;
    while (gp_python_window_more(way, window) && window->end - window->at >= 2) {
        int8_t change = (int8_t)window->at[1];
        end += window->at[0];
        if (change != -128)
            line += change;
        if (offset < end)
            return change == -128 || line < 0 ? 0 : (uint32_t)line;
        window->at += 2;
    }
    return 0;
}

/* A number in groups of six bits, lowest first, its sign in bit 0. */
static int64_t gp_python_change(const uint8_t *at, const uint8_t *end)
{
    uint64_t value = 0;
    for (unsigned shift = 0; at < end && shift < 36; shift += 6) {
        uint8_t byte = *at++;
        value |= (uint64_t)(byte & 63) << shift;
        if (!(byte & 64))
            break;
    }
    return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

static uint32_t gp_python_line_311(const struct gp_python_way *way, struct gp_python_window *window, int64_t line,
                                   int64_t offset)
{
    /* Bytes of the forms that have a fixed length; 0: find the next head. */
    static const uint8_t bytes[16] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 0, 0, 1};
    int64_t end = 0;
    while (gp_python_window_more(way, window)) {
        const uint8_t *at = window->at;
        unsigned form = *at >> 3 & 15;
        end += 2 * ((*at & 7) + 1);
        if (form >= GP_FORM_SAME && form < GP_FORM_COLUMNS)
            line += form - GP_FORM_SAME;
        else if (form == GP_FORM_COLUMNS || form == GP_FORM_LONG)
            line += gp_python_change(at + 1, window->end);
        if (offset < end)
            return form == GP_FORM_NONE || line < 0 ? 0 : (uint32_t)line;
        at += bytes[form];
        if (!bytes[form]) {
            do
                at++;
            while (at < window->end && !(*at & 128));
        }
        window->at = at;
    }
    return 0;
}

uint32_t gp_python_line(const struct gp_python_way *way, uint64_t table, uint32_t first, int64_t offset)
{
    const struct gp_python_layout *at = &way->python->at;
    /* Before the first instruction: the function begins. */
    if (offset < 0)
        return first;
    char room[128];
    const char *head = gp_python_at(way, table, room, at->bytes_data);
    if (!head)
        return 0;
    uint64_t size = gp_python_word(head, at->bytes_size);
    if (size > INT32_MAX)
        return 0;
    struct gp_python_window window;
    window.at = window.end = window.room;
    window.next = table + at->bytes_data;
    window.left = size;
    return way->python->version < GP_PYTHON_311 ? gp_python_line_310(way, &window, first, offset)
                                                : gp_python_line_311(way, &window, first, offset);
}
