/* SPDX-License-Identifier: MIT
 * scope.c: `gpuprof scope` (named watermarks) and `gpuprof mark` (a named instant).  Called by main.c. */
#include <cmd/cmd.h>
#include <write/write.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char scope_help[] =
    "usage: gpuprof scope (begin|end|list) [NAME] -p PID [--json]\n"
    "\n"
    "A scope is a peak of its own, from its begin to its end; it disturbs nobody else's.  Up to 16 at a time.\n"
    "\n"
    "  begin NAME         starts a scope\n"
    "  end NAME           ends it and prints its peaks\n"
    "  list               prints the scopes that are begun, with their peaks so far\n"
    "  -p, --pid PID      the process; without: your only profiled process\n"
    "      --json         schema gpuprof.scope/1\n";

static const char mark_help[] =
    "usage: gpuprof mark NAME -p PID\n"
    "\n"
    "Writes a mark (at most 31 bytes) into the events of a process: 'gpuprof trace' shows it among the allocations.\n"
    "\n"
    "  -p, --pid PID      the process; without: your only profiled process\n";

struct gp_scope_options {
    struct gp_target target;
    bool json, help;
    char **words; /* what is left after the options */
    int word_count;
};

static int scope_parse(int argc, char **argv, struct gp_scope_options *o)
{
    static const struct option options[] = {{"pid", required_argument, NULL, 'p'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && (c = getopt_long(argc, argv, ":p:h", options, NULL)) != -1) {
        if (c == 'p')
            rc = gp_target_pids(&o->target, optarg);
        else if (c == 'j')
            o->json = true;
        else if (c == 'h')
            o->help = true;
        else
            return gp_option_error(argv[0], c, argv, optind, optopt);
    }
    if (!rc && o->target.pid_count > 1)
        rc = gp_usage_error(argv[0], "-p: one process at a time");
    o->words = argv + optind;
    o->word_count = argc - optind;
    return rc;
}

/* `most` counts the bytes before the NUL. */
static int name_check(const char *command, const char *name, size_t most)
{
    if (!name[0] || strlen(name) > most)
        return gp_usage_error(command, "'%s': a name has 1 to %zu bytes", name, most);
    for (const char *at = name; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return gp_usage_error(command, "a name has no control characters");
    }
    return GP_EXIT_OK;
}

static void scope_line(const char *name, const struct gp_device_view *device, const struct gp_wire_scope_value *v)
{
    char number[16] = "host", a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
    if (device->index != (int)GP_WIRE_HOST)
        snprintf(number, sizeof(number), "device %d", gp_device_number(device));
    printf("%s  %s  peak allocated %s (%lld)  peak reserved %s (%lld)\n", name, number,
           gp_size_text(a, v->allocated_peak_bytes), (long long)v->allocated_peak_bytes,
           gp_size_text(b, v->reserved_peak_bytes), (long long)v->reserved_peak_bytes);
}

/* Prints scope `name` of a process, or adds it to `array`. */
static void scope_show(const struct gp_process *process, const char *name, const struct gp_wire_slot *ended, int slot,
                       json_t *array)
{
    for (int d = 0; d < process->device_count; d++) {
        const struct gp_device_view *device = &process->devices[d];
        const struct gp_wire_scope_value *v = ended ? &ended->scope[device->index] : &device->wire.scopes[slot];
        if (array)
            json_array_append_new(array, gp_scope_json(name, device, v));
        else
            scope_line(name, device, v);
    }
}

static int scope_finish(const struct gp_process *process, json_t *array)
{
    if (!array)
        return GP_EXIT_OK;
    json_t *top = json_pack("{s:s,s:i,s:o}", "schema", "gpuprof.scope/1", "pid", (int)process->pid, "scopes", array);
    return gp_json_print(stdout, top, false) ? GP_EXIT_FAILED : GP_EXIT_OK;
}

static int scope_list(const struct gp_process *process, bool json)
{
    json_t *array = json ? json_array() : NULL;
    for (int i = 0; i < process->scope_count; i++)
        scope_show(process, process->scopes[i].name, NULL, process->scopes[i].slot, array);
    return scope_finish(process, array);
}

static const struct gp_refusal scope_refusals[] = {
    {ENOENT, "no scope of this name is begun: 'gpuprof scope list' shows those that are"},
    {EEXIST, "a scope of this name is begun already"},
    {ENOSPC, "all 16 scopes are in use: end one first"},
    {0, NULL},
};

static int scope_ask(const char *command, const struct gp_process *process, unsigned wire_command, const char *name,
                     struct gp_wire_slot **answer)
{
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot));
    if (!slot)
        return GP_EXIT_FAILED;
    slot->command = wire_command;
    slot->device = -1;
    snprintf(slot->name, sizeof(slot->name), "%s", name);
    int rc = gp_ask(command, process->pid, slot, scope_refusals);
    if (rc || !answer)
        free(slot);
    else
        *answer = slot;
    return rc;
}

