/* SPDX-License-Identifier: MIT
 * notes.c: Turns marks into PyTorch's annotations (internal.h).  The viewers draw ranges, so
 * every START has an END. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* tdestroy */
#endif
#include <convert/snapshot/entries.h>
#include <convert/snapshot/internal.h>

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct gp_note {
    const char *name; /* "": the end of a range whose start was not seen; left out */
    bool ends, paired, alone;
};

struct gp_note_open { /* by name: the newest start without an end, and those before it */
    const char *name;
    size_t last; /* + 1; 0 none */
};

static struct gp_note note_of(const char *name)
{
    struct gp_note note = {.name = name, .ends = name[0] == '/', .alone = strncmp(name, "nvtx.", 5) == 0};
    note.name += note.ends;
    if (note.alone || strncmp(note.name, "nvtx:", 5) == 0)
        note.name += 5;
    return note;
}

static int note_compare(const void *left, const void *right)
{
    return strcmp(((const struct gp_note_open *)left)->name, ((const struct gp_note_open *)right)->name);
}

/* Pairs an end with the newest open start of its name.  below[i]: the start that was open before i. */
static int notes_pair(struct gp_note *pairs, size_t *below, size_t count)
{
    void *tree = NULL;
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++) {
        struct gp_note_open key = {.name = pairs[i].name}, **found = tfind(&key, &tree, note_compare);
        if (pairs[i].alone)
            continue;
        if (!found && !pairs[i].ends) {
            struct gp_note_open *node = malloc(sizeof(*node));
            if (node)
                *node = key;
            found = node ? tsearch(node, &tree, note_compare) : NULL;
            if (!found)
                free(node);
            rc = found ? 0 : -ENOMEM;
        }
        if (rc || !found)
            continue;
        struct gp_note_open *open = *found;
        if (!pairs[i].ends) {
            below[i] = open->last;
            open->last = i + 1;
        } else if (open->last) {
            pairs[i].paired = pairs[open->last - 1].paired = true;
            open->last = below[open->last - 1];
        }
    }
    tdestroy(tree, free);
    return rc;
}

static void notes_write(struct gp_snap *snap, const struct gp_snap_note *notes, const struct gp_note *pairs,
                        size_t count, uint32_t devices)
{
    struct gp_snapshot_pickled_list list;
    uint8_t *at = gp_snap_word(snap, gp_pickled_part(&snap->out), GP_WORD_EXTERNAL_ANNOTATIONS);
    gp_pickled_part_end(&snap->out, gp_pickled_list(at, &list));
    for (size_t i = 0; i < count; i++)
        for (uint32_t device = 0; device < devices && pairs[i].name[0]; device++) {
            if (!pairs[i].paired || !pairs[i].ends)
                gp_snap_note(snap, &list, pairs[i].name, false, device, notes[i].time_us);
            if (!pairs[i].paired || pairs[i].ends)
                gp_snap_note(snap, &list, pairs[i].name, true, device, notes[i].time_us);
        }
    gp_pickled_part_end(&snap->out, gp_pickled_list_end(gp_pickled_part(&snap->out), &list));
}

int gp_snap_notes(struct gp_snap *snap, const struct gp_snap_note *notes, size_t count, uint32_t devices)
{
    struct gp_note *pairs = malloc((count + 1) * sizeof(*pairs));
    size_t *below = malloc((count + 1) * sizeof(*below));
    int rc = pairs && below ? 0 : -ENOMEM;
    for (size_t i = 0; i < count && !rc; i++)
        pairs[i] = note_of(notes[i].name);
    if (!rc)
        rc = notes_pair(pairs, below, count);
    if (!rc)
        notes_write(snap, notes, pairs, count, devices);
    free(pairs);
    free(below);
    return rc;
}
