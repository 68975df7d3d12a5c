/* SPDX-License-Identifier: MIT
 *
 * main.c: the `gpuprof` command: finds the sub-command and runs it.  tools/cmd/commands.c has the
 * table.
 */
#include <cmd/help.h>
#include <gpuprof/gpuprof.h>

#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int main_dispatch(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "--help";
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("gpuprof " GPUPROF_VERSION "\n");
        return GP_EXIT_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        gp_help_overview(stdout, gp_commands);
        return argc > 1 ? GP_EXIT_OK : GP_EXIT_USAGE;
    }
    if (word[0] == '-')
        return gp_usage_error(NULL, "%s: unknown option", word);
    if (gp_launch_is_script(word)) { /* `gpuprof run SCRIPT` */
        argv[0] = (char *)gp_command_run.name;
        return gp_command_main(&gp_command_run, argc, argv);
    }
    const struct gp_command_spec *spec = gp_command_find(word);
    return spec ? gp_command_main(spec, argc - 1, argv + 1) : GP_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, ""); /* wide characters in top; numbers stay in the C locale for scripts */
    int rc = main_dispatch(argc, argv);
    /* A full disk or a closed pipe may show only now, and must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == GP_EXIT_OK) {
        /* A reader that has enough, such as head, is no error to talk about. */
        struct pollfd out = {.fd = STDOUT_FILENO};
        if (poll(&out, 1, 0) != 1 || !(out.revents & POLLERR))
            gp_error(NULL, "cannot write to stdout");
        rc = GP_EXIT_FAILED;
    }
    return rc;
}
