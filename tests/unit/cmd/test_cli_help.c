/* SPDX-License-Identifier: MIT
 * test_cli_help.c: the help, the manual page and the completion scripts have every option of
 * every command, the examples are valid command lines, and the scripts work.  Run by the unit
 * tests. */
#include <cmd/help.h>

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BASH, ZSH, FISH, SHELLS };

static char *manpage(void)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    gp_manpage_write(out, gp_commands);
    fclose(out);
    return text;
}

static char *script(int shell)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    gp_completion_write(out, shell, gp_commands);
    fclose(out);
    return text;
}

/* Help is wrapped to the terminal, so it is written to a file, as open_memstream has no
 * descriptor. */
static char *help(const struct gp_command_spec *spec)
{
    FILE *out = tmpfile();
    cr_assert(out);
    if (spec)
        gp_help_command(out, spec);
    else
        gp_help_overview(out, gp_commands);
    size_t size = (size_t)ftell(out);
    char *text = calloc(1, size + 1);
    rewind(out);
    cr_assert_eq(fread(text, 1, size, out), size);
    fclose(out);
    return text;
}

/* The part of a text from `from` up to `to`, in memory of its own. */
static char *part(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    cr_assert(at, "no '%s' in:\n%s", from, text);
    const char *end = strstr(at + strlen(from), to);
    return end ? strndup(at, (size_t)(end - at)) : strdup(at);
}

static void has(const char *text, const char *word, const char *where, const struct gp_command_spec *spec)
{
    cr_expect(strstr(text, word), "%s of %s: no '%s' in:\n%s", where, spec->name, word, text);
}

static void check_choices(const struct gp_command_spec *spec, const struct gp_command_option *option,
                          const char *help_text, char *const scripts[SHELLS])
{
    static const char *const names[SHELLS] = {"bash", "zsh", "fish"};
    const char *word;
    for (unsigned i = 0; (word = gp_option_choice(option, i)); i++) {
        has(help_text, word, "help", spec);
        for (int shell = 0; shell < SHELLS; shell++)
            has(scripts[shell], word, names[shell], spec);
    }
}

static void check_option(const struct gp_command_spec *spec, const struct gp_command_option *option,
                         const char *help_text, const char *man, char *const scripts[SHELLS])
{
    char word[128], *at = word;
    snprintf(word, sizeof(word), "--%s", option->name);
    has(help_text, word, "help", spec);
    at += sprintf(at, "\\fB\\-\\-");
    for (const char *c = option->name; *c; c++)
        at += sprintf(at, "%s%c", *c == '-' ? "\\" : "", *c);
    sprintf(at, "\\fR");
    has(man, word, "man page", spec);
    snprintf(word, sizeof(word), "--%s ", option->name);
    has(scripts[BASH], word, "bash", spec);
    word[strlen(word) - 1] = '\0';
    has(scripts[ZSH], word, "zsh", spec);
    snprintf(word, sizeof(word), "'__gpuprof_command %s' -l %s", spec->name, option->name);
    has(scripts[FISH], word, "fish", spec);
    if (option->letter) {
        snprintf(word, sizeof(word), "\\fB\\-%c\\fR", option->letter);
        has(man, word, "man page", spec);
    }
    check_choices(spec, option, help_text, scripts);
}

Test(cli_help, every_option_is_in_help_man_page_and_completions)
{
    char *page = manpage(), *all[SHELLS] = {script(BASH), script(ZSH), script(FISH)}, *overview = help(NULL);
    for (int i = 0; gp_commands[i]; i++) {
        const struct gp_command_spec *spec = gp_commands[i];
        char from[64], *text = help(spec), *scripts[SHELLS] = {all[BASH], NULL, all[FISH]};
        snprintf(from, sizeof(from), "            %s) _arguments", spec->name);
        scripts[ZSH] = part(all[ZSH], from, " ;;");
        snprintf(from, sizeof(from), ".SS gpuprof %s\n", spec->name);
        char *man = part(page, from, ".S");
        has(overview, spec->summary, "overview", spec);
        has(page, spec->summary[0] ? spec->name : "", "man page", spec);
        for (const struct gp_command_option *option = spec->options; option && option->name; option++) {
            if (option->help)
                check_option(spec, option, text, man, scripts);
        }
        for (const struct gp_command_option *operand = spec->operands; operand && operand->name; operand++) {
            has(text, operand->name, "help", spec);
            has(man, operand->name, "man page", spec);
            if (spec != gp_command_find("help")) /* the commands themselves, which have texts of their own */
                check_choices(spec, operand, text, scripts);
        }
        free(text);
        free(man);
        free(scripts[ZSH]);
    }
    free(page);
    free(overview);
    for (int shell = 0; shell < SHELLS; shell++)
        free(all[shell]);
}

