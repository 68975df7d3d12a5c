/* SPDX-License-Identifier: MIT
 *
 * completion.c: completion scripts for bash, zsh and fish, made from the tables of the commands.
 * Called by commands.c for `gpuprof completion SHELL`.  The scripts run `gpuprof stat --all --json`
 * to find process numbers.
 */
#include <cmd/help.h>

#include <string.h>

const char *const gp_completion_shells[] = {"bash", "zsh", "fish", NULL};

/* Lists the process numbers, one per line: the key "pid" of the objects in "processes", which
 * jansson indents by 3. */
#define GP_COMPLETION_PIDS(_gpuprof)                                                                                   \
    _gpuprof " stat --all --json 2>/dev/null | sed -n 's/^   \"pid\": \\([0-9]*\\),*$/\\1/p'"

typedef void completion_fn(FILE *out, const struct gp_command_spec *spec, const struct gp_command_option *option);

static void completion_choices(FILE *out, const struct gp_command_option *option)
{
    const char *word;
    for (unsigned i = 0; (word = gp_option_choice(option, i)); i++)
        fprintf(out, "%s%s", i ? " " : "", word);
}

static bool completion_has_choices(const struct gp_command_option *option)
{
    return gp_option_choice(option, 0) != NULL;
}

static void completion_each(FILE *out, const struct gp_command_spec *spec, const struct gp_command_option *options,
                            completion_fn *print)
{
    for (; options && options->name; options++) {
        if (options->help)
            print(out, spec, options);
    }
}

/* Prints text inside quotes of the shell: the characters of `escaped` get a backslash. */
static void completion_text(FILE *out, const char *text, const char *escaped)
{
    for (; *text; text++) {
        if (*text == '\'' && !strchr(escaped, '\''))
            fputs("'\\''", out); /* zsh: end the quotation, write a quote, start it again */
        else
            fprintf(out, "%s%c", strchr(escaped, *text) ? "\\" : "", *text);
    }
}

/* ---- bash -------------------------------------------------------------------------------------------------------- */

static const char bash_head[] =
    "# bash completion for gpuprof, written by 'gpuprof completion bash'.\n"
    "_gpuprof_pids() {\n"
    "    " GP_COMPLETION_PIDS(
        "\"$1\"") "\n"
                  "}\n"
                  "# Completes $cur, or the part after its last comma: $1 what, $2 words.\n"
                  "_gpuprof_value() {\n"
                  "    local before= part=$cur IFS=$' \\t\\n'\n"
                  "    case $1 in recording | file) IFS=$'\\n' ;; esac\n"
                  "    case $1 in list | pids) before=${cur%\"${cur##*,}\"} part=${cur##*,} ;; esac\n"
                  "    case $1 in\n"
                  "        words | list) COMPREPLY=($(compgen -P \"$before\" -W \"$2\" -- \"$part\")) ;;\n"
                  "        nocase)\n"
                  "            local word\n"
                  "            for word in $2; do [[ ${word,,} == \"${cur,,}\"* ]] && COMPREPLY+=(\"$word\"); done ;;\n"
                  "        pids) COMPREPLY=($(compgen -P \"$before\" -W \"$(_gpuprof_pids \"${COMP_WORDS[0]}\")\" -- "
                  "\"$part\")) ;;\n"
                  "        recording)\n"
                  "            compopt -o filenames 2>/dev/null\n"
                  "            COMPREPLY=($(compgen -f -X '!*.gpuprof' -- \"$cur\") $(compgen -d -- \"$cur\")) ;;\n"
                  "        file)\n"
                  "            compopt -o filenames 2>/dev/null\n"
                  "            COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
                  "    esac\n"
                  "}\n"
                  "_gpuprof() {\n"
                  "    local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} "
                  "prefix= i\n"
                  "    local command=${COMP_WORDS[1]} options= values= program= start= operand=0\n"
                  "    COMPREPLY=()\n"
                  "    # Readline makes '=' a word of its own.\n"
                  "    if [[ $cur == = ]]; then\n"
                  "        cur=\n"
                  "    elif [[ $previous == = ]]; then\n"
                  "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
                  "    elif [[ $cur == --*=* ]]; then\n"
                  "        previous=${cur%%=*} prefix=$previous= cur=${cur#*=}\n"
                  "    fi\n";

