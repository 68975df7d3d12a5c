/* SPDX-License-Identifier: MIT
 *
 * test_operation.c: what a framework did when it asked for memory: stacks as programs of PyTorch,
 * transformers, accelerate, Lightning, JAX, TensorFlow, Paddle and CuPy have them. Those of PyTorch
 * are of its version 2.6.
 */
#include <base/compiler.h>
#include <read/recording/recording.h>
#include <symbol/symbol.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SITES "/usr/lib/python3/dist-packages/"
#define TORCH SITES "torch/"

static struct gp_recording *recording;
static struct gp_symbols *symbols;

static void put(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
}

/* One allocation per stack: frames, innermost first, one per line: "function file:line", or only
 * a function of C++. */
static void load(const char *const *stacks, size_t count)
{
    char *text = NULL, why[256];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    fputs("{\"segments\": [], \"device_traces\": [[", out);
    for (size_t i = 0; i < count; i++) {
        char copy[4096], *save = NULL, *line;
        snprintf(copy, sizeof(copy), "%s", stacks[i]);
        fprintf(
            out,
            "%s{\"action\": \"alloc\", \"addr\": %zu, \"size\": 1024, \"stream\": 0, \"time_us\": %zu, \"frames\": [",
            i ? ", " : "", (i + 1) << 20, i + 5);
        for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            char *colon = strrchr(line, ':'), *file = strstr(line, " /");
            file = file ? file : strstr(line, " C:\\");
            file = file ? file : strstr(line, " <");
            fputs(line == copy ? "{\"name\": \"" : ", {\"name\": \"", out);
            if (file)
                *file++ = *colon++ = '\0';
            put(out, line);
            fputs("\", \"filename\": \"", out);
            put(out, file ? file : "??");
            fprintf(out, "\", \"line\": %s}", file ? colon : "0");
        }
        fputs("]}", out);
    }
    fputs("]]}", out);
    fclose(out);
    cr_assert_eq(gp_recording_parse(&recording, text, bytes, why, sizeof(why)), 0, "%s: %s", why, text);
    free(text);
    const struct gp_symbol_source source = gp_symbol_source_of(recording, NULL);
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    cr_assert_eq(recording->site_count, count + 1);
}

static void done(void)
{
    gp_symbols_free(symbols);
    gp_recording_free(recording);
}

struct wanted {
    const char *stack, *line;
    enum gp_operation_part part;
};

/* Each stack is a program of its own. */
static void expect(const struct wanted *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char line[200];
        load(&wanted[i].stack, 1);
        gp_symbols_line(symbols, 1, NULL, NULL, line, sizeof(line));
        cr_expect_str_eq(line, wanted[i].line, "%zu: '%s', not '%s'", i, line, wanted[i].line);
        cr_expect_eq(gp_symbols_operation(symbols, 1)->part, wanted[i].part, "%zu: part %d", i,
                     gp_symbols_operation(symbols, 1)->part);
        done();
    }
}
#define EXPECT(_rows) expect(_rows, GP_COUNT(_rows))

#define EMPTY                                                                                                          \
    "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc\n"                                        \
    "at::detail::empty_generic\nat::detail::empty_cuda\nat::native::empty_cuda\nat::_ops::empty_memory_format::call\n"
#define MODULE_CALL                                                                                                    \
    "Module._call_impl " TORCH "nn/modules/module.py:1750\nModule._wrapped_call_impl " TORCH                           \
    "nn/modules/module.py:1739\n"
#define ENGINE                                                                                                         \
    "torch::autograd::Engine::evaluate_function\ntorch::autograd::Engine::thread_main\n"                               \
    "torch::autograd::Engine::thread_init\ntorch::autograd::python::PythonEngine::thread_init\n"                       \
    "execute_native_thread_routine\nclone3\n"

