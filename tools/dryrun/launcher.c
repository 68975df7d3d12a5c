/* SPDX-License-Identifier: MIT
 * launcher.c: see launcher.h.  A launcher's options are data: those without a row are refused, because what they would change
 * is not known. */
#include <common/messages.h>
#include <common/values.h>
#include <dryrun/launcher.h>

#include <errno.h>
#include <limits.h>
#include <read/common/parse.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What an option does: nothing here, counts, is a module or a program of its own, sets a variable, is refused. */
enum launcher_does { SKIP, SIZE, LOCAL, NODES, MODULE, PLAIN, SET, NOT, WITHOUT_LOCAL_RANK };

/* values: words that follow it.  Long names are compared without dashes, and '_' is '-'. */
static const struct launcher_option {
    const char *name;
    int values;
    enum launcher_does does;
    const char *set; /* the variable of SET */
} launcher_torchrun[] = {{"nnodes", 1, NODES, NULL},
                         {"nproc-per-node", 1, LOCAL, NULL},
                         {"rdzv-backend", 1, SKIP, NULL},
                         {"rdzv-endpoint", 1, SKIP, NULL},
                         {"rdzv-id", 1, SKIP, NULL},
                         {"rdzv-conf", 1, SKIP, NULL},
                         {"max-restarts", 1, SKIP, NULL},
                         {"monitor-interval", 1, SKIP, NULL},
                         {"start-method", 1, SKIP, NULL},
                         {"role", 1, SKIP, NULL},
                         {"log-dir", 1, SKIP, NULL},
                         {"r", 1, SKIP, NULL},
                         {"redirects", 1, SKIP, NULL},
                         {"t", 1, SKIP, NULL},
                         {"tee", 1, SKIP, NULL},
                         {"node-rank", 1, SKIP, NULL},
                         {"master-addr", 1, SKIP, NULL},
                         {"master-port", 1, SKIP, NULL},
                         {"local-addr", 1, SKIP, NULL},
                         {"logs-specs", 1, SKIP, NULL},
                         {"local-ranks-filter", 1, SKIP, NULL},
                         {"numa-binding", 1, SKIP, NULL},
                         {"event-log-handler", 1, SKIP, NULL},
                         {"signals-to-handle", 1, SKIP, NULL},
                         {"standalone", 0, SKIP, NULL},
                         {"use-env", 0, SKIP, NULL},
                         {"m", 0, MODULE, NULL},
                         {"module", 0, MODULE, NULL},
                         {"no-python", 0, PLAIN, NULL},
                         {"run-path", 0, NOT, NULL},
                         {"virtual-local-rank", 0, NOT, NULL},
                         {NULL, 0, NOT, NULL}},
  launcher_accelerate[] = {{"num-processes", 1, SIZE, NULL},
                           {"num-machines", 1, NODES, NULL},
                           {"machine-rank", 1, SKIP, NULL},
                           {"main-process-ip", 1, SKIP, NULL},
                           {"main-process-port", 1, SKIP, NULL},
                           {"multi-gpu", 0, SKIP, NULL},
                           {"same-network", 0, SKIP, NULL},
                           {"rdzv-backend", 1, SKIP, NULL},
                           {"rdzv-conf", 1, SKIP, NULL},
                           {"max-restarts", 1, SKIP, NULL},
                           {"monitor-interval", 1, SKIP, NULL},
                           {"role", 1, SKIP, NULL},
                           {"mixed-precision", 1, SET, "ACCELERATE_MIXED_PRECISION"},
                           {"gradient-accumulation-steps", 1, SET, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"},
                           {"num-cpu-threads-per-process", 1, SET, "OMP_NUM_THREADS"},
                           {"m", 0, MODULE, NULL},
                           {"module", 0, MODULE, NULL},
                           {"no-python", 0, PLAIN, NULL},
                           {"q", 0, SKIP, NULL},
                           {"quiet", 0, SKIP, NULL},
                           {NULL, 0, NOT, NULL}},
  launcher_deepspeed[] = {{"num-gpus", 1, LOCAL, NULL},
                          {"num-nodes", 1, NODES, NULL},
                          {"hostfile", 1, SKIP, NULL},
                          {"H", 1, SKIP, NULL},
                          {"master-port", 1, SKIP, NULL},
                          {"master-addr", 1, SKIP, NULL},
                          {"node-rank", 1, SKIP, NULL},
                          {"launcher", 1, SKIP, NULL},
                          {"launcher-args", 1, SKIP, NULL},
                          {"force-multi", 0, SKIP, NULL},
                          {"no-ssh", 0, SKIP, NULL},
                          {"no-ssh-check", 0, SKIP, NULL},
                          {"save-pid", 0, SKIP, NULL},
                          {"enable-each-rank-log", 1, SKIP, NULL},
                          {"bind-cores-to-rank", 0, SKIP, NULL},
                          {"no-local-rank", 0, WITHOUT_LOCAL_RANK, NULL},
                          {"module", 0, MODULE, NULL},
                          {"no-python", 0, PLAIN, NULL},
                          {NULL, 0, NOT, NULL}},
  launcher_mpirun[] = {{"n", 1, SIZE, NULL},
                       {"np", 1, SIZE, NULL},
                       {"c", 1, SIZE, NULL},
                       {"N", 1, LOCAL, NULL},
                       {"npernode", 1, LOCAL, NULL},
                       {"ppn", 1, LOCAL, NULL},
                       {"hostfile", 1, SKIP, NULL},
                       {"machinefile", 1, SKIP, NULL},
                       {"host", 1, SKIP, NULL},
                       {"H", 1, SKIP, NULL},
                       {"hosts", 1, SKIP, NULL},
                       {"f", 1, SKIP, NULL},
                       {"map-by", 1, SKIP, NULL},
                       {"bind-to", 1, SKIP, NULL},
                       {"rank-by", 1, SKIP, NULL},
                       {"mca", 2, SKIP, NULL},
                       {"x", 1, SET, NULL},
                       {"allow-run-as-root", 0, SKIP, NULL},
                       {"oversubscribe", 0, SKIP, NULL},
                       {"tag-output", 0, SKIP, NULL},
                       {"report-bindings", 0, SKIP, NULL},
                       {"bind-to-none", 0, SKIP, NULL},
                       {"q", 0, SKIP, NULL},
                       {"l", 0, SKIP, NULL},
                       {NULL, 0, NOT, NULL}},
  launcher_srun[] = {{"n", 1, SIZE, NULL},
                     {"ntasks", 1, SIZE, NULL},
                     {"N", 1, NODES, NULL},
                     {"nodes", 1, NODES, NULL},
                     {"ntasks-per-node", 1, LOCAL, NULL},
                     {"c", 1, SKIP, NULL},
                     {"cpus-per-task", 1, SKIP, NULL},
                     {"p", 1, SKIP, NULL},
                     {"partition", 1, SKIP, NULL},
                     {"A", 1, SKIP, NULL},
                     {"account", 1, SKIP, NULL},
                     {"J", 1, SKIP, NULL},
                     {"job-name", 1, SKIP, NULL},
                     {"t", 1, SKIP, NULL},
                     {"time", 1, SKIP, NULL},
                     {"G", 1, SKIP, NULL},
                     {"gpus", 1, SKIP, NULL},
                     {"gpus-per-node", 1, SKIP, NULL},
                     {"gpus-per-task", 1, SKIP, NULL},
                     {"gres", 1, SKIP, NULL},
                     {"mem", 1, SKIP, NULL},
                     {"w", 1, SKIP, NULL},
                     {"nodelist", 1, SKIP, NULL},
                     {"o", 1, SKIP, NULL},
                     {"output", 1, SKIP, NULL},
                     {"e", 1, SKIP, NULL},
                     {"error", 1, SKIP, NULL},
                     {"mpi", 1, SKIP, NULL},
                     {"cpu-bind", 1, SKIP, NULL},
                     {"gpu-bind", 1, SKIP, NULL},
                     {"exclusive", 0, SKIP, NULL},
                     {"l", 0, SKIP, NULL},
                     {"label", 0, SKIP, NULL},
                     {"u", 0, SKIP, NULL},
                     {"unbuffered", 0, SKIP, NULL},
                     {"kill-on-bad-exit", 0, SKIP, NULL},
                     {NULL, 0, NOT, NULL}};

/* words: of the command line that name it, after those of Python. */
static const struct launcher_row {
    const char *program, *word, *module, *name;
    enum gp_launcher_kind kind;
    bool python; /* it starts Python, with the script that it is told */
    const struct launcher_option *options;
} launcher_rows[] = {
    {"torchrun", NULL, "torch.distributed.run", "torchrun", GP_LAUNCHER_TORCH, true, launcher_torchrun},
    {NULL, NULL, "torch.distributed.launch", "torch.distributed.launch", GP_LAUNCHER_TORCH, true, launcher_torchrun},
    {"accelerate", "launch", "accelerate.commands.launch", "accelerate launch", GP_LAUNCHER_TORCH, true,
     launcher_accelerate},
    {"accelerate-launch", NULL, NULL, "accelerate-launch", GP_LAUNCHER_TORCH, true, launcher_accelerate},
    {"deepspeed", NULL, "deepspeed.launcher.runner", "deepspeed", GP_LAUNCHER_TORCH, true, launcher_deepspeed},
    {"mpirun", NULL, NULL, "mpirun", GP_LAUNCHER_MPI, false, launcher_mpirun},
    {"mpiexec", NULL, NULL, "mpiexec", GP_LAUNCHER_MPI, false, launcher_mpirun},
    {"srun", NULL, NULL, "srun", GP_LAUNCHER_SLURM, false, launcher_srun},
};

struct launcher_work {
    struct gp_launcher *launcher;
    const struct launcher_row *row;
    char **argv; /* from the first word that is not the launcher's name on */
    char *const *all;
    int64_t world;
    bool module, plain, local_rank;
    size_t sets;
};

static const char *launcher_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool launcher_is_python(const char *word)
{
    const char *base = launcher_base(word);
    return strncmp(base, "python", 6) == 0 && !base[6 + strspn(base + 6, "0123456789.")];
}

/* How many words name the launcher; 0: it is another one. */
static size_t launcher_named(const struct launcher_row *row, char *const *argv)
{
    if (row->program && strcmp(launcher_base(argv[0]), row->program) == 0) {
        if (!row->word)
            return 1;
        return argv[1] && strcmp(argv[1], row->word) == 0 ? 2 : 0;
    }
    if (!row->module || !launcher_is_python(argv[0]))
        return 0;
    for (size_t i = 1; argv[i] && argv[i][0] == '-'; i++)
        if (strcmp(argv[i], "-m") == 0)
            return argv[i + 1] && strcmp(argv[i + 1], row->module) == 0 ? i + 2 : 0;
    return 0;
}

static int launcher_refuse(const struct launcher_work *w, const char *why, const char *what)
{
    return gp_usage_error(
        "dryrun",
        "--world: %s %s%s: put the program that %s would start after '--', with the counts as options: "
        "gpuprof dryrun --world=%lld --local-world=RANKS_OF_A_NODE -- %s",
        w->row->name, what, why, w->row->name, (long long)w->world,
        w->row->python ? "python3 SCRIPT ..." : "PROGRAM ...");
}

static bool launcher_same(const char *option, size_t length, const char *name)
{
    for (size_t i = 0; i < length; i++)
        if ((option[i] == '_' ? '-' : option[i]) != name[i] || !name[i])
            return false;
    return !name[length];
}

static int launcher_set(struct launcher_work *w, const char *name, const char *value)
{
    char **grown = realloc(w->launcher->set, (w->sets + 2) * sizeof(*grown));
    char *text = NULL;
    size_t room = strlen(name) + strlen(value) + 2;
    if (grown) {
        w->launcher->set = grown;
        text = malloc(room);
    }
    if (!text)
        return gp_memory_error("dryrun");
    snprintf(text, room, "%s=%s", name, value);
    grown[w->sets++] = text;
    grown[w->sets] = NULL;
    return GP_EXIT_OK;
}

/* A count; "gpu" and "auto" are as many as there are; of a range the end, if it has but one. */
static int launcher_count(struct launcher_work *w, const char *word, const char *value, int64_t *count)
{
    if (strcmp(value, "gpu") == 0 || strcmp(value, "auto") == 0 || strcmp(value, "cpu") == 0)
        return GP_EXIT_OK;
    const char *last = strchr(value, ':');
    if (gp_parse_number(last ? last + 1 : value, 1, 1000000, count) != 0)
        return gp_usage_error("dryrun", "--world: %s %s %s: not a number of ranks or nodes", w->row->name, word, value);
    return GP_EXIT_OK;
}

static int launcher_do(struct launcher_work *w, const struct launcher_option *option, const char *word,
                       const char *value)
{
    struct gp_launcher *launcher = w->launcher;
    switch (option->does) {
    case SIZE:
        return launcher_count(w, word, value, &launcher->size);
    case LOCAL:
        return launcher_count(w, word, value, &launcher->local);
    case NODES:
        return launcher_count(w, word, value, &launcher->nodes);
    case MODULE:
        w->module = true;
        return GP_EXIT_OK;
    case PLAIN:
        w->plain = true;
        return GP_EXIT_OK;
    case WITHOUT_LOCAL_RANK:
        w->local_rank = false;
        return GP_EXIT_OK;
    case SET:
        if (option->set)
            return launcher_set(w, option->set, value);
        if (strchr(value, '=')) { /* NAME=VALUE; a name alone is in the environment already */
            char name[128];
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(value, "="), value);
            return launcher_set(w, name, strchr(value, '=') + 1);
        }
        return GP_EXIT_OK;
    case NOT:
        return launcher_refuse(w, " is an option whose effect is not known here", word);
    default:
        return GP_EXIT_OK;
    }
}

