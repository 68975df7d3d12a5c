/* SPDX-License-Identifier: MIT
 *
 * verdicts.c: the lines that `gpuprof doctor` prints, and which checks were good; see
 * checks.h.  Called by doctor.c, checks.c and tracers.c.
 */
#include <cmd/checks.h>

#include <limits.h>
#include <show/terminal/term.h>
#include <show/text/write.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The checks that --need takes.  silent: printed only if something is wrong, so a check without
 * a line is good. */
static const struct gp_check_kind {
    const char *name;
    bool silent;
} check_kinds[] = {
    {"kernel", false},  {"library", false},  {"simulator", false}, {"injection", true}, {"shim", false},
    {"driver", false},  {"devices", false},  {"cupti", false},     {"nvml", false},     {"others", false},
    {"profiled", true}, {"bpf", false},      {"btf", false},       {"bpffs", false},    {"perf", false},
    {"users", false},   {"lockdown", false}, {"rights", false},    {"agent", false},    {"tables", true},
};

const char *gp_check_name(unsigned i)
{
    return i < GP_COUNT(check_kinds) ? check_kinds[i].name : NULL;
}

uint32_t gp_check_good(const struct gp_doctor *doctor)
{
    uint32_t silent = 0;
    for (unsigned i = 0; i < GP_COUNT(check_kinds); i++)
        silent |= check_kinds[i].silent ? 1u << i : 0;
    return (doctor->made | silent) & ~doctor->bad;
}

int gp_check_list(uint32_t bits, char *names, size_t names_bytes)
{
    int count = 0;
    names[0] = '\0';
    for (unsigned i = 0; i < GP_COUNT(check_kinds); i++) {
        size_t used = strlen(names);
        if (bits >> i & 1)
            snprintf(names + used, names_bytes - used, "%s%s", count++ ? ", " : "", check_kinds[i].name);
    }
    return count;
}

/* On a terminal, lines are folded between words, below the column where they began. */
static void check_text(const char *text)
{
    const int column = 20;
    int width = gp_term_width(), room = width > column + 20 ? width - column : INT_MAX;
    for (; (int)strlen(text) > room; text += strspn(text, " ")) {
        int at = room;
        while (at > 0 && text[at] != ' ')
            at--;
        at = at > 0 ? at : room;
        printf("%.*s\n%*s", at, text, column, "");
        text += at;
    }
    puts(text);
}

void gp_check(struct gp_doctor *doctor, const char *name, enum gp_verdict verdict, const char *fix, const char *format,
              ...)
{
    static const char *const verdicts[] = {"ok", "no", "unknown"}, *const colours[] = {GP_GREEN, GP_RED, GP_YELLOW};
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (unsigned i = 0; i < GP_COUNT(check_kinds); i++) {
        if (strcmp(check_kinds[i].name, name) != 0) /* "pid N" has no kind: there may be many */
            continue;
        doctor->made |= 1u << i;
        doctor->bad |= verdict != GP_OK ? 1u << i : 0;
    }
    if (!doctor->json) {
        printf("%-10s %s%-8s%s ", name, gp_tone(stdout, colours[verdict]), verdicts[verdict], gp_tone(stdout, GP_OFF));
        check_text(text);
        if (fix) {
            snprintf(text, sizeof(text), "-> %s", fix);
            printf("%19s ", "");
            check_text(text);
        }
        return;
    }
    json_t *check = json_pack("{s:s,s:s,s:s,s:o}", "check", name, "result", verdicts[verdict], "detail", text, "fix",
                              gp_json_text(fix));
    if (!check || json_array_append_new(doctor->checks, check) != 0)
        doctor->failed = true;
}
