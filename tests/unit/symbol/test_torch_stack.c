/* SPDX-License-Identifier: MIT
 *
 * test_torch_stack.c: which frame of a snapshot of PyTorch names its memory: snapshots with C++ frames,
 * of Windows, and with deep stacks.
 */
#include <base/compiler.h>
#include <read/recording/recording.h>
#include <symbol/symbol.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct frame {
    const char *name, *file;
    int line;
};

static struct gp_recording *recording;
static struct gp_symbols *symbols;

/* A snapshot with one allocation; repeat: how often the first frame stands there. */
static uint32_t load(const struct frame *frames, size_t count, unsigned repeat)
{
    char *text = NULL, why[256];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    fputs("{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", \"addr\": 4194304, \"size\": 1024, "
          "\"stream\": 0, \"time_us\": 5, \"frames\": [",
          out);
    for (size_t i = 0; i < count; i++)
        for (unsigned k = 0; k < (i ? 1 : repeat); k++)
            fprintf(out, "%s{\"name\": \"%s\", \"filename\": \"%s\", \"line\": %d}", i + k ? ", " : "", frames[i].name,
                    frames[i].file, frames[i].line);
    fputs("]}]]}", out);
    fclose(out);
    cr_assert_eq(gp_recording_parse(&recording, text, bytes, why, sizeof(why)), 0, "%s", why);
    free(text);
    const struct gp_symbol_source source = gp_symbol_source_of(recording, NULL);
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    cr_assert_eq(recording->site_count, 2);
    return 1;
}

static void done(void)
{
    gp_symbols_free(symbols);
    gp_recording_free(recording);
}

#define EXPECT_NAME(_frames, _label) expect_name(_frames, GP_COUNT(_frames), 1, _label)

static void expect_name(const struct frame *frames, size_t count, unsigned repeat, const char *wanted)
{
    char label[200];
    uint32_t site = load(frames, count, repeat);
    const struct gp_frame_text *all, *name = gp_symbols_name(symbols, site);
    gp_symbols_callers(symbols, &site, 1, &all); /* short files */
    gp_frame_label(name, label, sizeof(label));
    cr_expect_str_eq(label, wanted);
    done();
}

Test(torch_stack, c_frames_are_not_the_users_lines)
{
    static const struct frame frames[] = {
        {"torch::unwind::unwind()", "??", 0},
        {"torch::CapturedTraceback::gather(bool, bool, bool)", "??", 0},
        {"c10::cuda::CUDACachingAllocator::allocate(unsigned long) const", "", 0},
        {"at::detail::empty_cuda(c10::ArrayRef<long>)", "", 0},
        {"at::_ops::sub_Tensor::call(at::Tensor const&)", "RegisterCUDA.cpp", 0},
        {"PyNumber_InPlaceAdd", "??", 0},
        {"linear", "/usr/lib/python3/site-packages/torch/nn/functional.py", 9},
        {"_PyEval_EvalFrameDefault", "??", 0},
        {"forward", "/home/u/model.py", 35},
        {"main", "/home/u/train.py", 42},
        {"__clone3", "", 0},
    };
    EXPECT_NAME(frames, "forward (model.py:35)");
    load(frames, GP_COUNT(frames), 1);
    static const enum gp_frame_role roles[] = {GP_ROLE_ALLOCATOR, GP_ROLE_ALLOCATOR,   GP_ROLE_ALLOCATOR,
                                               GP_ROLE_ALLOCATOR, GP_ROLE_LIBRARY,     GP_ROLE_INTERPRETER,
                                               GP_ROLE_LIBRARY,   GP_ROLE_INTERPRETER, GP_ROLE_USER,
                                               GP_ROLE_USER,      GP_ROLE_START};
    const struct gp_frame_text *all;
    cr_assert_eq(gp_symbols_site(symbols, 1, &all), GP_COUNT(frames));
    for (size_t i = 0; i < GP_COUNT(frames); i++) {
        cr_expect_eq(all[i].role, roles[i], "%s: %s", frames[i].name, gp_frame_role_name(all[i].role));
        cr_expect_eq(all[i].python, i == 6 || i == 8 || i == 9, "%s", frames[i].name);
        cr_expect_str_neq(all[i].file, "??");
    }
    done();
}

