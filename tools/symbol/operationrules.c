/* SPDX-License-Identifier: MIT
 *
 * operationrules.c: the frames of frameworks that tell what they do, as one table, and the rule of
 * a frame; see operation.h. All other frames of a framework, of an interpreter and of CUDA are
 * folded: machinery has no row here.
 */
#include <symbol/operation.h>

#include <fnmatch.h>
#include <read/common/hash.h>
#include <stdio.h>
#include <string.h>

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

bool gp_operation_has_path(const char *file, const char *alternatives)
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
        if ((rule->where != NULL) == frame->python && (!rule->where || gp_operation_has_path(file, rule->where)) &&
            has_function(function, rule->function, &caught, &length, &starred))
            return rule;
    }
    return NULL;
}

const struct gp_operation_rule *gp_operation_rule_of(struct gp_hash *known, const struct gp_frame_text *frame)
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

void gp_operation_rule_catch(const struct gp_operation_rule *rule, const struct gp_frame_text *frame, char *out,
                             size_t room)
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
