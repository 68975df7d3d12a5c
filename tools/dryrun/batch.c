/* SPDX-License-Identifier: MIT
 * batch.c: `gpuprof dryrun --batch`: the largest batch that fits on a GPU, and what one more
 * costs; see dryrun.h.  The program runs with two sizes, then with those that the line through its
 * needs predicts, until a size that fits and the next one, that does not, have both been tried. */
#include <dryrun/dryrun.h>
#include <limits.h>
#include <read/common/parse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_BATCH_WORD  "{batch}"
#define GP_BATCH_LINES 8u /* later ones halve what is left: the needs are no line */
#define GP_BATCH_JUMP  16 /* times the largest that fits */
#define GP_BATCH_MOST  1000000000

int gp_dryrun_batch_parse(const char *text, int64_t sizes[2])
{
    char *copy = strdup(text), *rest = copy;
    const char *first = strsep(&rest, ",");
    int rc = first ? gp_parse_number(first, 1, GP_BATCH_MOST, &sizes[0]) : -1;
    if (!rc)
        sizes[1] = 2 * sizes[0];
    if (!rc && rest)
        rc = gp_parse_number(rest, sizes[0] + 1, GP_BATCH_MOST, &sizes[1]);
    free(copy);
    return rc;
}

bool gp_dryrun_batch_named(char *const *argv)
{
    bool named = false;
    for (size_t i = 1; argv[i]; i++)
        named |= strstr(argv[i], GP_BATCH_WORD) != NULL;
    return named;
}

void gp_dryrun_batch_free(char **argv)
{
    for (size_t i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}

static char *batch_word(const char *word, int64_t size)
{
    const size_t length = strlen(GP_BATCH_WORD);
    size_t bytes = strlen(word) + 1, used = 0;
    for (const char *at = word; (at = strstr(at, GP_BATCH_WORD)); at += length)
        bytes += 24;
    char *text = malloc(bytes);
    while (text && *word)
        if (strncmp(word, GP_BATCH_WORD, length) == 0) {
            used += (size_t)snprintf(text + used, bytes - used, "%lld", (long long)size);
            word += length;
        } else {
            text[used++] = *word++;
        }
    if (text)
        text[used] = '\0';
    return text;
}

char **gp_dryrun_batch_argv(char *const *argv, int64_t size)
{
    size_t count = 0;
    while (argv[count])
        count++;
    char **own = calloc(count + 1, sizeof(*own));
    for (size_t i = 0; own && i < count; i++)
        if (!(own[i] = batch_word(argv[i], size))) {
            gp_dryrun_batch_free(own);
            return NULL;
        }
    return own;
}

void gp_dryrun_batch_add(struct gp_dryrun_answer *answer, struct gp_dryrun_batch batch)
{
    uint32_t at = answer->batch_count++;
    for (; at > 0 && answer->batches[at - 1].size > batch.size; at--)
        answer->batches[at] = answer->batches[at - 1];
    answer->batches[at] = batch;
}

/* How many of the smallest sizes fit, without one between them that does not. */
static uint32_t batch_fitting(const struct gp_dryrun_answer *answer)
{
    uint32_t count = 0;
    while (count < answer->batch_count && answer->batches[count].verdict == GP_DRYRUN_FITS)
        count++;
    return count;
}

static int64_t batch_common(int64_t one, int64_t other)
{
    while (other) {
        int64_t rest = one % other;
        one = other;
        other = rest;
    }
    return one;
}

/* By the line through the two largest sizes that fit. */
static int64_t batch_line(const struct gp_dryrun_batch *batches, uint32_t fitting, int64_t total_bytes)
{
    const struct gp_dryrun_batch *last = &batches[fitting - 1], *before = fitting > 1 ? last - 1 : last;
    double more = (double)(last->needed_bytes - before->needed_bytes), jump = GP_BATCH_JUMP * (double)last->size;
    double found = jump;
    if (more > 0)
        found = (double)last->size +
                (double)(total_bytes - last->needed_bytes) / more * (double)(last->size - before->size);
    found = found > jump ? jump : found;
    return (int64_t)(found > GP_BATCH_MOST ? GP_BATCH_MOST : found);
}

int64_t gp_dryrun_batch_next(const struct gp_dryrun_answer *answer, int64_t total_bytes)
{
    const int64_t *sizes = answer->batch_sizes;
    const int64_t step = batch_common(sizes[0], sizes[1]);
    const uint32_t fitting = batch_fitting(answer);
    const bool ended = fitting < answer->batch_count;
    if (answer->batch_count == 0)
        return sizes[0];
    if (answer->batch_count == 1)
        return ended ? 0 : sizes[1];
    const int64_t low = fitting ? answer->batches[fitting - 1].size : 0;
    const int64_t high = ended ? answer->batches[fitting].size : INT64_MAX;
    if (!fitting || answer->batch_count >= GP_DRYRUN_BATCHES || high - low <= step || low > GP_BATCH_MOST - step)
        return 0;
    const int64_t half = low + (high - low) / step / 2 * step;
    int64_t size = batch_line(answer->batches, fitting, total_bytes) / step * step;
    if (ended && (fitting < 2 || answer->batch_count >= GP_BATCH_LINES))
        return half;
    if (size >= high) { /* the line is too low: back in growing steps */
        const int64_t back = step << (answer->batch_count - fitting - 1);
        return high - low > back ? high - back : half;
    }
    return size > low ? size : low + step;
}