/* An option that names what an operand names too may be left out. */
Test(cli_help, usage_has_every_option)
{
    for (int i = 0; gp_commands[i]; i++) {
        const struct gp_command_spec *spec = gp_commands[i];
        for (const struct gp_command_option *option = spec->options; option && option->name; option++) {
            char name[64], letter[] = {'-', option->letter ? option->letter : '-', '\0'};
            bool found = !option->help;
            snprintf(name, sizeof(name), "--%s", option->name);
            for (unsigned k = 0; spec->usage[k]; k++)
                found |= strstr(spec->usage[k], name) || (option->letter && strstr(spec->usage[k], letter));
            for (const struct gp_command_option *o = spec->operands; o && o->name && option->argument; o++)
                found |= strcmp(o->name, option->argument) == 0;
            cr_expect(found, "gpuprof %s: the usage lacks --%s", spec->name, option->name);
        }
    }
}

Test(cli_help, option_names_and_letters_are_unique)
{
    for (int i = 0; gp_commands[i]; i++) {
        for (const struct gp_command_option *a = gp_commands[i]->options; a && a->name; a++) {
            cr_expect_str_neq(a->name, "help");
            cr_expect_neq(a->letter, 'h');
            for (const struct gp_command_option *b = a + 1; b->name; b++) {
                cr_expect_str_neq(a->name, b->name, "%s", gp_commands[i]->name);
                cr_expect(!a->letter || a->letter != b->letter, "%s: -%c", gp_commands[i]->name, a->letter);
            }
        }
    }
}

Test(cli_help, lines_fit_into_100_columns)
{
    for (int i = -1; i < 0 || gp_commands[i]; i++) {
        char *text = help(i < 0 ? NULL : gp_commands[i]), *state = text, *line;
        while ((line = strsep(&state, "\n"))) {
            cr_expect(strlen(line) <= 100, "%s: %s", i < 0 ? "overview" : gp_commands[i]->name, line);
            cr_expect(!line[0] || line[strlen(line) - 1] != ' ', "a space at the end: '%s'", line);
        }
        free(text);
    }
}

/* ---- examples ---------------------------------------------------------------------------------------------------- */

/* Parses the command line at `text` up to the end of the simple command; quotes are not needed
 * in our examples' own words. */
static void check_command_line(const char *text)
{
    char line[512], *words[32], *state = line, *word;
    int count = 0;
    bool help_asked;
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, ";|&>)"), text);
    while ((word = strsep(&state, " ")) && count < 31)
        if (*word)
            words[count++] = word;
    words[count] = NULL;
    cr_assert_geq(count, 1);
    if (count == 1)
        return;
    const struct gp_command_spec *spec = gp_command_find(words[1]);
    cr_assert(spec, "%s", text);
    void *options = calloc(1, spec->bytes);
    cr_expect_eq(gp_command_parse(spec, count - 1, words + 1, options, &help_asked), GP_EXIT_OK, "%s", text);
    cr_expect(!help_asked);
    gp_options_free(spec, options);
    free(options);
}

Test(cli_help, examples_are_valid_command_lines)
{
    for (int i = 0; gp_commands[i]; i++) {
        const struct gp_command_example *example = gp_commands[i]->examples;
        int own = 0;
        cr_assert(example && example->line, "%s has no example", gp_commands[i]->name);
        for (; example->line; example++) {
            char begin[64];
            snprintf(begin, sizeof(begin), "gpuprof %s", gp_commands[i]->name);
            own += strstr(example->line, begin) != NULL;
            cr_expect_eq(example->what[strlen(example->what) - 1], '.', "%s", example->what);
            for (const char *at = example->line; (at = strstr(at, "gpuprof ")); at++) {
                if (at == example->line || strchr(" (", at[-1]))
                    check_command_line(at);
            }
        }
        cr_expect_geq(own, 1, "%s: no example uses it", gp_commands[i]->name);
    }
}

/* ---- roff and the shells ----------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/gpuprof-test-XXXXXX";

static const char *file(const char *name, char *text)
{
    static char path[128];
    static bool made; /* one of 62 names of a folder ends in X, too */
    if (!made)
        cr_assert(mkdtemp(folder));
    made = true;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *out = fopen(path, "w");
    cr_assert(out && fputs(text, out) >= 0 && fclose(out) == 0);
    free(text);
    return path;
}