Test(operation, of_pytorch)
{
    static const struct wanted rows[] = {
        {EMPTY "at::native::structured_log_softmax_cuda_out::impl\nat::_ops::_log_softmax::redispatch\n"
               "torch::autograd::VariableType::_log_softmax\nat::_ops::_log_softmax::call\nat::native::log_softmax\n"
               "at::_ops::log_softmax_int::call\nat::native::cross_entropy_loss_symint\n"
               "at::_ops::cross_entropy_loss::call\ncross_entropy " TORCH "nn/functional.py:3494\n"
               "<module> /home/u/train.py:19",
         "train.py:19  cross_entropy (log_softmax)", GP_PART_NONE},
        {EMPTY "at::native::structured_addmm_out_cuda::impl\nat::_ops::addmm::redispatch\nat::_ops::addmm::call\n"
               "at::native::linear\nat::_ops::linear::call\nLinear.forward " TORCH
               "nn/modules/linear.py:125\n" MODULE_CALL "Block.forward /home/u/model.py:10\n" MODULE_CALL
               "main /home/u/train.py:9",
         "Block.forward (model.py:10)  linear", GP_PART_FORWARD},
        /* Of the operator that computes alone. */
        {"at::native::structured_addmm_out_cuda::impl\nmain /home/u/train.py:9", "main (train.py:9)  addmm",
         GP_PART_NONE},
        /* A viewer without the libraries, and Python before 3.11. */
        {"forward " TORCH "nn/modules/normalization.py:217\n_call_impl " TORCH "nn/modules/module.py:1750\n"
         "forward /home/u/model.py:10",
         "forward (model.py:10)  normalization", GP_PART_FORWARD},
        {"LayerNorm.forward " TORCH "nn/modules/normalization.py:217\n" MODULE_CALL "Block.forward /home/u/model.py:10",
         "Block.forward (model.py:10)  layer_norm", GP_PART_FORWARD},
        {EMPTY
         "at::_ops::_softmax_backward_data::call\ntorch::autograd::generated::LogSoftmaxBackward0::apply\n" ENGINE,
         "backward: LogSoftmaxBackward0", GP_PART_BACKWARD},
        {EMPTY "at::_ops::clone::call\ntorch::autograd::AccumulateGrad::apply\n" ENGINE, "backward: AccumulateGrad",
         GP_PART_BACKWARD},
        {EMPTY "at::_ops::ones_like::call\n_make_grads " TORCH "autograd/__init__.py:199\nbackward " TORCH
               "autograd/__init__.py:346\nTensor.backward " TORCH "_tensor.py:626\nmain /home/u/train.py:16",
         "main (train.py:16)  backward: ones_like", GP_PART_BACKWARD},
        /* A function of the user's in the backward pass, and a forward pass that runs again in
         * it. */
        {EMPTY "at::_ops::mul_Tensor::call\nMyFunction.backward /home/u/op.py:12\nBackwardCFunction.apply " TORCH
               "autograd/function.py:307\ntorch::autograd::PyNode::apply\n" ENGINE,
         "MyFunction.backward (op.py:12)  backward: mul", GP_PART_BACKWARD},
        {EMPTY "at::_ops::gelu::call\nGELU.forward " TORCH "nn/modules/activation.py:734\n" MODULE_CALL
               "Block.forward /home/u/model.py:10\n" MODULE_CALL "CheckpointFunction.backward " TORCH
               "utils/checkpoint.py:300\ntorch::autograd::PyNode::apply\n" ENGINE,
         "Block.forward (model.py:10)  recompute: gelu", GP_PART_FORWARD},
        {EMPTY "at::_ops::_foreach_sqrt::call\n_multi_tensor_adamw " TORCH "optim/adamw.py:600\nAdamW.step " TORCH
               "optim/adamw.py:243\nOptimizer.profile_hook_step.<locals>.wrapper " TORCH
               "optim/optimizer.py:493\nmain /home/u/train.py:17",
         "main (train.py:17)  optimizer: AdamW.step (foreach_sqrt)", GP_PART_OPTIMIZER},
        {EMPTY "LambdaLR.step " TORCH "optim/lr_scheduler.py:30\nmain /home/u/train.py:18", "main (train.py:18)  empty",
         GP_PART_NONE},
        {EMPTY "at::_ops::_to_copy::call\nat::_ops::to_dtype_layout::call\nModule.cuda.<locals>.<lambda> " TORCH
               "nn/modules/module.py:1053\nModule._apply " TORCH "nn/modules/module.py:930\nModule.cuda " TORCH
               "nn/modules/module.py:1053\nmain /home/u/train.py:5",
         "main (train.py:5)  Module.cuda", GP_PART_WEIGHTS},
        {EMPTY "Linear.__init__ " TORCH "nn/modules/linear.py:106\nNet.__init__ /home/u/model.py:4",
         "Net.__init__ (model.py:4)  Linear.__init__", GP_PART_WEIGHTS},
        {"c10::cuda::CUDACachingAllocator::allocate\nat::cuda::getCurrentCUDABlasHandle\nat::_ops::addmm::call\n"
         "Linear.forward " TORCH "nn/modules/linear.py:125\nNet.forward /home/u/model.py:4",
         "cuBLAS workspace", GP_PART_WORKSPACE},
        {EMPTY "at::_ops::zeros_like::call\nmain /home/u/train.py:3", "main (train.py:3)  zeros_like", GP_PART_NONE},
        {EMPTY
         "c10d::Reducer::initialize_buckets\nc10d::Reducer::Reducer\nDistributedDataParallel._ddp_init_helper " TORCH
         "nn/parallel/distributed.py:1200\nmain /home/u/train.py:6",
         "main (train.py:6)  DDP buckets", GP_PART_COMMUNICATION},
        {EMPTY "call /tmp/torchinductor_u/ab/cabcd.py:70\ncompile_fx.<locals>.run " TORCH
               "_inductor/compile_fx.py:10\nmain /home/u/train.py:6",
         "main (train.py:6)  compiled graph", GP_PART_FORWARD},
        /* A wrapper that Python set at its start is not the reader's code. */
        {EMPTY "at::_ops::linear::call\ncall /opt/sim/python/sitecustomize.py:126\nWorker.run " SITES
               "vllm/worker.py:10\nmain /home/u/serve.py:4",
         "main (serve.py:4)  linear", GP_PART_NONE},
        /* What only started a package is no place: a process of multiprocessing, a script of pip's.  A reader of
         * `python -c` has no other. */
        {EMPTY "at::_ops::zeros::call\nPool._create " SITES "sglang/pool.py:26\nScheduler.__init__ " SITES
               "sglang/scheduler.py:5\nrun_process " SITES "sglang/scheduler.py:90\nBaseProcess._bootstrap "
               "/usr/lib/python3.11/multiprocessing/process.py:314\n<module> <string>:1",
         "Pool._create (pool.py:26)  zeros", GP_PART_NONE},
        {EMPTY "at::_ops::empty::call\nWorker.take " SITES "vllm/worker.py:30\nmain " SITES
               "vllm/cli.py:9\n<module> /venv/bin/vllm:8",
         "Worker.take (worker.py:30)  empty", GP_PART_NONE},
        {EMPTY "at::_ops::zeros::call\n<module> <string>:1", "<string>:1  zeros", GP_PART_NONE},
        {EMPTY "at::_ops::ones::call\nstart " SITES "vllm/worker.py:31\nmain <string>:2\n<module> <string>:4",
         "main (<string>:2)  ones", GP_PART_NONE},
        /* Code that a library wrote, and calls; also where the user's line is `python -c`'s. */
        {EMPTY "at::_ops::zeros::call\n__init__ <string>:3\nmain /home/u/train.py:3", "main (train.py:3)  zeros",
         GP_PART_NONE},
        {EMPTY "at::_ops::zeros::call\nforward <eval_with_key>.5:7\ncall " SITES "genlib/run.py:3\nmain /home/u/a.py:3",
         "main (a.py:3)  zeros", GP_PART_NONE},
        {EMPTY "at::_ops::zeros::call\n__init__ <attrs generated init a.B>:3\nrun " SITES
               "genlib/run.py:9\n<module> /venv/bin/genlib:8",
         "run (run.py:9)  zeros", GP_PART_NONE},
        {EMPTY "at::_ops::zeros::call\nrewrite <string>:3\nrun " SITES
               "genlib/run.py:9\nstep <string>:2\n<module> <string>:9",
         "step (<string>:2)  zeros", GP_PART_NONE},
        {EMPTY "at::_ops::zeros::call\nrun <string>:3\nThread.run /usr/lib/python3.11/threading.py:9",
         "run (<string>:3)  zeros", GP_PART_NONE},
        {EMPTY "at::_ops::zeros::call\nrun <stdin>:3\n<module> <stdin>:9", "run (<stdin>:3)  zeros", GP_PART_NONE},
        /* Windows. */
        {"cross_entropy C:\\venv\\Lib\\site-packages\\torch\\nn\\functional.py:3\n<module> C:\\u\\train.py:19",
         "train.py:19  cross_entropy", GP_PART_NONE},
    };
    EXPECT(rows);
}

