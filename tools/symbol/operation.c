/* SPDX-License-Identifier: MIT
 * operation.c: what a framework was doing when it asked for a site's memory (internal.h):
 * "cross_entropy (log_softmax)", "backward: AddmmBackward0", "optimizer: AdamW.step". The rules are
 * one table. Called by place.c, which knows the frame that names the site.
 * docs/understand/symbols.md explains it.  Its parts: the rules, the search. */
#include <symbol/internal.h>

#include <ctype.h>
#include <fnmatch.h>
#include <read/common/hash.h>
#include <stdio.h>
#include <string.h>

/* ---- the rules --------------------------------------------------------------------------------------------------- */
/* The frames of frameworks that tell what they do. All other frames of a framework, of an
 * interpreter and of CUDA are folded: machinery has no row here. */

#define TORCH_FUNCTIONS                                                                                                \
    "/torch/nn/functional.py|/torch/functional.py|/torch/nn/init.py|/torch/nn/utils/|/torch/_tensor.py|"               \
    "/torch/linalg/|/torch/fft/|/torch/special/|/torch/amp/grad_scaler.py|/torch/sparse/"
#define OPTIMIZERS                                                                                                     \
    "/torch/optim/|/bitsandbytes/optim/|/apex/optimizers/|/deepspeed/ops/|/deepspeed/runtime/|/timm/optim/|"           \
    "/transformers/optimization.py|/pytorch/optimizers/|/torch_optimizer/|/paddle/optimizer/"
#define MODELS                                                                                                         \
    "/transformers/models/|/diffusers/models/|/timm/models/|/timm/layers/|/torchvision/models/|/peft/tuners/|"         \
    "/torchaudio/models/|/vllm/model_executor/"
#define JAX_FUNCTIONS "/jax/_src/numpy/|/jax/_src/lax/|/jax/_src/nn/|/jax/_src/random.py|/jax/_src/scipy/"
#define MODULE_MOVES                                                                                                   \
    "Module.to|Module.cuda|Module.half|Module.float|Module.double|Module.bfloat16|Module.type|Module.to_empty|"        \
    "Module.load_state_dict"

