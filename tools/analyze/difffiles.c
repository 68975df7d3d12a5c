/* SPDX-License-Identifier: MIT
 *
 * difffiles.c: finds the source files of two recordings that are the same, though the program lay
 * in another folder; see analyze.h. A file is that of the other side whose path has the most
 * folders in common with it, counted from its name.
 */
#include <analyze/analyze.h>
#include <stdlib.h>
#include <string.h>

/* Each round pairs the files that are next to each other in the order of their reversed paths; what a
 * round leaves are files between which stood others of one side. */
#define GP_DIFF_ROUNDS 16u

struct diff_file {
    const char *path;
    size_t length;
    uint32_t number; /* of its side */
    int side;
    bool paired;
};

/* The byte `at` before the end, with separators before all others: the files of one folder are together. */
static int file_byte(const struct diff_file *file, size_t at)
{
    if (at >= file->length)
        return 0;
    unsigned char byte = (unsigned char)file->path[file->length - 1 - at];
    return byte == '/' || byte == '\\' ? 1 : byte + 1;
}

static int file_compare(const void *one, const void *other)
{
    const struct diff_file *a = one, *b = other;
    for (size_t at = 0; at <= a->length && at <= b->length; at++) {
        int x = file_byte(a, at), y = file_byte(b, at);
        if (x != y)
            return x - y;
    }
    return a->side - b->side;
}

/* How many of the last parts of both paths are equal.  The same path is next to its like, and nothing before it has as
 * many. */
static uint32_t file_common(const struct diff_file *a, const struct diff_file *b)
{
    uint32_t parts = 0;
    if (!a->length && !b->length)
        return 1;
    for (size_t at = 0;; at++) {
        int x = file_byte(a, at), y = file_byte(b, at);
        parts += x <= 1 && y <= 1 && at; /* a part ends on both sides */
        if (x != y || x == 0)
            return parts;
    }
}

/* Pairs neighbours of different sides that are nearer to each other than to their other neighbours.
 * Returns how many pairs were made. */
static uint32_t files_round(struct diff_file **left, uint32_t count, uint32_t *common, uint32_t *partner)
{
    uint32_t pairs = 0;
    for (uint32_t i = 0; i + 1 < count; i++)
        common[i] = left[i]->side == left[i + 1]->side ? 0 : file_common(left[i], left[i + 1]);
    for (uint32_t i = 0; i + 1 < count; i++) {
        uint32_t before = i ? common[i - 1] : 0, after = i + 2 < count ? common[i + 1] : 0;
        if (!common[i] || common[i] < after || common[i] <= before || left[i]->paired || left[i + 1]->paired)
            continue;
        struct diff_file *old = left[left[i]->side ? i + 1 : i], *new = left[left[i]->side ? i : i + 1];
        partner[new->number] = old->number;
        old->paired = new->paired = true;
        pairs++;
    }
    return pairs;
}

bool gp_diff_files(const char *const *const paths[2], const uint32_t counts[2], uint32_t *const ids[2])
{
    uint32_t count = counts[0] + counts[1], left_count = 0;
    struct diff_file *files = calloc(count + 1ul, sizeof(*files)), **left = calloc(count + 1ul, sizeof(*left));
    uint32_t *common = calloc(count + 1ul, sizeof(*common)), *partner = calloc(counts[1] + 1ul, sizeof(*partner));
    bool ok = files && left && common && partner;
    for (uint32_t i = 0; ok && i < count; i++) {
        int side = i >= counts[0];
        uint32_t number = side ? i - counts[0] : i;
        const char *path = paths[side][number];
        files[i] = (struct diff_file){.path = path, .length = strlen(path), .number = number, .side = side};
    }
    if (ok && count)
        qsort(files, count, sizeof(*files), file_compare);
    for (uint32_t i = 0; ok && i < count; i++)
        left[left_count++] = &files[i];
    for (uint32_t i = 0; ok && i < counts[1]; i++)
        partner[i] = UINT32_MAX;
    for (uint32_t round = 0; ok && round < GP_DIFF_ROUNDS && files_round(left, left_count, common, partner); round++) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < left_count; i++)
            if (!left[i]->paired)
                left[kept++] = left[i];
        left_count = kept;
    }
    for (uint32_t i = 0; ok && i < counts[0]; i++)
        ids[0][i] = i;
    for (uint32_t i = 0; ok && i < counts[1]; i++)
        ids[1][i] = partner[i] == UINT32_MAX ? counts[0] + i : partner[i];
    free(files);
    free(left);
    free(common);
    free(partner);
    return ok;
}