/* What a loss keeps is needed again at once, so recomputing it spares nothing. */
Test(operation, of_a_loss)
{
    static const char *const stacks[] = {
        EMPTY "at::_ops::log_softmax_int::call\ncross_entropy " TORCH "nn/functional.py:3\nmain /home/u/train.py:5",
        EMPTY "at::_ops::log_softmax_int::call\nmain /home/u/train.py:6",
        EMPTY "at::_ops::mse_loss::call\nmse_loss " TORCH "nn/functional.py:3\nmain /home/u/train.py:7",
        EMPTY "at::_ops::gelu::call\nmain /home/u/train.py:8",
        EMPTY "at::_ops::softmax_int::call\nclossing /home/u/train.py:9"};
    load(stacks, GP_COUNT(stacks));
    for (uint32_t i = 0; i < GP_COUNT(stacks); i++)
        cr_expect_eq(gp_symbols_is_loss(symbols, i + 1), i < 3, "%u", i);
    cr_expect_not(gp_symbols_is_loss(symbols, 0));
    done();
}

Test(operation, of_packages_on_pytorch)
{
    static const struct wanted rows[] = {
        {EMPTY "at::_ops::addmm::call\nat::_ops::linear::call\nLinear.forward " TORCH
               "nn/modules/linear.py:125\n" MODULE_CALL "LlamaMLP.forward " SITES
               "transformers/models/llama/modeling_llama.py:157\n" MODULE_CALL "LlamaForCausalLM.forward " SITES
               "transformers/models/llama/modeling_llama.py:800\n" MODULE_CALL "Trainer.training_step " SITES
               "transformers/trainer.py:3700\nTrainer.train " SITES
               "transformers/trainer.py:2100\nmain /home/u/train.py:40",
         "main (train.py:40)  LlamaMLP: linear", GP_PART_FORWARD},
        {EMPTY "at::_ops::cat::call\nDynamicCache.update " SITES "transformers/cache_utils.py:440\n"
               "LlamaAttention.forward " SITES
               "transformers/models/llama/modeling_llama.py:260\nmain /home/u/serve.py:9",
         "main (serve.py:9)  KV cache", GP_PART_KV_CACHE},
        {EMPTY "at::_ops::to_dtype_layout::call\nset_module_tensor_to_device " SITES
               "accelerate/utils/modeling.py:300\n"
               "_load_state_dict_into_meta_model " SITES "transformers/modeling_utils.py:900\n"
               "PreTrainedModel.from_pretrained " SITES "transformers/modeling_utils.py:4000\nmain /home/u/serve.py:4",
         "main (serve.py:4)  from_pretrained", GP_PART_WEIGHTS},
        {EMPTY "at::_ops::zeros_like::call\nAdam._init_group " TORCH "optim/adam.py:160\nAdam.step " TORCH
               "optim/adam.py:220\nAcceleratedOptimizer.step " SITES
               "accelerate/optimizer.py:170\nmain /home/u/train.py:8",
         "main (train.py:8)  optimizer: Adam.step", GP_PART_OPTIMIZER},
        {EMPTY "at::_ops::gelu::call\ngelu " SITES
               "x/y.py:3\nNet.training_step /home/u/lit.py:12\n_call_strategy_hook " SITES
               "lightning/pytorch/trainer/call.py:320\nTrainer.fit " SITES
               "lightning/pytorch/trainer/trainer.py:540\nmain /home/u/lit.py:40",
         "Net.training_step (lit.py:12)  gelu", GP_PART_NONE},
        {EMPTY "AdamW8bit.init_state " SITES "bitsandbytes/optim/optimizer.py:440\nOptimizer8bit.step " SITES
               "bitsandbytes/optim/optimizer.py:290\nmain /home/u/train.py:8",
         "main (train.py:8)  optimizer: Optimizer8bit.step", GP_PART_OPTIMIZER},
    };
    EXPECT(rows);
}

