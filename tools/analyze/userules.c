/* SPDX-License-Identifier: MIT
 * userules.c: the rules that say what a block is used for, and which of them decides.
 */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <analyze/userules.h>
#include <base/numbers.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <stdio.h>

/* ---- the rules --------------------------------------------------------------------------------------------------- */

static const struct {
    enum gp_use use;
    double confidence;
    const char *reason;
} use_rules[RULES] = {
    [RULE_NO_STEPS] = {GP_USE_UNKNOWN, 0, "no steps were found, so lifetimes tell nothing"},
    [RULE_BEFORE] = {GP_USE_UNKNOWN, 0, "was there when the recording began"},
    [RULE_FIRST] = {GP_USE_UNKNOWN, 0, "came in the first steps and stays; its size and place tell nothing"},
    [RULE_SIZE] = {GP_USE_UNKNOWN, 0, "lives for a step and has the size of a weight: gradient or activation"},
    [RULE_GROWS] = {GP_USE_UNKNOWN, 0, "comes with the steps and stays, while the program trains"},
    [RULE_SUSPECT] = {GP_USE_GROWS, 0, "its call site holds more with every step: see gpuprof leaks"},
    [RULE_NO_FRAMEWORK] = {GP_USE_UNKNOWN, 0, "no framework is on a stack, so lifetimes and sizes tell no use"},
    [RULE_SEVERAL] = {GP_USE_UNKNOWN, 0, "lives for several steps, without a rhythm"},
    [RULE_CROSSES] = {GP_USE_UNKNOWN, 0, "is still there when the next step begins, and goes in it"},
    [RULE_ALONE] = {GP_USE_UNKNOWN, 0, "came after the steps, where nothing came before"},
    [RULE_WEIGHTS_MATCHED] = {GP_USE_WEIGHTS, 0.9, "stays from before the first step; gradients have its size"},
    [RULE_WEIGHTS_NAME] = {GP_USE_WEIGHTS, 0.9, "stays, and a function on its stack loads weights"},
    [RULE_WEIGHTS_LIFE] = {GP_USE_WEIGHTS, 0.6, "stays from before the first step: a weight, or a buffer made early"},
    [RULE_GRADIENTS_THREAD] = {GP_USE_GRADIENTS, 0.9,
                               "outlives the backward pass, whose thread made it; weights have its size"},
    [RULE_GRADIENTS_SIZE] = {GP_USE_GRADIENTS, 0.7, "in each step there is one for each weight, of its size"},
    [RULE_GRADIENTS_KEPT] = {GP_USE_GRADIENTS, 0.8,
                             "made by the thread of the backward pass, and stays; weights have its size"},
    [RULE_OPTIMIZER_NAME] = {GP_USE_OPTIMIZER, 0.95, "stays, and an optimizer is on its stack"},
    [RULE_OPTIMIZER_SIZE] = {GP_USE_OPTIMIZER, 0.7, "came in the first steps and stays; weights have its size"},
    [RULE_ACTIVATIONS] = {GP_USE_ACTIVATIONS, 0.8, "lives for a step at most"},
    [RULE_IN_STEP] = {GP_USE_ACTIVATIONS, 0.6, "lives for a step at most; no backward pass was seen"},
    [RULE_KV_NAME] = {GP_USE_KV_CACHE, 0.9, "a function or file on its stack has a KV cache in its name"},
    [RULE_KV_CHAIN] = {GP_USE_KV_CACHE, 0.7, "replaces a block that is a little smaller, time after time"},
    [RULE_KV_LONG] = {GP_USE_KV_CACHE, 0.6, "comes step by step, and goes together after several steps"},
    [RULE_GRAPH_USED] = {GP_USE_GRAPHS, 1, "CUDA graphs have it in use, as the driver says"},
    [RULE_GRAPH_NODES] = {GP_USE_GRAPHS, 1, "nodes of CUDA graphs asked for it (not part of the allocated bytes)"},
    [RULE_GRAPHS_NAME] = {GP_USE_GRAPHS, 0.8, "a function or file on its stack captures graphs"},
    [RULE_LIBRARY] = {GP_USE_WORKSPACE, 0.9, "a library of mathematical functions asked for it"},
    [RULE_WORKSPACE_NAME] = {GP_USE_WORKSPACE, 0.8, "a function on its stack has a workspace in its name"},
    [RULE_COMMUNICATION] = {GP_USE_COMMUNICATION, 0.95, "a library of communication asked for it"},
    [RULE_POOL] = {GP_USE_UNKNOWN, 0, "XLA's pool: what it is used for is not seen"},
    [RULE_TEMPORARY] = {GP_USE_TEMPORARY, 0.8, "came and went before the steps"},
    [RULE_WORKSPACE_SIZE] = {GP_USE_WORKSPACE, 0.7,
                             "stays, and has the size of the workspace that PyTorch gives cuBLAS"},
    [RULE_STACK_GRADIENTS] = {GP_USE_GRADIENTS, 0.95, "made in a backward pass, and there after it"},
    [RULE_STACK_ACTIVATIONS] = {GP_USE_ACTIVATIONS, 0.95,
                                "is there when a backward pass starts, and goes before the next one"},
    [RULE_CUT_ACTIVATIONS] = {GP_USE_ACTIVATIONS, 0.8,
                              "of the last pass, which did not end; its call site made activations before"},
    [RULE_FORWARD_KEPT] = {GP_USE_UNKNOWN, 0, "outlives its forward pass, and the program keeps it over others"},
    [RULE_STACK_TEMPORARY] = {GP_USE_TEMPORARY, 0.9,
                              "made and freed in one forward pass, backward pass or step of an optimizer"},
};