/* The first that matches counts. */
static const struct gp_operation_rule operation_rules[] = {
    /* PyTorch, Python. */
    {"pytorch", "/torch/nn/modules/module.py", "*_call_impl", GP_OP_PART, NULL, GP_PART_FORWARD},
    {"pytorch", "/torch/nn/modules/module.py", MODULE_MOVES, GP_OP_WHOLE, "{}", GP_PART_WEIGHTS},
    {"pytorch", "/torch/nn/modules/module.py", "to|cuda|half|float|double|bfloat16|type|to_empty|load_state_dict",
     GP_OP_WHOLE, "Module.{}", GP_PART_WEIGHTS},
    {"pytorch", "/torch/nn/modules/", "*.__init__", GP_OP_WHOLE, "{}.__init__", GP_PART_WEIGHTS},
    {"pytorch", "/torch/nn/modules/", "*.forward|forward", GP_OP_MODULE, "{}", GP_PART_FORWARD},
    {"pytorch", "/torch/optim/lr_scheduler.py|/torch/optim/swa_utils.py", "*", GP_OP_PART, NULL, GP_PART_NONE},
    {"any", OPTIMIZERS, "*.step|step", GP_OP_OPTIMIZER, "optimizer: {}.step", GP_PART_OPTIMIZER},
    {"any", OPTIMIZERS, "*.load_state_dict|load_state_dict", GP_OP_OPTIMIZER, "optimizer: load_state_dict",
     GP_PART_OPTIMIZER},
    {"pytorch", "/torch/_tensor.py", "Tensor.backward|backward", GP_OP_ENGINE, NULL, GP_PART_BACKWARD},
    {"pytorch", "/torch/autograd/__init__.py", "backward|grad", GP_OP_ENGINE, NULL, GP_PART_BACKWARD},
    {"pytorch", "/torch/utils/checkpoint.py", "*", GP_OP_RECOMPUTE, NULL, GP_PART_NONE},
    {"pytorch", "/torch/cuda/graphs.py", "*", GP_OP_PART, NULL, GP_PART_GRAPHS},
    {"pytorch", "/torch/serialization.py", "load", GP_OP_WHOLE, "torch.load", GP_PART_WEIGHTS},
    {"pytorch", "/torch/nn/parallel/distributed.py", "*_ddp_init_helper", GP_OP_WHOLE, "DDP buckets",
     GP_PART_COMMUNICATION},
    {"pytorch", "/torch/distributed/fsdp/", "*all_gather*|*unshard*", GP_OP_WHOLE, "FSDP all-gather",
     GP_PART_COMMUNICATION},
    {"pytorch", "/torch/distributed/fsdp/", "*reduce_scatter*|foreach_reduce*", GP_OP_WHOLE, "FSDP reduce-scatter",
     GP_PART_COMMUNICATION},
    {"pytorch", "/torch/distributed/distributed_c10d.py", "*", GP_OP_PUBLIC, "{}", GP_PART_COMMUNICATION},
    {"pytorch", "/torchinductor_", "*", GP_OP_WHOLE, "compiled graph", GP_PART_FORWARD},
    {"pytorch", TORCH_FUNCTIONS, "*", GP_OP_PUBLIC, "{}", GP_PART_NONE},

    /* PyTorch, C++. */
    {"pytorch", NULL, "at::cuda::getCurrentCUDABlasHandle|at::cuda::*Workspace*", GP_OP_WORKSPACE, "cuBLAS workspace",
     GP_PART_WORKSPACE},
    {"pytorch", NULL, "at::native::raw_cudnn_*|at::native::*cudnn*Workspace*", GP_OP_WORKSPACE, "cuDNN workspace",
     GP_PART_WORKSPACE},
    {"pytorch", NULL, "at::_ops::*::call", GP_OP_OPERATOR, "{}", GP_PART_NONE},
    {"pytorch", NULL, "at::_ops::*::redispatch", GP_OP_OPERATOR, "{}", GP_PART_NONE},
    {"pytorch", NULL, "torch::autograd::generated::*::apply", GP_OP_NODE, "{}", GP_PART_BACKWARD},
    {"pytorch", NULL, "torch::autograd::PyNode::apply", GP_OP_ENGINE, NULL, GP_PART_BACKWARD},
    {"pytorch", NULL, "torch::autograd::Engine::*", GP_OP_ENGINE, NULL, GP_PART_BACKWARD},
    {"pytorch", NULL, "torch::autograd::*::apply", GP_OP_NODE, "{}", GP_PART_BACKWARD},
    {"pytorch", NULL, "c10d::Reducer::*", GP_OP_WHOLE, "DDP buckets", GP_PART_COMMUNICATION},
    {"pytorch", NULL, "at::native::*", GP_OP_KERNEL, "{}", GP_PART_NONE},

    /* Packages on top of PyTorch. */
    {"any", "/site-packages/|/dist-packages/", "*from_pretrained", GP_OP_WHOLE, "from_pretrained", GP_PART_WEIGHTS},
    {"accelerate", "/accelerate/utils/modeling.py", "set_module_tensor_to_device|load_checkpoint_in_model", GP_OP_WHOLE,
     "load_checkpoint", GP_PART_WEIGHTS},
    {"transformers", "/transformers/cache_utils.py", "*", GP_OP_WHOLE, "KV cache", GP_PART_KV_CACHE},
    {"any", MODELS, "*.forward|forward", GP_OP_LAYER, "{}", GP_PART_FORWARD},
    {"any", "/flash_attn/|/xformers/ops/", "*", GP_OP_PUBLIC, "{}", GP_PART_NONE},

    /* JAX. */
    {"jax", "/jax/_src/api.py", "device_put", GP_OP_PUBLIC, "{}", GP_PART_NONE},
    {"jax", "/jax/_src/pjit.py", "*cache_miss|*_python_pjit_helper", GP_OP_WHOLE, "jit", GP_PART_NONE},
    {"jax", JAX_FUNCTIONS, "*", GP_OP_PUBLIC, "{}", GP_PART_NONE},
    {"jax", "/flax/|/haiku/|/equinox/", "*.__call__|__call__", GP_OP_LAYER, "{}", GP_PART_FORWARD},
    {"jax", "/optax/", "*.<locals>.init_fn", GP_OP_OPTIMIZER, "optimizer: {}", GP_PART_OPTIMIZER},
    {"jax", "/optax/", "*.<locals>.update_fn", GP_OP_OPTIMIZER, "optimizer: {}", GP_PART_OPTIMIZER},

    /* TensorFlow and Keras. */
    {"tensorflow", "/keras/", "*.call|call", GP_OP_LAYER, "{}", GP_PART_FORWARD},
    {"tensorflow", "/keras/src/optimizers/|/keras/optimizers/", "*.build|*.update_step", GP_OP_OPTIMIZER,
     "optimizer: {}", GP_PART_OPTIMIZER},
    {"tensorflow", "/tensorflow/python/eager/polymorphic_function/", "*.__call__", GP_OP_PUBLIC, "tf.function",
     GP_PART_NONE},
    {"tensorflow", "/tensorflow/python/eager/backprop.py", "GradientTape.gradient|gradient", GP_OP_ENGINE, NULL,
     GP_PART_BACKWARD},
    {"tensorflow", "/tensorflow/python/ops/gen_", "*", GP_OP_PART, NULL, GP_PART_NONE},
    {"tensorflow", "/tensorflow/python/ops/|/keras/src/ops/|/keras/src/backend/", "*", GP_OP_PUBLIC, "{}",
     GP_PART_NONE},
    {"tensorflow", NULL, "tensorflow::*::Compute", GP_OP_OPERATOR, "{}", GP_PART_NONE},

    /* Paddle. */
    {"paddle", "/paddle/base/dygraph/tensor_patch_methods.py", "*backward", GP_OP_ENGINE, NULL, GP_PART_BACKWARD},
    {"paddle", "/paddle/nn/layer/", "*.forward|forward", GP_OP_MODULE, "{}", GP_PART_FORWARD},
    {"paddle", "/paddle/nn/functional/|/paddle/tensor/", "*", GP_OP_PUBLIC, "{}", GP_PART_NONE},
    {"paddle", NULL, "egr::RunBackward|egr::Backward", GP_OP_ENGINE, NULL, GP_PART_BACKWARD},
    {"paddle", NULL, "*GradNode::operator()", GP_OP_NODE, "{}GradNode", GP_PART_BACKWARD},
    {"paddle", NULL, "paddle::experimental::*", GP_OP_OPERATOR, "{}", GP_PART_NONE},
    {"paddle", NULL, "phi::*Kernel", GP_OP_KERNEL, "{}", GP_PART_NONE},

    /* Arrays. */
    {"cupy", "/cupy/|/cupyx/", "*", GP_OP_PUBLIC, "{}", GP_PART_NONE},
    {"numba", "/numba/cuda/", "device_array*|to_device|*copy_to_device", GP_OP_PUBLIC, "{}", GP_PART_NONE},
    {"pycuda", "/pycuda/gpuarray.py", "*", GP_OP_PUBLIC, "{}", GP_PART_NONE},
    {"cudf", "/cudf/", "*", GP_OP_PUBLIC, "{}", GP_PART_NONE},
    {0},
};