static const char bash_tail[] =
    "    # Counts the operands before this word, and finds the program, whose words are not ours.\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in\n"
    "            --) [[ $program ]] && start=$((i + 1)) && break ;;\n"
    "            =) ((i++)) ;;\n"
    "            -*) [[ \" $values \" == *\" ${COMP_WORDS[i]} \"* && ${COMP_WORDS[i + 1]} != = ]] && ((i++)) ;;\n"
    "            *) [[ $program ]] && start=$i && break\n"
    "                ((operand++)) ;;\n"
    "        esac\n"
    "    done\n"
    "    if [[ ! $start ]] && _gpuprof_option \"$command\" \"$previous\"; then\n"
    "        [[ $prefix ]] && COMPREPLY=(\"${COMPREPLY[@]/#/$prefix}\")\n"
    "        return\n"
    "    fi\n"
    "    [[ $program && ! $start && $cur != -* ]] && start=$COMP_CWORD\n"
    "    if [[ $start ]]; then\n"
    "        if declare -F _command_offset >/dev/null; then\n"
    "            _command_offset \"$start\"\n"
    "        elif ((start == COMP_CWORD)); then\n"
    "            COMPREPLY=($(compgen -c -- \"$cur\"))\n"
    "        else\n"
    "            _gpuprof_value file\n"
    "        fi\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$options -h --help\" -- \"$cur\"))\n"
    "    else\n"
    "        _gpuprof_operand \"$command\" \"$operand\"\n"
    "    fi\n"
    "}\n"
    "complete -F _gpuprof gpuprof\n";

static void bash_value(FILE *out, const struct gp_command_option *option)
{
    if (completion_has_choices(option)) {
        fprintf(out, "_gpuprof_value %s '",
                option->any_case              ? "nocase"
                : option->type == GP_ARG_LIST ? "list"
                                              : "words");
        completion_choices(out, option);
        fputc('\'', out);
    } else if (option->type == GP_ARG_PID || option->type == GP_ARG_PIDS) {
        fputs("_gpuprof_value pids", out);
    } else if (option->type == GP_ARG_RECORDING || option->type == GP_ARG_RECORDINGS) {
        fputs("_gpuprof_value recording", out);
    } else if (option->type == GP_ARG_FILE) {
        fputs("_gpuprof_value file", out);
    } else {
        fputs(":", out);
    }
}

static void bash_option_name(FILE *out, const struct gp_command_spec *spec, const struct gp_command_option *option)
{
    (void)spec;
    if (option->letter)
        fprintf(out, "-%c ", option->letter);
    fprintf(out, "--%s ", option->name);
}

/* Options whose argument may be a word of its own. */
static void bash_value_name(FILE *out, const struct gp_command_spec *spec, const struct gp_command_option *option)
{
    if (option->argument && !option->optional)
        bash_option_name(out, spec, option);
}

static void bash_option(FILE *out, const struct gp_command_spec *spec, const struct gp_command_option *option)
{
    if (!option->argument)
        return;
    fprintf(out, "        '%s --%s'", spec->name, option->name);
    if (option->letter)
        fprintf(out, " | '%s -%c'", spec->name, option->letter);
    fputs(") ", out);
    if (option->optional) /* only after '=' */
        fputs("[[ $prefix || ${COMP_WORDS[COMP_CWORD]} == = || ${COMP_WORDS[COMP_CWORD - 1]} == = ]] || return 1; ",
              out);
    bash_value(out, option);
    fputs(" ;;\n", out);
}

static void bash_write(FILE *out, const struct gp_command_spec *const *commands)
{
    fputs(bash_head, out);
    fprintf(out, "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '");
    for (int i = 0; commands[i]; i++)
        fprintf(out, "%s ", commands[i]->name);
    fprintf(out, "--help --version' -- \"$cur\"))\n        return\n    fi\n    case $command in\n");
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "        %s) options='", commands[i]->name);
        completion_each(out, commands[i], commands[i]->options, bash_option_name);
        fputs("' values='", out);
        completion_each(out, commands[i], commands[i]->options, bash_value_name);
        fprintf(out, "'%s ;;\n",
                commands[i]->operands && commands[i]->operands->type == GP_ARG_PROGRAM ? " program=1" : "");
    }
    fprintf(out, "    esac\n");
    fputs(bash_tail, out);
    fprintf(out, "_gpuprof_option() {\n    case \"$1 $2\" in\n");
    for (int i = 0; commands[i]; i++)
        completion_each(out, commands[i], commands[i]->options, bash_option);
    fprintf(out, "        *) return 1 ;;\n    esac\n    return 0\n}\n_gpuprof_operand() {\n    case \"$1 $2\" in\n");
    for (int i = 0; commands[i]; i++) {
        const struct gp_command_option *operands = commands[i]->operands;
        for (int k = 0; operands && operands[k].name && operands[k].type != GP_ARG_PROGRAM; k++) {
            fprintf(out, "        '%s %d') ", commands[i]->name, k);
            bash_value(out, &operands[k]);
            fputs(" ;;\n", out);
        }
    }
    fprintf(out, "    esac\n}\n");
}