const char *gp_use_name(enum gp_use use)
{
    static const char *const names[GP_USES] = {
        [GP_USE_WEIGHTS] = "weights",     [GP_USE_GRADIENTS] = "gradients",
        [GP_USE_OPTIMIZER] = "optimizer", [GP_USE_ACTIVATIONS] = "activations",
        [GP_USE_KV_CACHE] = "kv_cache",   [GP_USE_GRAPHS] = "graphs",
        [GP_USE_WORKSPACE] = "workspace", [GP_USE_COMMUNICATION] = "communication",
        [GP_USE_TEMPORARY] = "temporary", [GP_USE_GROWS] = "grows",
        [GP_USE_UNKNOWN] = "unknown"};
    return names[use];
}

static const char *use_text(enum gp_use use)
{
    switch (use) {
    case GP_USE_OPTIMIZER:
        return "optimizer state";
    case GP_USE_KV_CACHE:
        return "KV cache";
    case GP_USE_GRAPHS:
        return "graph memory";
    default:
        return gp_use_name(use);
    }
}

const char *gp_use_words(char text[GP_USE_WORDS], enum gp_use use, double sure)
{
    bool plain = sure >= GP_USE_PLAIN || use == GP_USE_GROWS || use == GP_USE_UNKNOWN;
    snprintf(text, GP_USE_WORDS, "%s%s", plain ? "" : "probably ", use_text(use));
    return text;
}

double gp_use_sure(const struct gp_use_table *uses, enum gp_use use)
{
    double sure[2] = {0}, bytes[2] = {0};
    for (uint32_t i = 0; i < GP_USE_RULES; i++) {
        const struct gp_use_row *row = &uses->rows[i];
        if (!row->count || row->use != use)
            continue;
        bytes[0] += (double)row->at_peak_bytes;
        sure[0] += row->confidence * (double)row->at_peak_bytes;
        bytes[1] += (double)row->peak_bytes;
        sure[1] += row->confidence * (double)row->peak_bytes;
    }
    return bytes[0] > 0 ? sure[0] / bytes[0] : bytes[1] > 0 ? sure[1] / bytes[1] : 0;
}

