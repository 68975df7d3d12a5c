/* SPDX-License-Identifier: MIT
 * operation.c: what a framework was doing when it asked for a site's memory (operation.h):
 * "cross_entropy (log_softmax)", "backward: AddmmBackward0", "optimizer: AdamW.step". The rules are
 * one table, in operationrules.c. Called by place.c, which knows the frame that names the site.
 * docs/understand/symbols.md explains it.
 */
#include <symbol/internal.h>
#include <symbol/operation.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- the search -------------------------------------------------------------------------------------------------- */

struct operation_scan { /* the frames that tell something; each list is from the inside outward */
    const char *whole, *optimizer, *node;
    const char *public, *layer, *module; /* the outermost public function; the innermost of the others */
    char inner[64], outer[64];           /* operators: the innermost that computes, the outermost */
    char native[64];                     /* the outermost of those that are known by their kernel only */
    char own[GP_OPERATION_TEXT];         /* room for the texts above */
    size_t used;
    bool engine, recompute, optimizer_inside;
    enum gp_operation_part whole_part;
    bool parts[GP_PARTS];
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Writes the operator's name as its users know it: "_log_softmax" is log_softmax,
 * "sum_dim_IntList" is sum. */
static void operator_name(const char *caught, char out[64])
{
    static const char *const ends[] = {"_symint",        "_cuda", "_out", "_impl", "_dtype_layout",
                                       "_memory_format", "_dim",  "_low", "_cpu",  "Op"};
    const char *last = caught, *stop = caught + strlen(caught);
    if (stop - caught > 6 && strcmp(stop - 6, "::impl") == 0) /* of a structured kernel: its class has the name */
        stop -= 6;
    for (const char *at = caught; (at = strstr(at, "::")) != NULL && at < stop; at += 2)
        last = at + 2;
    while (*last == '_')
        last++;
    if (strncmp(last, "structured_", 11) == 0)
        last += 11;
    snprintf(out, 64, "%.*s", (int)(stop - last), last);
    for (char *at = out; (at = strchr(at, '_')) != NULL; at++) {
        if (at > out && isupper((unsigned char)at[1])) { /* the overload */
            *at = '\0';
            break;
        }
    }
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t length = strlen(out), end = strlen(ends[i]);
        if (length > end && strcmp(out + length - end, ends[i]) == 0)
            out[length - end] = '\0';
    }
}

/* Operators that only make memory: the one that wanted it says more. */
static bool operator_makes(const char *name)
{
    static const char *const makers[] = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
                                         "zeros", "zeros_like", "ones",          "ones_like", "full",
                                         "fill",  "full_like",  "new_zeros",     "to_copy",   "to",
                                         "clone", "contiguous", "resize",        "resize_",   "copy_",
                                         "set",   "to_device",  "scalar_tensor"};
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
        if (strcmp(name, makers[i]) == 0)
            return true;
    return false;
}

/* The inner name adds nothing to the outer one. */
static bool operator_same(const char *outer, const char *inner)
{
    static const char *const pairs[][2] = {{"linear", "addmm"},    {"linear", "mm"},      {"linear", "matmul"},
                                           {"matmul", "mm"},       {"matmul", "bmm"},     {"conv", "convolution"},
                                           {"embedding", "index"}, {"einsum", "bmm"},     {"to", "copy"},
                                           {"linear", "bmm"},      {"layer_norm", "norm"}};
    if (!inner[0] || strcasestr(inner, outer) || strcasestr(outer, inner))
        return true;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (strstr(outer, pairs[i][0]) && strstr(inner, pairs[i][1]))
            return true;
    return false;
}

/* "LayerNorm" is layer_norm: the name of a layer in torch.nn is that of its operator. */
static void module_name(const char *class, char out[64])
{
    size_t used = 0;
    for (size_t i = 0; class[i] && used < 62; i++) {
        bool starts = i && isupper((unsigned char)class[i]) &&
                      (islower((unsigned char)class[i - 1]) || islower((unsigned char)class[i + 1]));
        if (starts)
            out[used++] = '_';
        out[used++] = (char)tolower((unsigned char)class[i]);
    }
    out[used] = '\0';
}

/* ---- the scan ---------------------------------------------------------------------------------------------------- */

/* Keeps a rule's text with what its star caught in the place of "{}". */
static const char *scan_text(struct operation_scan *scan, const char *text, const char *caught)
{
    const char *hole = strstr(text, "{}");
    size_t room = sizeof(scan->own) - scan->used;
    char *out = scan->own + scan->used;
    int bytes = hole ? snprintf(out, room, "%.*s%.40s%s", (int)(hole - text), text, caught, hole + 2)
                     : snprintf(out, room, "%s", text);
    if (bytes < 0 || (size_t)bytes >= room)
        return "...";
    scan->used += (size_t)bytes + 1;
    return out;
}

static void scan_operator(struct operation_scan *scan, const char *caught, bool native)
{
    char name[64];
    operator_name(caught, name);
    if (native) {
        memcpy(scan->native, operator_makes(name) ? scan->native : name, sizeof(name));
        return;
    }
    if (!scan->inner[0] && !operator_makes(name))
        memcpy(scan->inner, name, sizeof(name));
    if (!scan->node)
        memcpy(scan->outer, name, sizeof(name));
}

