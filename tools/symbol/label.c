/* SPDX-License-Identifier: MIT
 *
 * label.c: formats one frame as one line; see symbol.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <symbol/internal.h>

#define GP_LABEL_CUT "..."

/* The nearest start of a character at or before `at` (label_before), or at or after it
 * (label_after). */
static size_t label_before(const char *text, size_t at)
{
    while (at && (text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

static size_t label_after(const char *text, size_t at)
{
    while ((text[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* In a path shorter than this, the end is more useful than the start. */
#define GP_LABEL_ENDS 24u

/* Copies text into at most `room` bytes, not counting the NUL. If the text is longer, the middle is
 * cut out and a third of the room stays for the front. A path resumes at a directory. */
static void label_fit(const char *text, size_t room, bool path, char *out)
{
    size_t length = strlen(text), cut = strlen(GP_LABEL_CUT);
    if (length <= room) {
        memcpy(out, text, length + 1);
        return;
    }
    if (room <= cut) {
        out[0] = '\0';
        return;
    }
    size_t front = path && room < GP_LABEL_ENDS ? 0 : label_before(text, (room - cut) / 3);
    size_t back = label_after(text, length - (room - cut - front));
    const char *folder = path ? strpbrk(text + back, "/\\") : NULL;
    if (folder)
        back = (size_t)(folder - text);
    memcpy(out, text, front);
    memcpy(out + front, GP_LABEL_CUT, cut);
    memcpy(out + front + cut, text + back, length - back + 1);
}

/* A path below GP_LABEL_PATH bytes is useless; up to GP_LABEL_WANTS bytes of it are kept before the
 * function gets the rest. */
#define GP_LABEL_PATH  8u
#define GP_LABEL_WANTS 16u

/* The file as readers see it; for code without lines the module, and where in it, which tells two
 * calls of one function apart. */
static const char *label_place(const struct gp_frame_text *frame, char *room, size_t bytes)
{
    if (frame->file[0])
        return frame->short_file ? frame->short_file : frame->file;
    if (!frame->offset || !frame->module[0])
        return frame->module;
    snprintf(room, bytes, "%.400s+0x%" PRIx64, frame->module, frame->offset);
    return room;
}

size_t gp_frame_label(const struct gp_frame_text *frame, char *out, size_t bytes)
{
    char line[16] = "", in[512];
    const char *place = label_place(frame, in, sizeof(in));
    size_t function = strlen(frame->function);
    if (!bytes)
        return 0;
    if (frame->file[0] && frame->line)
        snprintf(line, sizeof(line), ":%" PRIu32, frame->line);
    /* "libfoo.so+0x12" already contains its module. */
    bool named = !frame->file[0] && place[0] && strncmp(frame->function, frame->module, strlen(frame->module)) == 0;
    size_t frills = strlen(line) + 3; /* " (", ")" */
    size_t room = bytes - 1;
    if (!place[0] || named || room < frills + GP_LABEL_PATH || room - frills - GP_LABEL_PATH < 1) {
        label_fit(frame->function, room, false, out);
        return strlen(out);
    }
    /* A short file is not cut: the function matters more, and the line says where in it. */
    if (frame->short_file && function + strlen(place) + frills > room && function + strlen(line) <= room) {
        snprintf(out, bytes, "%s%s", frame->function, line);
        return function;
    }
    size_t wants = room / 2 < GP_LABEL_WANTS ? room / 2 : GP_LABEL_WANTS;
    size_t least = strlen(place) < wants ? strlen(place) : wants;
    if (least > room - frills)
        least = room - frills;
    size_t for_function = function < room - frills - least ? function : room - frills - least;
    label_fit(frame->function, for_function, false, out);
    size_t used = strlen(out);
    memcpy(out + used, " (", 2);
    label_fit(place, room - frills - used, true, out + used + 2);
    strcat(strcat(out, line), ")");
    return used;
}