/* ---- the search -------------------------------------------------------------------------------------------------- */

#define GP_OPERATION_TEXT 160

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

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static bool has_path(const char *file, const char *alternatives)
{
    char part[64];
    for (size_t bytes; *alternatives; alternatives += bytes + (alternatives[bytes] == '|')) {
        bytes = strcspn(alternatives, "|");
        snprintf(part, sizeof(part), "%.*s", (int)bytes, alternatives);
        if (strstr(file, part))
            return true;
    }
    return false;
}

/* caught, *length: what the only star of the matching alternative stands for; the whole text
 * without one. */
static bool has_function(const char *function, const char *alternatives, const char **caught, size_t *length,
                         bool *starred)
{
    char pattern[96];
    for (size_t bytes; *alternatives; alternatives += bytes + (alternatives[bytes] == '|')) {
        bytes = strcspn(alternatives, "|");
        snprintf(pattern, sizeof(pattern), "%.*s", (int)bytes, alternatives);
        if (fnmatch(pattern, function, 0) != 0)
            continue;
        const char *star = strchr(pattern, '*');
        *starred = star && !strchr(star + 1, '*');
        *caught = function + (*starred ? (size_t)(star - pattern) : 0);
        *length = strlen(function) - (*starred ? strlen(pattern) - 1 : 0);
        return true;
    }
    return false;
}