Test(operation, of_other_frameworks)
{
    static const struct wanted rows[] = {
        {"tsl::BFCAllocator::AllocateRaw\nxla::PjRtStreamExecutorClient::BufferFromHostBuffer\nbind " SITES
         "jax/_src/core.py:400\ndot_general " SITES "jax/_src/lax/lax.py:1100\nmatmul " SITES
         "jax/_src/numpy/tensor_contractions.py:250\n<module> /home/u/a.py:7",
         "a.py:7  matmul", GP_PART_NONE},
        {"tsl::BFCAllocator::AllocateRaw\nExecuteReplicated.__call__ " SITES
         "jax/_src/interpreters/pxla.py:1200\n_cpp_pjit.<locals>.cache_miss " SITES
         "jax/_src/pjit.py:180\ntrain /home/u/a.py:30",
         "train (a.py:30)  jit", GP_PART_NONE},
        {"tsl::BFCAllocator::AllocateRaw\nzeros_like " SITES "jax/_src/numpy/lax_numpy.py:10\n"
         "scale_by_adam.<locals>.init_fn " SITES "optax/_src/transform.py:200\nmain /home/u/a.py:5",
         "main (a.py:5)  optimizer: scale_by_adam", GP_PART_OPTIMIZER},
        {"tensorflow::BFCAllocator::AllocateRaw\ntensorflow::MatMulOp<Eigen::GpuDevice, float>::Compute\n"
         "quick_execute " SITES "tensorflow/python/eager/execute.py:50\nmat_mul " SITES
         "tensorflow/python/ops/gen_math_ops.py:6000\nmatmul " SITES
         "tensorflow/python/ops/math_ops.py:3700\nDense.call " SITES
         "keras/src/layers/core/dense.py:140\nmain /home/u/k.py:12",
         "main (k.py:12)  Dense: matmul", GP_PART_FORWARD},
        {"tensorflow::BFCAllocator::AllocateRaw\ntensorflow::SoftmaxOp<Eigen::GpuDevice, "
         "float>::Compute\nFunction.__call__ " SITES
         "tensorflow/python/eager/polymorphic_function/polymorphic_function.py:830\nmain /home/u/k.py:12",
         "main (k.py:12)  tf.function (Softmax)", GP_PART_NONE},
        {"paddle::memory::allocation::Allocator::Allocate\nphi::MatmulKernel<float, phi::GPUContext>\n"
         "paddle::experimental::matmul\nmatmul_ad_func\nlinear " SITES "paddle/nn/functional/common.py:1900\n"
         "Linear.forward " SITES "paddle/nn/layer/common.py:180\nLayer.__call__ " SITES
         "paddle/nn/layer/layers.py:1400\nNet.forward /home/u/p.py:8",
         "Net.forward (p.py:8)  linear", GP_PART_FORWARD},
        {"paddle::memory::allocation::Allocator::Allocate\npaddle::experimental::matmul_grad\n"
         "MatmulGradNode::operator()\negr::RunBackward\nbackward " SITES
         "paddle/base/dygraph/tensor_patch_methods.py:340\nmain /home/u/p.py:20",
         "main (p.py:20)  backward: MatmulGradNode", GP_PART_BACKWARD},
        {"cudaMalloc\nzeros " SITES "cupy/_creation/basic.py:230\nmain /home/u/c.py:3", "main (c.py:3)  zeros",
         GP_PART_NONE},
        /* No framework: the line says it all. */
        {"cudaMalloc\nallocate /home/u/gpu.py:3\nmain /home/u/c.py:3", "allocate (gpu.py:3)", GP_PART_NONE},
    };
    EXPECT(rows);
}

