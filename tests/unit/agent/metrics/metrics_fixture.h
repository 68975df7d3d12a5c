/* SPDX-License-Identifier: MIT
 *
 * metrics_fixture.h: pages of metrics of made-up machines, and the sums over their samples.
 */
#ifndef GP_TEST_UNIT_METRICS_FIXTURE_H
#define GP_TEST_UNIT_METRICS_FIXTURE_H

#include <agent/metrics/metrics.h>
#include <lib/fakeview.h>

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1ll << 30)

static inline struct gp_metrics *open_metrics(struct gp_fake_machine *machine, struct gp_metrics_options options)
{
    struct gp_metrics_source source = {.read = gp_fake_read, .free = gp_fake_free, .arg = machine};
    struct gp_metrics *metrics = NULL;
    if (!options.root)
        options.root = "/nonexistent";
    options.version = "9.8.7";
    cr_assert_eq(gp_metrics_open(&metrics, &options, &source), 0);
    return metrics;
}

static inline char *render(struct gp_metrics *metrics, enum gp_metrics_format format)
{
    char *text;
    size_t bytes;
    cr_assert_eq(gp_metrics_render(metrics, format, &text, &bytes), 0);
    cr_assert_eq(strlen(text), bytes);
    return text;
}

/* The sum of the family's samples whose line contains `with` ("": all); -1 if there is no sample. */
static inline int64_t sum(const char *text, const char *name, const char *with)
{
    size_t n = strlen(name);
    int64_t total = -1;
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        cr_assert_not_null(end, "the last line has no end");
        if (strncmp(line, name, n) == 0 && (line[n] == '{' || line[n] == ' ')) {
            char one[2048];
            cr_assert_lt(end - line, (long)sizeof(one));
            snprintf(one, sizeof(one), "%.*s", (int)(end - line), line);
            if (strstr(one, with))
                total = (total < 0 ? 0 : total) + strtoll(strrchr(one, ' ') + 1, NULL, 10);
        }
        line = end + 1;
    }
    return total;
}

static inline int order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Counts the samples on the page and checks that no two have the same name and labels. */
static inline unsigned samples(const char *text)
{
    char *copy = strdup(text), *save = NULL;
    char **series = calloc(100000, sizeof(*series));
    unsigned count = 0;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '#')
            continue;
        *strrchr(line, ' ') = '\0';
        series[count++] = line;
    }
    qsort(series, count, sizeof(*series), order);
    for (unsigned i = 1; i < count; i++)
        cr_assert_str_neq(series[i - 1], series[i], "twice");
    free(series);
    free(copy);
    return count;
}

/* More containers, processes and devices than the limit has room for. */
static inline void crowd(struct gp_fake_machine *machine, uint32_t containers, uint32_t devices)
{
    char comm[16];
    for (uint32_t c = 0; c < containers; c++) {
        snprintf(comm, sizeof(comm), "job%u", c);
        for (uint32_t d = 0; d < devices; d++)
            gp_fake_add(machine, 1000 + c * devices + d, 5000 + c, d, (c + 1) * 1000, (c + 1) * 2000, comm);
    }
}

#endif