/* The function as the rules have it: without the arguments of C++. */
static void frame_function(const struct gp_frame_text *frame, char out[256])
{
    const char *from = frame->plain ? frame->plain : frame->function;
    size_t length = strlen(from);
    for (const char *at = from; !frame->python && (at = strchr(at, '(')) != NULL; at++) {
        if (strncmp(at, "(anonymous namespace)", 21) == 0 || (at >= from + 8 && strncmp(at - 8, "operator", 8) == 0))
            continue;
        length = (size_t)(at - from);
        break;
    }
    snprintf(out, 256, "%.*s", length < 255 ? (int)length : 255, from);
}

static void frame_file(const struct gp_frame_text *frame, char out[GP_SYMBOL_TEXT])
{
    snprintf(out, GP_SYMBOL_TEXT, "%s", frame->file);
    for (char *at = out; (at = strchr(at, '\\')) != NULL;)
        *at = '/';
}

static const struct gp_operation_rule *rule_search(const struct gp_frame_text *frame)
{
    const char *caught;
    char function[256], file[GP_SYMBOL_TEXT];
    size_t length;
    bool starred;
    frame_function(frame, function);
    frame_file(frame, file);
    for (const struct gp_operation_rule *rule = operation_rules; rule->framework; rule++) {
        if ((rule->where != NULL) == frame->python && (!rule->where || has_path(file, rule->where)) &&
            has_function(function, rule->function, &caught, &length, &starred))
            return rule;
    }
    return NULL;
}

/* The rule of a frame; NULL: none. The names of functions and files are interned. */
static const struct gp_operation_rule *rule_of(struct gp_hash *known, const struct gp_frame_text *frame)
{
    uint64_t hash = gp_hash_of_number(gp_hash_of_number((uintptr_t)(frame->plain ? frame->plain : frame->function)) +
                                      (uintptr_t)frame->file + frame->python);
    const uint32_t *found = gp_hash_find(known, hash, NULL, NULL);
    bool added;
    if (found)
        return *found == UINT32_MAX ? NULL : &operation_rules[*found];
    const struct gp_operation_rule *rule = rule_search(frame);
    gp_hash_add(known, hash, NULL, NULL, rule ? (uint32_t)(rule - operation_rules) : UINT32_MAX, &added);
    return rule;
}

/* What stands in the place of "{}". Without the name of its class, which Python has since 3.11,
 * a layer or an optimizer has that of its file. */