/* As PyTorch 2.15 writes them: the object, and the place in it. */
Test(torch_stack, c_frames_of_objects_are_not_the_users_lines)
{
    static const struct frame frames[] = {
        {"torch::unwind::unwind()", "/v/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so", 108146796},
        {"??", "/v/lib/python3.11/site-packages/torch/lib/libc10_cuda.so", 319562},
        {"at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)",
         "/v/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so", 45106622},
        {"_PyObject_MakeTpCall", "/opt/lib/libpython3.11.so.1.0", 1410588},
        {"weights", "/home/u/some.so.py", 3}, /* a script, whatever it is called */
        {"_PyEval_EvalFrameDefault", "/opt/lib/libpython3.11.so.1.0", 1038786},
        {"_start", "/usr/bin/python3.11", 4224},
        {"<module>", "/home/u/train", 42},
    };
    EXPECT_NAME(frames, "weights (some.so.py:3)");
    const struct gp_frame_text *all;
    load(frames, GP_COUNT(frames), 1);
    cr_assert_eq(gp_symbols_site(symbols, 1, &all), GP_COUNT(frames));
    for (size_t i = 0; i < GP_COUNT(frames); i++) {
        bool python = i == 4 || i == 7;
        cr_expect_eq(all[i].python, python, "%s", frames[i].name);
        cr_expect_eq(all[i].line, python ? (uint32_t)frames[i].line : 0, "%s", frames[i].name);
    }
    done();
}

/* A thread of the backward pass runs no Python: the library's function that asked. */
Test(torch_stack, without_python)
{
    static const struct frame frames[] = {
        {"torch::unwind::unwind()", "??", 0},
        {"c10::cuda::CUDACachingAllocator::allocate(unsigned long) const", "", 0},
        {"at::detail::empty_cuda(c10::ArrayRef<long>)", "??", 0},
        {"at::native::isnan(at::Tensor const&)", "??", 0},
        {"execute_native_thread_routine", "thread.cc", 82},
        {"__clone3", "", 0},
    };
    EXPECT_NAME(frames, "at::native::isnan(at::Tensor const&)");
}

Test(torch_stack, paths_of_windows)
{
    static const struct frame packages[] = {
        {"linear", "C:\\\\u\\\\.venv\\\\Lib\\\\site-packages\\\\torch\\\\nn\\\\functional.py", 10},
        {"run", "C:\\\\Users\\\\u\\\\AppData\\\\Local\\\\Programs\\\\Python\\\\Python311\\\\Lib\\\\threading.py", 3},
        {"wrapped", "C:\\\\Users\\\\u\\\\miniconda3\\\\envs\\\\x\\\\lib\\\\contextlib.py", 81},
        {"train", "C:\\\\u\\\\train.py", 7},
    };
    static const struct frame own[] = {
        {"inner", "D:\\\\work\\\\lib\\\\model.py", 10}, /* a folder of the user's */
        {"train", "D:\\\\work\\\\train.py", 7},
    };
    EXPECT_NAME(packages, "train (train.py:7)");
    EXPECT_NAME(own, "inner (model.py:10)");
}

Test(torch_stack, more_than_128_frames)
{
    static const struct frame frames[] = {
        {"_call_impl", "/usr/lib/python3/site-packages/torch/nn/modules/module.py", 1518},
        {"train", "/home/u/train.py", 7},
    };
    expect_name(frames, 2, 500, "train (train.py:7)");
    const struct gp_frame_text *all;
    load(frames, 2, 500);
    cr_expect_eq(gp_symbols_site(symbols, 1, &all), 501);
    cr_expect_str_eq(all[500].function, "train");
    done();
}