/* One option, with its values.  *used: words. */
static int launcher_option(struct launcher_work *w, char *const *argv, size_t *used)
{
    const char *word = argv[0], *name = word + 1 + (word[1] == '-'), *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct launcher_option *option = w->row->options;
    const char *value = equals ? equals + 1 : NULL;
    while (option->name && !launcher_same(name, length, option->name))
        option++;
    /* "-n8" */
    bool joined = !option->name && word[1] != '-' && length > 1 && !equals;
    for (option = joined ? w->row->options : option; joined && option->name; option++)
        if (option->name[0] == name[0] && !option->name[1] && option->values == 1) {
            value = name + 1;
            break;
        }
    *used = 1;
    if (!option->name)
        return launcher_refuse(w, " is an option whose effect is not known here", word);
    for (int i = 0; i < option->values && !value; i++)
        if (!argv[i + 1])
            return launcher_refuse(w, " has no value", word);
    if (!value && option->values) {
        value = argv[1];
        *used += (size_t)option->values;
    }
    return launcher_do(w, option, word, value ? value : "");
}

/* Beside the launcher, as in a virtual environment; else of the path. */
static char *launcher_python(const struct launcher_work *w)
{
    char path[PATH_MAX];
    const char *first = w->all[0], *slash = strrchr(first, '/'), *folders = getenv("PATH");
    if (launcher_is_python(first))
        return strdup(first);
    for (const char *at = slash ? first : folders; at && *at;) {
        size_t length = slash ? (size_t)(slash - first) : strcspn(at, ":");
        int n = snprintf(path, sizeof(path), "%.*s/%s", (int)length, at, launcher_base(first));
        bool here = n > 0 && (size_t)n < sizeof(path) && access(path, X_OK) == 0;
        snprintf(path, sizeof(path), "%.*s/python3", (int)length, at);
        if (slash || here)
            return strdup(access(path, X_OK) == 0 ? path : "python3");
        at += length + (at[length] == ':');
    }
    return strdup("python3");
}