/* ---- zsh --------------------------------------------------------------------------------------------------------- */

static const char zsh_head[] = "#compdef gpuprof\n"
                               "# zsh completion for gpuprof, written by 'gpuprof completion zsh'.\n"
                               "_gpuprof_pids() {\n"
                               "    local -a pids\n"
                               "    pids=(${(f)\"$(" GP_COMPLETION_PIDS(
                                   "$service") ")\"})\n"
                                               "    (( $#pids )) && _values -s , process $pids\n"
                                               "}\n"
                                               "_gpuprof_recordings() { _files -g '*.gpuprof' }\n"
                                               "_gpuprof() {\n"
                                               "    local curcontext=$curcontext context state state_descr line\n"
                                               "    local -A opt_args\n"
                                               "    _arguments -C '(- *)'{-h,--help}'[list the commands]' "
                                               "'(- *)'{-V,--version}'[print the version]' \\\n"
                                               "        '1:command:->command' '*::argument:->argument'\n"
                                               "    case $state in\n"
                                               "        command)\n"
                                               "            local -a commands\n"
                                               "            commands=(\n";

/* ":NAME:action" and the quote that ends the specification. */
static void zsh_value(FILE *out, const struct gp_command_option *option, const char *name)
{
    fputc(':', out);
    completion_text(out, name, ":\\");
    fputc(':', out);
    if (completion_has_choices(option)) {
        bool list = option->type == GP_ARG_LIST;
        fputs(list ? "_values -s , choice " : "(", out);
        completion_choices(out, option);
        fputs(list ? "" : ")", out);
    } else if (option->type == GP_ARG_PID || option->type == GP_ARG_PIDS) {
        fputs("_gpuprof_pids", out);
    } else if (option->type == GP_ARG_RECORDING || option->type == GP_ARG_RECORDINGS) {
        fputs("_gpuprof_recordings", out);
    } else if (option->type == GP_ARG_FILE) {
        fputs("_files", out);
    }
    fputc('\'', out);
}

static void zsh_option(FILE *out, const struct gp_command_spec *spec, const struct gp_command_option *option)
{
    const char *equals = !option->argument ? "" : option->optional ? "=-" : "=";
    (void)spec;
    fprintf(out, " \\\n                ");
    if (option->letter)
        fprintf(out, "'(-%c --%s)'{-%c%s,--%s%s}'[", option->letter, option->name, option->letter,
                option->argument ? "+" : "", option->name, equals);
    else
        fprintf(out, "'--%s%s[", option->name, equals);
    completion_text(out, option->help, "[]\\");
    fprintf(out, "]%s", option->optional ? ":" : ""); /* "::" marks an optional argument */
    if (option->argument)
        zsh_value(out, option, option->argument);
    else
        fputc('\'', out);
}

static void zsh_operand(FILE *out, const struct gp_command_spec *spec, const struct gp_command_option *operand)
{
    (void)spec;
    if (operand->type == GP_ARG_PROGRAM) {
        fprintf(out, " \\\n                '(-)1:program:_command_names -e' '*::argument:_normal'");
        return;
    }
    fprintf(out, " \\\n                '%s", operand->type == GP_ARG_RECORDINGS ? "*" : "");
    zsh_value(out, operand, operand->name);
}