void gp_use_name_rows(struct gp_use_table *uses)
{
    for (uint32_t i = 0; i < RULES; i++) {
        uses->rows[i].use = use_rules[i].use;
        uses->rows[i].confidence = use_rules[i].confidence;
        uses->rows[i].reason = use_rules[i].reason;
    }
}

/* ---- decisions --------------------------------------------------------------------------------------------------- */

static enum use_rule rule_of_hint(enum gp_use_hint hint, enum use_life life)
{
    bool stays = life == LIFE_EARLY || life == LIFE_FIRST || life == LIFE_LATE || life == LIFE_BEFORE;
    switch (hint) {
    case GP_HINT_COMMUNICATION:
        return RULE_COMMUNICATION;
    case GP_HINT_LIBRARY:
        return RULE_LIBRARY;
    case GP_HINT_POOL:
        return RULE_POOL;
    case GP_HINT_WORKSPACE:
        return RULE_WORKSPACE_NAME;
    case GP_HINT_GRAPHS:
        return life == LIFE_STEP ? RULES : RULE_GRAPHS_NAME;
    case GP_HINT_KV_CACHE:
        return RULE_KV_NAME;
    case GP_HINT_OPTIMIZER:
        return stays ? RULE_OPTIMIZER_NAME : RULES;
    case GP_HINT_WEIGHTS:
        return stays ? RULE_WEIGHTS_NAME : RULES;
    case GP_HINT_NONE:
    case GP_HINT_FORWARD:
    case GP_HINT_BACKWARD:
    case GP_HINT_NO_FRAMEWORK:
        break;
    }
    return RULES;
}

/* Blocks that come with many steps and stay longer than their step. */
static enum use_rule rule_of_growth(const struct uses_work *w, const struct use_key *key, enum use_life life)
{
    uint32_t often = w->bound_count / 8 > 4 ? w->bound_count / 8 : 4;
    if (life == LIFE_STEP || key->steps < often)
        return RULES;
    if (w->uses->trains)
        return RULE_GROWS;
    /* The blocks of a request go together. A buffer goes when the next one comes. */
    return key->together >= 4 && key->together >= key->count / 16 ? RULE_KV_LONG : RULE_SEVERAL;
}

static enum use_rule rule_of_first(const struct uses_work *w, const struct gp_rec_event *item, struct use_size *size)
{
    if (!size)
        return RULE_FIRST;
    if (gp_use_is_backward(w, item))
        return RULE_GRADIENTS_KEPT;
    /* Optimizers of PyTorch keep up to three numbers for each weight. */
    if (w->uses->trains && size->gradients && size->first++ < size->weights * 3)
        return RULE_OPTIMIZER_SIZE;
    return RULE_FIRST;
}

static enum use_rule rule_of_transient(struct uses_work *w, const struct gp_rec_event *item, uint32_t lived)
{
    const struct use_size *size = gp_use_size(w, item);
    const struct use_key *key = gp_use_key(w, item);
    bool told = w->uses->trains || w->backward; /* which transient blocks are gradients */
    /* Most of its kind live longer: it came shortly before they went. */
    if (!told && key->count > key->within + key->crossing && rule_of_growth(w, key, LIFE_SEVERAL) != RULES)
        return rule_of_growth(w, key, LIFE_SEVERAL);
    /* A name may keep the newest result of a loop until the next one is there. */
    if (lived && key->crossing > key->within / 4)
        return RULE_CROSSES;
    return size && !told && (w->size_count < 3 || size->states) ? RULE_SIZE
           : w->uses->trains                                    ? RULE_ACTIVATIONS
                                                                : RULE_IN_STEP;
}