static int launcher_program(struct launcher_work *w, char **rest)
{
    struct gp_launcher *launcher = w->launcher;
    size_t count = 0, at = 0;
    while (rest[count])
        count++;
    if (!count)
        return launcher_refuse(w, "", "names no program");
    launcher->argv = calloc(count + 6, sizeof(*launcher->argv));
    if (!launcher->argv)
        return gp_memory_error("dryrun");
    if (w->row->python && !w->plain) {
        launcher->argv[at++] = launcher_python(w);
        launcher->argv[at++] = strdup("-u");
        if (w->module)
            launcher->argv[at++] = strdup("-m");
    }
    for (size_t i = 0; i < count; i++) {
        launcher->argv[at++] = strdup(rest[i]);
        if (i == 0 && w->local_rank) {
            launcher->local_rank_at = at;
            launcher->argv[at++] = strdup("--local_rank=");
        }
    }
    for (size_t i = 0; i < at; i++)
        if (!launcher->argv[i])
            return gp_memory_error("dryrun");
    return GP_EXIT_OK;
}

int gp_launcher_read(struct gp_launcher *launcher, char **argv, int64_t world)
{
    struct launcher_work w = {.launcher = launcher, .all = argv, .world = world};
    size_t words = 0, used = 0;
    *launcher = (struct gp_launcher){.kind = GP_LAUNCHER_NONE};
    for (size_t i = 0; !words && i < sizeof(launcher_rows) / sizeof(*launcher_rows); i++) {
        w.row = &launcher_rows[i];
        words = launcher_named(w.row, argv);
    }
    if (!words)
        return GP_EXIT_OK;
    launcher->kind = w.row->kind;
    w.local_rank = w.row->options == launcher_deepspeed;
    snprintf(launcher->name, sizeof(launcher->name), "%s", w.row->name);
    int rc = GP_EXIT_OK;
    for (argv += words; !rc && *argv && (*argv)[0] == '-' && (*argv)[1] && strcmp(*argv, "--") != 0; argv += used)
        rc = launcher_option(&w, argv, &used);
    if (!rc && *argv && strcmp(*argv, "--") == 0)
        argv++;
    return rc ? rc : launcher_program(&w, argv);
}

void gp_launcher_free(struct gp_launcher *launcher)
{
    for (size_t i = 0; launcher->argv && launcher->argv[i]; i++)
        free(launcher->argv[i]);
    for (size_t i = 0; launcher->set && launcher->set[i]; i++)
        free(launcher->set[i]);
    free(launcher->argv);
    free(launcher->set);
    *launcher = (struct gp_launcher){.kind = GP_LAUNCHER_NONE};
}