static void zsh_write(FILE *out, const struct gp_command_spec *const *commands)
{
    fputs(zsh_head, out);
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "                '%s:", commands[i]->name);
        completion_text(out, commands[i]->summary, "\\");
        fprintf(out, "'\n");
    }
    fprintf(out, "            )\n            _describe -t commands command commands ;;\n"
                 "        argument) case $words[1] in\n");
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "            %s) _arguments -s -S '(- *)'{-h,--help}'[print the help]'", commands[i]->name);
        completion_each(out, commands[i], commands[i]->options, zsh_option);
        completion_each(out, commands[i], commands[i]->operands, zsh_operand);
        fprintf(out, " ;;\n");
    }
    /* From a folder of fpath this file is the function; `source` has to register it. */
    fprintf(out, "        esac ;;\n    esac\n}\nif [ \"$funcstack[1]\" = _gpuprof ]; then\n    _gpuprof \"$@\"\n"
                 "else\n    compdef _gpuprof gpuprof\nfi\n");
}

/* ---- fish -------------------------------------------------------------------------------------------------------- */

static const char fish_head[] =
    "# fish completion for gpuprof, written by 'gpuprof completion fish'.\n"
    "function __gpuprof_command -d 'Test whether the command is $argv[1]'\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -ge 2; and test \"$words[2]\" = \"$argv[1]\"\n"
    "end\n"
    "function __gpuprof_pids\n"
    "    " GP_COMPLETION_PIDS(
        "command gpuprof") "\n"
                           "end\n"
                           "function __gpuprof_recordings\n"
                           "    __fish_complete_suffix .gpuprof\n"
                           "end\n"
                           "complete -c gpuprof -f\n"
                           "complete -c gpuprof -n __fish_use_subcommand -s h -l help -d 'list the commands'\n"
                           "complete -c gpuprof -n __fish_use_subcommand -s V -l version -d 'print the version'\n";

/* A value ends in a tab: else fish shows the description of the option beside each of them. */
static void fish_value(FILE *out, const struct gp_command_option *option)
{
    const char *word;
    if (completion_has_choices(option)) {
        bool list = option->type == GP_ARG_LIST;
        fputs(list ? " -a '(__fish_append ," : " -a '", out);
        for (unsigned i = 0; (word = gp_option_choice(option, i)); i++)
            fprintf(out, "%s%s%s", i || list ? " " : "", word, list ? "" : "\\t");
        fputs(list ? ")\\t'" : "'", out);
    } else if (option->type == GP_ARG_PID || option->type == GP_ARG_PIDS) {
        fputs(" -a '(__gpuprof_pids)\\t'", out);
    } else if (option->type == GP_ARG_RECORDING || option->type == GP_ARG_RECORDINGS) {
        fputs(" -a '(__gpuprof_recordings)'", out);
    } else if (option->type == GP_ARG_FILE) {
        fputs(" -F", out);
    } else if (option->type == GP_ARG_PROGRAM) {
        fputs(" -a '(__fish_complete_subcommand --fcs-skip=2)'", out);
    }
}

static void fish_option(FILE *out, const struct gp_command_spec *spec, const struct gp_command_option *option)
{
    fprintf(out, "complete -c gpuprof -n '__gpuprof_command %s' -l %s", spec->name, option->name);
    if (option->letter)
        fprintf(out, " -s %c", option->letter);
    if (option->argument && !option->optional)
        fputs(option->type == GP_ARG_FILE ? " -r" : " -x", out);
    if (option->argument)
        fish_value(out, option);
    fputs(" -d '", out);
    completion_text(out, option->help, "'\\");
    fputs("'\n", out);
}

static void fish_operand(FILE *out, const struct gp_command_spec *spec, const struct gp_command_option *operand)
{
    fprintf(out, "complete -c gpuprof -n '__gpuprof_command %s'", spec->name);
    fish_value(out, operand);
    fputc('\n', out);
}

static void fish_write(FILE *out, const struct gp_command_spec *const *commands)
{
    fputs(fish_head, out);
    for (int i = 0; commands[i]; i++) {
        fprintf(out, "complete -c gpuprof -n __fish_use_subcommand -a %s -d '", commands[i]->name);
        completion_text(out, commands[i]->summary, "'\\");
        fprintf(out, "'\ncomplete -c gpuprof -n '__gpuprof_command %s' -s h -l help -d 'print the help'\n",
                commands[i]->name);
        completion_each(out, commands[i], commands[i]->options, fish_option);
        completion_each(out, commands[i], commands[i]->operands, fish_operand);
    }
}

void gp_completion_write(FILE *out, int shell, const struct gp_command_spec *const *commands)
{
    static void (*const write[])(FILE *, const struct gp_command_spec *const *) = {bash_write, zsh_write, fish_write};
    write[shell](out, commands);
}