static void clean(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

/* Exit status of a shell command, its output (both streams) in memory of the caller. */
static int shell(char **output, const char *format, const char *a, const char *b)
{
    char line[1024];
    size_t size = 1 << 16;
    snprintf(line, sizeof(line), format, a, b);
    FILE *pipe = popen(line, "r");
    cr_assert(pipe);
    *output = calloc(1, size);
    for (size_t used = 0, n = 1; n; used += n)
        n = fread(*output + used, 1, size - 1 - used, pipe);
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void need(const char *program)
{
    char *output;
    int status = shell(&output, "command -v %s%s", program, "");
    free(output);
    if (status != 0)
        cr_skip("%s is not installed", program);
}

Test(cli_help, the_man_page_has_no_warnings, .fini = clean)
{
    char *output;
    need("groff");
    const char *path = file("gpuprof.1", manpage());
    cr_expect_eq(shell(&output, "groff -ww -man -Tutf8 %s%s 2>&1 >/dev/null", path, ""), 0);
    cr_expect_str_empty(output, "%s", output);
    free(output);
}

Test(cli_help, the_zsh_script_is_valid, .fini = clean)
{
    char *output;
    need("zsh");
    const char *path = file("_gpuprof", script(ZSH));
    cr_expect_eq(shell(&output, "zsh -n %s%s 2>&1", path, ""), 0, "%s", output);
    free(output);
    /* As docs/install.md has it, with `source`: it registers itself. */
    cr_expect_eq(shell(&output, "zsh -fc 'autoload -U compinit; compinit -uD; source %s%s; echo $_comps[gpuprof]' 2>&1",
                       path, ""),
                 0);
    cr_expect_str_eq(output, "_gpuprof\n");
    free(output);
}

Test(cli_help, the_fish_script_is_valid, .fini = clean)
{
    char *output;
    need("fish");
    const char *path = file("gpuprof.fish", script(FISH));
    cr_expect_eq(shell(&output, "fish --no-config -n %s%s 2>&1", path, ""), 0, "%s", output);
    free(output);
    /* The description stands beside the option, and not again beside each of its values. */
    cr_expect_eq(shell(&output, "fish --no-config -c 'source %s; complete -C \"gpuprof diff --by=\"; %s", path,
                       "complete -C \"gpuprof completion z\"; complete -C \"gpuprof diff --b\"' 2>&1"),
                 0);
    cr_expect(strstr(output, "--by=line\n") && strstr(output, "--by=use\n"), "%s", output);
    cr_expect(strstr(output, "zsh\n") && strstr(output, "--by\twhat a row is"), "%s", output);
    free(output);
}

Test(cli_help, bash_completes, .fini = clean)
{
    static const struct {
        const char *words, *replies;
    } cases[] = {
        {"gpuprof re", "reset record report reconcile replay"},
        {"gpuprof --v", "--version"},
        {"gpuprof run --su", "--summary"},
        {"gpuprof stat -", "-p --pid -a --all --system --device --json --summary --watch --pins -h --help"},
        {"gpuprof run --stacks ''", "off native python all"},
        {"gpuprof run --stacks = n", "native"}, /* as readline splits --stacks=n */
        {"gpuprof run --stacks=n", "--stacks=native"},
        {"gpuprof run --sim --su", "--summary"}, /* an optional argument needs '=' */
        {"gpuprof top --by s", "site"},
        {"gpuprof top --sort at", "AT-PEAK"}, /* in capitals or not */
        {"gpuprof trace --kind linear,pi", "linear,pitched linear,pinned"},
        {"gpuprof export x --format = p", "pprof"},
        {"gpuprof scope b", "begin"},
        {"gpuprof scope -p 1 l", "list"},
        {"gpuprof help sn", "snapshot"},
        {"gpuprof completion ''", "bash zsh fish"},
        {"gpuprof report here", "here.gpuprof"},
        {"gpuprof diff a.gpuprof here", "here.gpuprof"},
        {"gpuprof run --record = here", "here.gpuprof"},
        {"gpuprof run -- cat here.t", "here.txt"}, /* behind the program: any file */
        {"gpuprof run cat --su", ""},              /* and none of our options */
        {"gpuprof trace -p 1 --min 1 gpuprof-test-pro", "gpuprof-test-program"},
        {"./gpuprof stat -p 1", "12 134"},
        {"./gpuprof stat -p 12,1", "12,12 12,134"},
        {"gpuprof agent --ring 4", ""},
    };
    char path[128], *output;
    file("gpuprof-test-program", strdup("#!/bin/sh\n"));
    file("here.gpuprof", strdup(""));
    file("here.txt", strdup(""));
    /* The output of `gpuprof stat --all --json` for two processes. */
    file("gpuprof",
         strdup("#!/bin/sh\nprintf ' \"processes\": [\\n   \"pid\": 12,\\n    \"pid\": 7,\\n   \"pid\": 134,\\n'\n"));
    cr_assert_eq(shell(&output, "chmod 755 %s/gpuprof %s/gpuprof-test-program", folder, folder), 0);
    free(output);
    snprintf(path, sizeof(path), "%s", file("gpuprof.bash", script(BASH)));
    for (size_t i = 0; i < GP_COUNT(cases); i++) {
        char words[256];
        snprintf(words, sizeof(words),
                 "COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _gpuprof; echo \"${COMPREPLY[*]}\"",
                 cases[i].words);
        char line[1024];
        snprintf(line, sizeof(line),
                 "cd %s && PATH=$PWD:$PATH bash --norc -c '. %s; '\"$(cat <<'END'\n%s\nEND\n)\" 2>&1", folder, path,
                 words);
        cr_assert_eq(shell(&output, "%s%s", line, ""), 0, "%s: %s", cases[i].words, output);
        output[strcspn(output, "\n")] = '\0';
        cr_expect_str_eq(output, cases[i].replies, "%s: '%s' instead of '%s'", cases[i].words, output,
                         cases[i].replies);
        free(output);
    }
}