/* inside: of the frame that names the site. */
static void scan_frame(struct operation_scan *scan, const struct gp_operation_rule *rule, const char *caught,
                       bool inside)
{
    if (rule->part != GP_PART_NONE)
        scan->parts[rule->part] = true;
    scan->engine |= rule->role == GP_OP_ENGINE;
    scan->recompute |= rule->role == GP_OP_RECOMPUTE;
    if (!inside)
        return;
    switch (rule->role) {
    case GP_OP_OPERATOR:
    case GP_OP_KERNEL:
        scan_operator(scan, caught, rule->role == GP_OP_KERNEL);
        break;
    case GP_OP_WORKSPACE:
    case GP_OP_WHOLE:
        if (scan->whole_part != GP_PART_WORKSPACE) {
            scan->whole = scan_text(scan, rule->text, caught);
            scan->whole_part = rule->part;
        }
        break;
    case GP_OP_OPTIMIZER:
        scan->optimizer = scan_text(scan, rule->text, caught);
        break;
    case GP_OP_NODE:
        scan->node = scan->node ? scan->node : scan_text(scan, rule->text, caught);
        break;
    case GP_OP_PUBLIC:
        if (caught[0] != '_' && caught[0] != '<' && !strstr(caught, "<locals>"))
            scan->public = scan_text(scan, rule->text, caught);
        break;
    case GP_OP_LAYER:
        scan->layer = scan->layer ? scan->layer : scan_text(scan, rule->text, caught);
        break;
    case GP_OP_MODULE: {
        char name[64];
        module_name(caught, name);
        scan->module = scan->module ? scan->module : scan_text(scan, "{}", name);
        break;
    }
    default:
        break;
    }
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static bool operation_write(const struct operation_scan *scan, char *out, size_t bytes)
{
    const char *outer = scan->native[0] ? scan->native : NULL;
    if (scan->public || scan->outer[0])
        outer = scan->public ? scan->public : scan->outer;
    else if (scan->module)
        outer = scan->module;
    const char *before = scan->recompute && scan->engine ? "recompute: " : scan->engine ? "backward: " : "";
    const char *layer = scan->layer ? scan->layer : "";
    bool more = outer && !operator_same(outer, scan->inner);
    if (scan->whole)
        snprintf(out, bytes, "%s", scan->whole);
    else if (scan->optimizer)
        snprintf(out, bytes, scan->inner[0] ? "%s (%s)" : "%s", scan->optimizer, scan->inner);
    else if (scan->node)
        snprintf(out, bytes, "%s%s", before[0] ? before : "backward: ", scan->node);
    else if (outer)
        snprintf(out, bytes, more ? "%s%s%s%s (%s)" : "%s%s%s%s", before, layer, layer[0] ? ": " : "", outer,
                 scan->inner);
    else if (layer[0] || before[0])
        snprintf(out, bytes, "%s%s", layer[0] ? before : "backward", layer);
    else
        return false;
    return true;
}

static enum gp_operation_part operation_part(const struct operation_scan *scan)
{
    static const enum gp_operation_part order[] = {GP_PART_WORKSPACE, GP_PART_COMMUNICATION, GP_PART_GRAPHS,
                                                   GP_PART_KV_CACHE,  GP_PART_OPTIMIZER,     GP_PART_WEIGHTS};
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        if (scan->parts[order[i]])
            return order[i];
    if (scan->engine)
        return scan->recompute ? GP_PART_FORWARD : GP_PART_BACKWARD;
    return scan->parts[GP_PART_FORWARD] ? GP_PART_FORWARD : GP_PART_NONE;
}

/* Of the threads without Python, only those of the backward pass start in this library: this is
 * all that a viewer without symbols sees of them. */
static bool is_engine_thread(const struct gp_frame_text *frames, uint32_t count)
{
    bool here = false;
    for (uint32_t i = 0; i < count; i++) {
        if (frames[i].python || strcmp(frames[i].function, "[truncated]") == 0)
            return false;
        here |= strncmp(frames[i].module, "libtorch_python.", 16) == 0;
    }
    return here;
}

struct gp_operation gp_operation_find(struct gp_symbols *symbols, const struct gp_frame_text *frames, uint32_t count,
                                      uint32_t name, const char **operator)
{
    struct operation_scan scan = {.whole = NULL};
    char caught[128], text[GP_OPERATION_TEXT];
    bool users = name < count && (frames[name].role == GP_ROLE_USER || frames[name].role == GP_ROLE_WRAPPER);
    scan.engine = is_engine_thread(frames, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_operation_rule *rule = gp_operation_rule_of(&symbols->rules, &frames[i]);
        if (!rule)
            continue;
        gp_operation_rule_catch(rule, &frames[i], caught, sizeof(caught));
        scan_frame(&scan, rule, caught, !users || i < name);
    }
    bool known = operation_write(&scan, text, sizeof(text));
    *operator= scan.outer[0] ? gp_intern(&symbols->intern, scan.outer) : NULL;
    return (struct gp_operation){known ? gp_intern(&symbols->intern, text) : NULL, operation_part(&scan),
                                 users && scan.whole_part != GP_PART_WORKSPACE};
}