static int scope_act(const struct gp_scope_options *o, const struct gp_process *process)
{
    const char *verb = o->words[0];
    struct gp_wire_slot *ended = NULL;
    if (strcmp(verb, "list") == 0)
        return scope_list(process, o->json);
    if (strcmp(verb, "begin") == 0)
        return scope_ask("scope", process, GP_COMMAND_SCOPE_BEGIN, o->words[1], NULL);
    int rc = scope_ask("scope", process, GP_COMMAND_SCOPE_END, o->words[1], &ended);
    if (rc)
        return rc;
    json_t *array = o->json ? json_array() : NULL;
    scope_show(process, o->words[1], ended, 0, array);
    free(ended);
    return scope_finish(process, array);
}

static int scope_words(const struct gp_scope_options *o)
{
    if (o->word_count == 0)
        return gp_usage_error("scope", "say what: begin NAME, end NAME or list");
    bool list = strcmp(o->words[0], "list") == 0;
    if (!list && strcmp(o->words[0], "begin") != 0 && strcmp(o->words[0], "end") != 0)
        return gp_usage_error("scope", "%s: not one of begin, end, list", o->words[0]);
    if (o->word_count != (list ? 1 : 2))
        return gp_usage_error("scope", list ? "list takes no name" : "one name, please");
    return list ? GP_EXIT_OK : name_check("scope", o->words[1], sizeof(((struct gp_wire_slot *)0)->name) - 1);
}

int gp_cmd_scope(int argc, char **argv)
{
    struct gp_scope_options o = {.target = GP_TARGET_INIT("scope")};
    struct gp_system *system = NULL;
    int rc = scope_parse(argc, argv, &o);
    if (!rc && o.help)
        fputs(scope_help, stdout);
    else if (!rc)
        rc = scope_words(&o);
    if (!rc && !o.help)
        rc = gp_target_collect(&o.target, true, false, &system);
    if (system)
        rc = scope_act(&o, &system->processes[0]);
    gp_system_free(system);
    gp_target_free(&o.target);
    return rc;
}

int gp_cmd_mark(int argc, char **argv)
{
    struct gp_scope_options o = {.target = GP_TARGET_INIT("mark")};
    struct gp_system *system = NULL;
    int rc = scope_parse(argc, argv, &o);
    if (!rc && o.help)
        fputs(mark_help, stdout);
    else if (!rc && o.word_count != 1)
        rc = gp_usage_error("mark", "one name, please");
    else if (!rc) /* an event holds less of it than the request does */
        rc = name_check("mark", o.words[0], sizeof(((struct gp_wire_event *)0)->name) - 1);
    if (!rc && !o.help)
        rc = gp_target_collect(&o.target, false, false, &system);
    if (system)
        rc = scope_ask("mark", &system->processes[0], GP_COMMAND_MARK, o.words[0], NULL);
    gp_system_free(system);
    gp_target_free(&o.target);
    return rc;
}
