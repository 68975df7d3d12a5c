/* SPDX-License-Identifier: MIT
 * scope.c: `gpuprof scope` (named peaks) and `gpuprof mark` (a named instant).  Called by
 * commands.c. */
#include <cmd/cmd.h>
#include <show/text/write.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gp_scope_options {
    struct gp_target target;
    const char *verb, *name;
    bool json;
};

/* Whether a name of a scope or mark is valid; most: bytes before the NUL. */
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

/* Prints the scope, or adds it to `array`.  ended: the reply that closed it; NULL: it is open in
 * `slot`. */
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
    {ENOENT, "no scope of this name is open: 'gpuprof scope list' lists the open ones"},
    {EEXIST, "a scope of this name is open already"},
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
    const char *verb = o->verb;
    struct gp_wire_slot *ended = NULL;
    if (strcmp(verb, "list") == 0)
        return scope_list(process, o->json);
    if (strcmp(verb, "begin") == 0)
        return scope_ask("scope", process, GP_COMMAND_SCOPE_BEGIN, o->name, NULL);
    int rc = scope_ask("scope", process, GP_COMMAND_SCOPE_END, o->name, &ended);
    if (rc)
        return rc;
    json_t *array = o->json ? json_array() : NULL;
    scope_show(process, o->name, ended, 0, array);
    free(ended);
    return scope_finish(process, array);
}

static int scope_check(void *options)
{
    const struct gp_scope_options *o = options;
    if (!o->verb)
        return gp_usage_error("scope", "no action given: begin NAME, end NAME or list");
    if (strcmp(o->verb, "list") == 0)
        return o->name ? gp_usage_error("scope", "list takes no name") : GP_EXIT_OK;
    if (!o->name)
        return gp_usage_error("scope", "%s needs one name", o->verb);
    return name_check("scope", o->name, sizeof(((struct gp_wire_slot *)0)->name) - 1);
}

static int scope_run(void *options)
{
    struct gp_scope_options *o = options;
    struct gp_system *system = NULL;
    int rc = gp_target_collect(&o->target, true, false, &system);
    if (!rc)
        rc = scope_act(o, &system->processes[0]);
    gp_system_free(system);
    return rc;
}

static int mark_check(void *options)
{
    const struct gp_scope_options *o = options;
    if (!o->name)
        return gp_usage_error("mark", "no name given");
    /* An event has less room for the name than the request. */
    return name_check("mark", o->name, sizeof(((struct gp_wire_event *)0)->name) - 1);
}

static int mark_run(void *options)
{
    struct gp_scope_options *o = options;
    struct gp_system *system = NULL;
    int rc = gp_target_collect(&o->target, false, false, &system);
    if (!rc)
        rc = scope_ask("mark", &system->processes[0], GP_COMMAND_MARK, o->name, NULL);
    gp_system_free(system);
    return rc;
}

static const struct gp_command_option scope_options[] = {
    GP_OPTION_PID(struct gp_scope_options, "the process (default: your only profiled process)"),
    GP_OPTION_JSON(struct gp_scope_options, "gpuprof.scope/1"),
    {0}};

static const struct gp_command_option scope_operands[] = {
    GP_OPERAND(struct gp_scope_options, verb, "ACTION", GP_ARG_CHOICE, "what to do",
               .words = GP_LIST("begin", "end", "list")),
    GP_OPERAND(struct gp_scope_options, name, "NAME", GP_ARG_TEXT, "the name of the scope, for begin and end"),
    {0}};

const struct gp_command_spec gp_command_scope = {
    .name = "scope",
    .summary = "measure the peak of a part of a program",
    .group = GP_GROUP_ASK,
    .usage = GP_LIST("(begin NAME | end NAME | list) [-p PID] [--json]"),
    .about = GP_LIST("A scope measures its own peak between 'begin' and 'end', independently of other scopes and of "
                     "resets. 'end' prints the peaks; 'list' prints the open scopes and their peaks so far. A process "
                     "has up to 16 scopes at a time."),
    .options = scope_options,
    .operands = scope_operands,
    .examples = GP_EXAMPLES({"gpuprof scope begin epoch -p 1234; sleep 60; gpuprof scope end epoch -p 1234",
                             "Measure the peak of the next minute."},
                            {"gpuprof scope list -p 1234 --json", "Print the open scopes for a script."}),
    GP_DEFAULTS(struct gp_scope_options, .target = GP_TARGET_INIT("scope")),
    .surplus = "a scope has one name",
    .check = scope_check,
    .run = scope_run,
};

static const struct gp_command_option mark_options[] = {
    GP_OPTION_PID(struct gp_scope_options, "the process (default: your only profiled process)"), {0}};

static const struct gp_command_option mark_operands[] = {
    GP_OPERAND(struct gp_scope_options, name, "NAME", GP_ARG_TEXT, "the name of the mark, at most 31 bytes"), {0}};

const struct gp_command_spec gp_command_mark = {
    .name = "mark",
    .summary = "write a named mark into the events of a process",
    .group = GP_GROUP_ASK,
    .usage = GP_LIST("NAME [-p PID]"),
    .about = GP_LIST("Writes a mark into the events of a process. 'gpuprof trace' and recordings show it between the "
                     "allocations, and recurring marks divide a recording into steps."),
    .options = mark_options,
    .operands = mark_operands,
    .examples = GP_EXAMPLES({"gpuprof mark epoch -p 1234", "Mark the start of an epoch."}),
    GP_DEFAULTS(struct gp_scope_options, .target = GP_TARGET_INIT("mark")),
    .surplus = "a mark has one name",
    .check = mark_check,
    .run = mark_run,
};