/* The states of an optimizer are told by their lines together. */
Test(operation, of_an_optimizers_states)
{
#define STATE(_op, _line)                                                                                              \
    EMPTY _op "AdamW._init_group " TORCH "optim/adamw.py:" _line "\nAdamW.step " TORCH                                 \
              "optim/adamw.py:232\nmain /home/u/train.py:17"
    static const char *const stacks[] = {STATE("at::_ops::zeros_like::call\n", "175"),
                                         STATE("at::_ops::zeros::call\n", "160"),
                                         STATE("at::_ops::zeros_like::call\n", "171")};
    static const char *const names[] = {"optimizer: AdamW.step (exp_avg_sq)", "optimizer: AdamW.step",
                                        "optimizer: AdamW.step (exp_avg)"};
    load(stacks, 3);
    for (uint32_t i = 0; i < 3; i++)
        cr_expect_str_eq(gp_symbols_operation(symbols, i + 1)->text, names[i]);
    done();
    load(stacks, 1);
    cr_expect_str_eq(gp_symbols_operation(symbols, 1)->text, "optimizer: AdamW.step", "one line alone tells nothing");
    done();
}

/* A reader takes the three results of one layer_norm for one row. */
Test(operation, several_blocks_of_one_operation_are_one_row)
{
#define NORM(_inner, _line)                                                                                            \
    EMPTY _inner "at::native::layer_norm_cuda\nat::_ops::native_layer_norm::call\nat::_ops::layer_norm::call\n"        \
                 "layer_norm " TORCH "nn/functional.py:2900\nforward /home/u/model.py:" _line                          \
                 "\nmain /home/u/train.py:3"
    static const char *const stacks[] = {NORM("a\n", "10"),
                                         NORM("b\n", "10"),
                                         NORM("a\n", "11"),
                                         EMPTY "torch::autograd::generated::MulBackward0::apply\n" ENGINE,
                                         "b\n" EMPTY "torch::autograd::generated::MulBackward0::apply\n" ENGINE,
                                         NORM("a\n", "12") "\ntorch::handle_torch_function",
                                         NORM("a\n", "12") "\ntorch::autograd::THPVariable_empty"};
    /* What PyTorch does outside of all Python frames is no place. */
    static const uint32_t rows[] = {1, 1, 3, 4, 4, 6, 6};
    load(stacks, 7);
    for (uint32_t i = 0; i < 7; i++) {
        cr_expect_eq(gp_symbols_row(symbols, i + 1), rows[i], "%u: %u", i + 1, gp_symbols_row(symbols, i + 1));
        cr_expect_eq(gp_symbols_twin(symbols, i + 1), i + 1);
    }
    done();
}