static enum use_rule rule_of_life(struct uses_work *w, const struct gp_rec_event *item, enum use_life life,
                                  uint32_t lived)
{
    struct use_key *key = gp_use_key(w, item);
    struct use_size *size = gp_use_size(w, item);
    enum use_rule rule;
    switch (life) {
    case LIFE_BEFORE:
        return RULE_BEFORE;
    case LIFE_START:
        return RULE_TEMPORARY;
    case LIFE_EARLY:
        if (size && gp_use_is_backward(w, item)) /* the steps were found late */
            return RULE_GRADIENTS_KEPT;
        return size && size->gradients ? RULE_WEIGHTS_MATCHED : RULE_WEIGHTS_LIFE;
    case LIFE_STEP:
        rule = w->uses->trains ? RULES : rule_of_growth(w, key, life);
        return rule != RULES ? rule : rule_of_transient(w, item, lived);
    case LIFE_AFTER:
        return key->rule ? key->rule : RULE_ALONE;
    case LIFE_FIRST:
        rule = rule_of_first(w, item, size);
        if (rule != RULE_FIRST)
            return rule;
        __attribute__((fallthrough));
    default:
        rule = rule_of_growth(w, key, life);
        return rule != RULES ? rule : life == LIFE_FIRST ? RULE_FIRST : RULE_SEVERAL;
    }
}

/* What a rule says that concludes from lifetimes and sizes alone, or from a name that any program may have: the
 * buffers of an image program live as weights and activations do. */
static bool needs_framework(enum use_rule rule)
{
    switch (use_rules[rule].use) {
    case GP_USE_WEIGHTS:
    case GP_USE_GRADIENTS:
    case GP_USE_OPTIMIZER:
    case GP_USE_ACTIVATIONS:
        return true;
    case GP_USE_KV_CACHE:
        return rule != RULE_KV_NAME;
    default:
        return rule == RULE_SIZE;
    }
}

static void decide(struct uses_work *w, const struct gp_flow_change *change)
{
    const struct gp_rec_event *item = change->item;
    uint8_t *rule = &w->uses->rule[change->id];
    uint32_t lived;
    enum use_life life = gp_use_life(w, change, &lived);
    if (item->device == w->uses->device && item->kind == GP_KIND_GRAPH && item->type == GP_EVENT_ALLOC)
        *rule = RULE_GRAPH_NODES;
    if (gp_wire_is_poll(item->type, item->kind)) {
        *rule = RULE_GRAPH_USED;
        return;
    }
    if (life == LIFE_NONE)
        return;
    if (item->site && w->keys[item->site].grows) {
        *rule = RULE_SUSPECT;
        return;
    }
    enum use_rule told = rule_of_hint(gp_use_hint_at(w, item), life);
    if (told == RULES && w->chain[change->id] < USE_CHAIN)
        told = gp_use_rule_of_stack(w, change);
    if (told != RULES) {
        *rule = (uint8_t)told;
    } else if (w->chain[change->id] >= USE_CHAIN) {
        *rule = RULE_KV_CHAIN;
    } else if (!w->bound_count) {
        *rule = life == LIFE_BEFORE ? RULE_BEFORE : RULE_NO_STEPS;
    } else if (!w->uses->trains || (*rule != RULE_GRADIENTS_THREAD && *rule != RULE_GRADIENTS_SIZE)) {
        *rule = (uint8_t)rule_of_life(w, item, life, lived);
    }
    if (w->hints && w->hints[0] == GP_HINT_NO_FRAMEWORK && needs_framework((enum use_rule) * rule))
        *rule = RULE_NO_FRAMEWORK;
    if (life == LIFE_STEP || life == LIFE_SEVERAL || life == LIFE_LATE)
        gp_use_key(w, item)->rule = *rule;
    gp_use_key(w, item)->crossed |= *rule == RULE_STACK_ACTIVATIONS;
}

void gp_use_decide(struct uses_work *w)
{
    struct gp_flow_walk walk = gp_flow_begin(w->flow);
    struct gp_flow_change change;
    while (gp_flow_next(&walk, &change)) {
        if (change.add)
            decide(w, &change);
    }
}