static void rule_catch(const struct gp_operation_rule *rule, const struct gp_frame_text *frame, char *out, size_t room)
{
    char function[256], file[GP_SYMBOL_TEXT];
    const char *caught = "";
    size_t length = 0;
    bool starred = true,
         named = rule->role == GP_OP_MODULE || rule->role == GP_OP_LAYER || rule->role == GP_OP_OPTIMIZER;
    frame_function(frame, function);
    has_function(function, rule->function, &caught, &length, &starred);
    if (!starred && named) {
        frame_file(frame, file);
        caught = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
        length = strcspn(caught, ".");
    }
    snprintf(out, room, "%.*s", (int)length, caught);
}

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
        const struct gp_operation_rule *rule = rule_of(&symbols->rules, &frames[i]);
        if (!rule)
            continue;
        rule_catch(rule, &frames[i], caught, sizeof(caught));
        scan_frame(&scan, rule, caught, !users || i < name);
    }
    bool known = operation_write(&scan, text, sizeof(text));
    *operator= scan.outer[0] ? gp_intern(&symbols->intern, scan.outer) : NULL;
    return (struct gp_operation){known ? gp_intern(&symbols->intern, text) : NULL, operation_part(&scan),
                                 users && scan.whole_part != GP_PART_WORKSPACE};
}

/* ---- states of an optimizer -------------------------------------------------------------------------------------- */

#define GP_STATES 3u /* of an optimizer, that are named */

/* torch.optim makes the states of a weight in one function, one line for each, in this order.
 * Since no stack says which line it is, all must be there. */
static const struct {
    const char *file, *names[GP_STATES];
} operation_states[] = {{"/torch/optim/adam.py", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
                        {"/torch/optim/adamw.py", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
                        {"/torch/optim/radam.py", {"exp_avg", "exp_avg_sq", NULL}},
                        {"/torch/optim/nadam.py", {"exp_avg", "exp_avg_sq", NULL}},
                        {"/torch/optim/adamax.py", {"exp_avg", "exp_inf", NULL}},
                        {"/torch/optim/adadelta.py", {"square_avg", "acc_delta", NULL}}};
#define GP_STATE_FILES (sizeof(operation_states) / sizeof(operation_states[0]))

/* The frame whose line makes the state; NULL: it is none. *file: index in operation_states. */
static const struct gp_frame_text *state_frame(const struct gp_symbol_site *site, size_t *file)
{
    static const char makes[] = "_init_group";
    if (site->operation.part != GP_PART_OPTIMIZER || !site->operation.text ||
        (site->operator&& strcmp(site->operator, "zeros_like") != 0))
        return NULL;
    for (uint32_t i = 0; i < site->name; i++) {
        size_t length = strlen(site->frames[i].function), end = sizeof(makes) - 1;
        if (length < end || strcmp(site->frames[i].function + length - end, makes) != 0)
            continue;
        for (*file = 0; *file < GP_STATE_FILES; ++*file)
            if (has_path(site->frames[i].file, operation_states[*file].file))
                return &site->frames[i];
    }
    return NULL;
}

void gp_operation_states(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
{
    uint32_t lines[GP_STATE_FILES][GP_STATES + 1] = {{0}}, known[GP_STATE_FILES] = {0}, k;
    const struct gp_frame_text *frame;
    size_t file;
    for (uint32_t i = 0; i < count; i++) {
        if (!(frame = state_frame(&symbols->sites[sites[i]], &file)))
            continue;
        for (k = 0; k < known[file] && lines[file][k] < frame->line;)
            k++;
        if (known[file] > GP_STATES || (k < known[file] && lines[file][k] == frame->line))
            continue;
        memmove(&lines[file][k + 1], &lines[file][k], (known[file] - k) * sizeof(lines[0][0]));
        lines[file][k] = frame->line;
        known[file]++;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct gp_symbol_site *site = &symbols->sites[sites[i]];
        char text[GP_OPERATION_TEXT + 32];
        if (!(frame = state_frame(site, &file)) || known[file] < 2 || known[file] > GP_STATES)
            continue;
        for (k = 0; lines[file][k] != frame->line;)
            k++;
        if (!operation_states[file].names[known[file] - 1])
            continue;
        snprintf(text, sizeof(text), "%s (%s)", site->operation.text, operation_states[file].names[k]);
        site->operation.text = gp_intern(&symbols->intern, text);
    }
}
