/* SPDX-License-Identifier: MIT
 * steptree.c: the Python stacks of a recording as a tree of calls, and how often a program came into
 * each; see steptree.h.  stepstack.c finds steps in it.
 *
 * A frame's line moves on while its function runs, so each line of a function is a node of its own,
 * and a loop enters the lines of its body again and again.  Within a call of a net, a backward pass or
 * an optimizer's step the lines tell nothing more: such a call is one node.  What autograd calls on its
 * own threads (recomputed activations, hooks) has no caller on its stack, and is no part of the tree. */
#include <analyze/steptree.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>

/* ---- frames ------------------------------------------------------------------------------------------------------ */

bool gp_calls_python(const struct gp_recording *recording, const struct gp_rec_frame *frame)
{
    const char *file = recording->strings + frame->file;
    size_t length = strlen(file);
    return !frame->pc && (file[0] == '<' || (length > 3 && strcmp(file + length - 3, ".py") == 0));
}

/* The last part of a qualified name. */
static const char *frame_name(const char *function)
{
    const char *dot = strrchr(function, '.');
    return dot ? dot + 1 : function;
}

static bool has_end(const char *text, const char *end)
{
    size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

/* The frame runs inside a call of a torch.nn.Module, whatever its class. */
bool gp_calls_net(const struct gp_recording *recording, const struct gp_rec_frame *frame)
{
    const char *name = frame_name(recording->strings + frame->function);
    return strcmp(name, "forward") == 0 || strcmp(name, "_call_impl") == 0 || strcmp(name, "_wrapped_call_impl") == 0;
}

/* PyTorch's own, those of the libraries around it, and any class that calls itself an optimizer.  A
 * GradScaler's calls are made in each step, also in those that it skips. */
static bool is_optimizer(const char *function, const char *file)
{
    const char *name = frame_name(function), *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    if (strcmp(name, "wrapper") == 0) /* around the step of each subclass */
        return has_end(file, "/torch/optim/optimizer.py");
    if (strcmp(base, "grad_scaler.py") == 0)
        return strcmp(name, "step") == 0 || strcmp(name, "unscale_") == 0;
    if (strcmp(name, "step") != 0 || strstr(base, "lr_scheduler"))
        return false;
    const char *named = strstr(function, "Optim");
    return strstr(file, "/optim") || strstr(base, "optimizer") || strstr(file, "/deepspeed/runtime/zero/") ||
           (named && named < name);
}

static enum gp_call_what frame_what(const struct gp_recording *recording, const struct gp_rec_frame *frame)
{
    const char *function = recording->strings + frame->function, *file = recording->strings + frame->file;
    const char *name = frame_name(function);
    if (gp_calls_net(recording, frame))
        return GP_CALL_NET;
    if ((strcmp(name, "backward") == 0 || strcmp(name, "grad") == 0) &&
        (strstr(file, "/torch/_tensor.py") || strstr(file, "/torch/autograd/__init__")))
        return GP_CALL_BACKWARD;
    return is_optimizer(function, file) ? GP_CALL_OPTIMIZER : GP_CALL_LINE;
}

/* Where the interpreter starts a script, a module or a thread. */
static bool frame_starts(const struct gp_recording *recording, const struct gp_rec_frame *frame)
{
    const char *file = recording->strings + frame->file;
    return strcmp(recording->strings + frame->function, "<module>") == 0 || strstr(file, "runpy") ||
           has_end(file, "/threading.py");
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

void gp_call_tree_fini(struct gp_call_tree *tree)
{
    free(tree->nodes);
    free(tree->leaf);
    free(tree->what);
}

static const struct gp_rec_frame *site_outermost(const struct gp_recording *recording, const struct gp_rec_site *site)
{
    for (uint32_t k = site->frame_count; k-- > 0;)
        if (gp_calls_python(recording, &recording->frames[site->first_frame + k]))
            return &recording->frames[site->first_frame + k];
    return NULL;
}

/* The child of `parent` for this frame, made if there is none.  0: out of memory. */
static uint32_t tree_child(struct gp_call_tree *tree, struct gp_hash *known, uint32_t *room, uint32_t parent,
                           uint32_t frame)
{
    const struct gp_recording *recording = tree->recording;
    const struct gp_rec_frame *at = &recording->frames[frame];
    const char *function = recording->strings + at->function, *file = recording->strings + at->file;
    struct gp_call_node node = {.parent = parent, .frame = frame, .what = frame_what(recording, at)};
    bool added;
    node.code = gp_hash_of_number(gp_hash_of_text(file) + gp_hash_of_text(function) * 2);
    node.line = node.what == GP_CALL_LINE ? at->line : 0;
    node.depth = tree->nodes[parent].depth + 1;
    uint64_t key = gp_hash_of_number(gp_hash_of_number(parent) + node.code);
    uint32_t *number = gp_hash_add(known, gp_hash_of_number(key + node.line), NULL, NULL, tree->count, &added);
    if (!number || !added)
        return number ? *number : 0;
    if (tree->count == *room) {
        struct gp_call_node *grown = realloc(tree->nodes, *room * 2ul * sizeof(*grown));
        if (!grown)
            return 0;
        tree->nodes = grown;
        *room *= 2;
    }
    enum gp_frame_role role = gp_role_of_python(function, file);
    node.command = gp_role_is_command(function, file, parent == 0, tree->nodes[parent].command);
    node.own =
        (role == GP_ROLE_USER || role == GP_ROLE_WRAPPER || node.command) && !gp_role_is_launcher(function, file);
    node.package = !node.own && gp_role_is_package(file);
    tree->nodes[tree->count] = node;
    return tree->count++;
}

/* Adds the stack of a site, from the outermost frame on. */
static bool tree_site(struct gp_call_tree *tree, struct gp_hash *known, uint32_t *room, uint32_t i)
{
    const struct gp_rec_site *site = &tree->recording->sites[i];
    uint32_t at = 0;
    for (uint32_t k = site->frame_count; k-- > 0;) {
        if (!gp_calls_python(tree->recording, &tree->recording->frames[site->first_frame + k]))
            continue;
        if (!(at = tree_child(tree, known, room, at, site->first_frame + k)))
            return false;
        enum gp_call_what what = (enum gp_call_what)tree->nodes[at].what;
        tree->what[i] = what == GP_CALL_LINE ? tree->what[i] : what;
        if (what == GP_CALL_NET || what == GP_CALL_BACKWARD)
            break;
    }
    tree->leaf[i] = at;
    return true;
}

bool gp_call_tree_init(struct gp_call_tree *tree, const struct gp_recording *recording)
{
    struct gp_hash known = {0};
    uint32_t room = 64;
    bool starts = false;
    *tree = (struct gp_call_tree){.recording = recording, .count = 1};
    tree->nodes = calloc(room, sizeof(*tree->nodes));
    tree->leaf = calloc(recording->site_count + 1ul, sizeof(*tree->leaf));
    tree->what = calloc(recording->site_count + 1ul, sizeof(*tree->what));
    bool ok = tree->nodes && tree->leaf && tree->what;
    for (uint32_t i = 0; ok && i < recording->site_count && !starts; i++) {
        const struct gp_rec_frame *outermost = site_outermost(recording, &recording->sites[i]);
        starts = outermost && frame_starts(recording, outermost);
    }
    for (uint32_t i = 0; ok && i < recording->site_count; i++) {
        const struct gp_rec_frame *outermost = site_outermost(recording, &recording->sites[i]);
        /* Where some stacks have their start, the others were called by nothing in Python. */
        if (outermost && !recording->sites[i].truncated &&
            (starts ? frame_starts(recording, outermost) : !strstr(recording->strings + outermost->file, "/torch/")))
            ok = tree_site(tree, &known, &room, i);
    }
    gp_hash_free(&known);
    return ok;
}

bool gp_call_tree_visit(struct gp_call_tree *tree)
{
    const struct gp_recording *recording = tree->recording;
    uint32_t *before = calloc(recording->thread_count + 1ul, sizeof(*before));
    for (size_t i = 0; before && i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        uint32_t leaf = event->type == GP_EVENT_ALLOC ? tree->leaf[event->site] : 0;
        if (!leaf)
            continue;
        uint32_t thread = event->thread < recording->thread_count ? event->thread : recording->thread_count;
        for (uint32_t at = leaf, other = before[thread]; at != other;) {
            struct gp_call_node *node = &tree->nodes[at];
            if (node->depth < tree->nodes[other].depth) {
                other = tree->nodes[other].parent;
                continue;
            }
            node->first = node->visits ? node->first : (uint32_t)i;
            node->visits += before[thread] || !node->visits; /* not another thread that begins there */
            at = node->parent;
        }
        before[thread] = leaf;
    }
    free(before);
    return before;
}

uint32_t gp_call_at_depth(const struct gp_call_tree *tree, uint32_t node, uint32_t depth)
{
    while (tree->nodes[node].depth > depth)
        node = tree->nodes[node].parent;
    return node;
}

bool gp_call_starts_again(const struct gp_call_tree *tree, uint32_t from, uint32_t to)
{
    uint32_t one = from, other = to, below_one = 0, below_other = 0;
    while (one != other) {
        if (tree->nodes[one].depth >= tree->nodes[other].depth) {
            below_one = one;
            one = tree->nodes[one].parent;
        } else {
            below_other = other;
            other = tree->nodes[other].parent;
        }
    }
    const struct gp_call_node *a = &tree->nodes[below_one], *b = &tree->nodes[below_other];
    /* From one line of a function to another; else one line calls different functions. */
    return !below_one || !below_other || a->code != b->code || b->line < a->line;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

void gp_call_runs_fini(struct gp_call_runs *runs)
{
    free(runs->list);
}

static bool run_add(struct gp_call_runs *runs, uint32_t begin)
{
    if (runs->count == runs->room) {
        uint32_t room = runs->room ? runs->room * 2 : 64;
        struct gp_call_run *grown = realloc(runs->list, room * sizeof(*grown));
        if (!grown)
            return false;
        runs->list = grown;
        runs->room = room;
    }
    runs->list[runs->count++] = (struct gp_call_run){begin, GP_REC_NONE, begin};
    return true;
}

/* Each thread has stays of its own.  open: of each thread, its run + 1 that has not ended. */
static bool runs_walk(const struct gp_call_tree *tree, const bool *under, uint32_t *open, struct gp_call_runs *runs)
{
    const struct gp_recording *recording = tree->recording;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        uint32_t leaf = event->type == GP_EVENT_ALLOC ? tree->leaf[event->site] : 0;
        if (!leaf)
            continue;
        uint32_t *at = &open[event->thread < recording->thread_count ? event->thread : recording->thread_count];
        if (!under[leaf] && *at) {
            runs->list[*at - 1].end = (uint32_t)i;
            *at = 0;
        } else if (under[leaf] && *at) {
            runs->list[*at - 1].last = (uint32_t)i;
        } else if (under[leaf]) {
            if (!run_add(runs, (uint32_t)i))
                return false;
            *at = runs->count;
        }
    }
    return true;
}

static bool runs_like(const struct gp_call_tree *tree, uint32_t one, uint32_t other)
{
    const struct gp_call_node *a = &tree->nodes[one], *b = &tree->nodes[other];
    const struct gp_call_node *from_a = &tree->nodes[a->parent], *from_b = &tree->nodes[b->parent];
    return a->what == b->what && a->code == b->code && a->line == b->line && from_a->code == from_b->code &&
           from_a->line == from_b->line;
}

static bool runs_find(const struct gp_call_tree *tree, uint32_t node, bool like, struct gp_call_runs *runs)
{
    bool *under = calloc(tree->count, sizeof(*under));
    uint32_t *open = calloc(tree->recording->thread_count + 1ul, sizeof(*open));
    *runs = (struct gp_call_runs){.node = node};
    for (uint32_t i = 1; under && node && i < tree->count; i++) /* a child comes after its parent */
        under[i] = i == node || under[tree->nodes[i].parent] || (like && runs_like(tree, i, node));
    bool ok = under && open && (!node || runs_walk(tree, under, open, runs));
    free(under);
    free(open);
    return ok;
}

bool gp_call_runs_find(const struct gp_call_tree *tree, uint32_t node, struct gp_call_runs *runs)
{
    return runs_find(tree, node, false, runs);
}

bool gp_call_runs_of_line(const struct gp_call_tree *tree, uint32_t node, struct gp_call_runs *runs)
{
    return runs_find(tree, node, true, runs);
}
