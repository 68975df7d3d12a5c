/* SPDX-License-Identifier: MIT
 * budget.c: the list of budgets, and the file that names them; see budget.h.
 */
#include <show/gate/budget.h>

#include <analyze/report.h>
#include <ctype.h>
#include <errno.h>
#include <read/common/parse.h>
#include <stdlib.h>
#include <string.h>

#define GP_BUDGET_LINE_BYTES 1024u
#define GP_BUDGETS_MOST      10000u

static const char *const budget_kinds[GP_BUDGET_KINDS] = {
    [GP_BUDGET_PEAK] = "peak",           [GP_BUDGET_RESERVED] = "reserved", [GP_BUDGET_END] = "end",
    [GP_BUDGET_HOST] = "host",           [GP_BUDGET_ASLEEP] = "asleep",     [GP_BUDGET_LEAK] = "leak",
    [GP_BUDGET_RANK] = "rank",           [GP_BUDGET_USE] = "use",           [GP_BUDGET_LINE] = "line",
    [GP_BUDGET_OPERATION] = "operation", [GP_BUDGET_PHASE] = "phase"};

const char *gp_budget_kind_name(enum gp_budget_kind kind)
{
    return budget_kinds[kind];
}

bool gp_budgets_add(struct gp_budgets *budgets, const struct gp_budget *budget)
{
    struct gp_budget *rows = realloc(budgets->rows, (budgets->count + 1ul) * sizeof(*rows));
    char *copy = strdup(budget->name);
    if (rows)
        budgets->rows = rows;
    if (!rows || !copy) {
        free(copy);
        return false;
    }
    rows[budgets->count] = *budget;
    rows[budgets->count++].name = copy;
    return true;
}

void gp_budgets_free(struct gp_budgets *budgets)
{
    for (uint32_t i = 0; i < budgets->count; i++)
        free(budgets->rows[i].name);
    free(budgets->rows);
    *budgets = (struct gp_budgets){0};
}

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t length = strlen(text); length && isspace((unsigned char)text[length - 1]);)
        text[--length] = '\0';
    return text;
}

static bool is_use(const char *name)
{
    for (int use = 0; use < GP_USES; use++)
        if (strcmp(name, gp_use_name((enum gp_use)use)) == 0)
            return true;
    return false;
}

/* The blank before the size, which is the last word, or the last two as in "8 GiB"; NULL none. */
static char *budget_blank(char *line)
{
    char *at = line + strlen(line);
    for (int words = 0; words < 2; words++) {
        while (at > line && !isspace((unsigned char)at[-1]))
            at--;
        if (at == line)
            return NULL;
        if (isdigit((unsigned char)*at) || words)
            break;
        while (at > line && isspace((unsigned char)at[-1]))
            at--;
    }
    return at - 1;
}

/* "KIND [NAME] SIZE".  0, -ENOMEM, or -EPROTO with the problem. */
static int budget_line(struct gp_budgets *budgets, char *line, char why[GP_TEXT_WHY], const char **problem)
{
    int kind = 0, rc;
    int64_t bytes = -1, number = 0;
    double percent = 0;
    char *size = budget_blank(line);
    *problem = "a budget is a word such as 'peak', for some a name, and a size";
    if (!size)
        return -EPROTO;
    rc = gp_text_percent_parse(size + 1, &percent);
    if (rc)
        rc = gp_text_size_parse(size + 1, &bytes);
    if (rc == -EDOM)
        *problem = gp_text_size_why(why, size + 1);
    if (rc)
        return -EPROTO;
    *size = '\0';
    trimmed(line);
    size_t word = strcspn(line, " \t");
    const char *name = "";
    if (line[word]) {
        line[word] = '\0';
        name = trimmed(line + word + 1);
    }
    while (kind < GP_BUDGET_KINDS && strcmp(line, budget_kinds[kind]) != 0)
        kind++;
    *problem = "unknown: budgets are peak, reserved, end, host, asleep, leak, rank, use, line, operation and phase";
    if (kind == GP_BUDGET_KINDS)
        return -EPROTO;
    *problem = kind < GP_BUDGET_RANK ? "this budget has no name" : "this budget needs a name before its size";
    if ((kind < GP_BUDGET_RANK) == (name[0] != '\0'))
        return -EPROTO;
    *problem = "a rank is a number";
    if (kind == GP_BUDGET_RANK && gp_parse_number(name, 0, INT32_MAX, &number) != 0)
        return -EPROTO;
    *problem = "no use of this name: 'gpuprof phases --json' lists those of a recording";
    if (kind == GP_BUDGET_USE && !is_use(name))
        return -EPROTO;
    *problem = "too many budgets";
    if (budgets->count == GP_BUDGETS_MOST)
        return -EPROTO;
    *problem = "a percentage is of a GPU's memory: of peak, reserved, end, asleep and rank alone";
    if (percent > 0 && (kind == GP_BUDGET_HOST || kind == GP_BUDGET_LEAK || kind > GP_BUDGET_RANK))
        return -EPROTO;
    const struct gp_budget budget = {
        .kind = (enum gp_budget_kind)kind, .name = (char *)name, .number = number, .bytes = bytes, .percent = percent};
    return gp_budgets_add(budgets, &budget) ? 0 : -ENOMEM;
}

int gp_budgets_read(struct gp_budgets *budgets, const char *path, char *why, size_t why_bytes)
{
    char line[GP_BUDGET_LINE_BYTES];
    const char *problem;
    char size[GP_TEXT_WHY];
    unsigned number = 0;
    const uint32_t before = budgets->count;
    FILE *in = fopen(path, "re");
    if (!in)
        return -errno;
    int rc = 0;
    while (!rc && fgets(line, sizeof(line), in)) {
        number++;
        if (!strchr(line, '\n') && !feof(in)) {
            snprintf(why, why_bytes, "line %u: too long", number);
            rc = -EPROTO;
            break;
        }
        line[strcspn(line, "#")] = '\0';
        char *text = trimmed(line);
        rc = text[0] ? budget_line(budgets, text, size, &problem) : 0;
        if (rc == -EPROTO)
            snprintf(why, why_bytes, "line %u: %s", number, problem);
    }
    if (!rc && ferror(in))
        rc = -EIO;
    if (!rc && budgets->count == before) { /* a check of nothing would always be passed */
        snprintf(why, why_bytes, "the file holds no budget");
        rc = -EPROTO;
    }
    fclose(in);
    return rc;
}