/* The line of code is not cut for a long name; the operation is. */
Test(operation, is_cut_to_fit)
{
    static const char *const stack = EMPTY "at::_ops::scaled_dot_product_attention::call\n"
                                           "Attention.forward /home/u/model.py:17";
    char line[80];
    load(&stack, 1);
    gp_symbols_line(symbols, 1, NULL, NULL, line, 70);
    cr_expect_str_eq(line, "Attention.forward (model.py:17)  scaled_dot_product_attention");
    gp_symbols_line(symbols, 1, NULL, NULL, line, 60);
    cr_expect_str_eq(line, "Attention.forward:17  scaled_dot_product_attention");
    gp_symbols_line(symbols, 1, NULL, NULL, line, 41);
    cr_expect_str_eq(line, "Attention.forward:17  scale..._attention");
    gp_symbols_line(symbols, 1, NULL, NULL, line, 22);
    cr_expect_str_eq(line, "Attention.forward:17");
    done();
    /* 80 columns of top leave 34 of them.  An operation of the backward pass has no line of Python, only an offset in
     * the library. */
    static const char *const backward = EMPTY "torch::autograd::generated::MulBackward0::apply\n" ENGINE;
    load(&backward, 1);
    for (size_t room = 12; room < sizeof(line); room++) {
        gp_symbols_line(symbols, 1, NULL, NULL, line, room);
        cr_expect(strchr(line, '+') == NULL && strncmp(line, "backward: MulBackward0", room < 23 ? 2 : 22) == 0,
                  "%zu: %s", room, line);
    }
    done();
    static const char *const adam = EMPTY "at::_ops::zeros_like::call\n"
                                          "step /home/u/model.py:17";
    load(&adam, 1);
    gp_symbols_line(symbols, 1, NULL, NULL, line, 35);
    cr_expect_str_eq(line, "step (model.py:17)  zeros_like");
    gp_symbols_line(symbols, 1, NULL, NULL, line, 26);
    cr_expect_str_eq(line, "step:17  zeros_like");
    done();
}
