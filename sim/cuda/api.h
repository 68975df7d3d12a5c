/* SPDX-License-Identifier: MIT
 * A driver entry point is written once, as SIM_APIn(cbid, since, name, type, argument, ...) { body
 * }. Included only by sim.h.  The body runs with the global lock held, returns a CUresult, and must
 * never call an exported entry point.  The macro makes the exported function, its parameter struct
 * (fields in the documented order), the entry in the registry that cuGetProcAddress reads, and the
 * tool callbacks, fault script, call count and latency around it.
 *
 *      SIM_APIn       needs cuInit
 *      SIM_EARLYn     may be called before cuInit
 *      SIM_APIn_PTSZ, SIM_APIn_PTDS (cbid, twin's cbid, since, name, ...)
 *                     name and name_ptsz (_ptds) with the same body, which calls sim_stream_default(hStream) to learn
 *                     the default stream of the running call
 *      SIM_ALIAS      (name, since, target): cuGetProcAddress(name, >= since) answers target */
#ifndef SIM_API_H
#define SIM_API_H

#define SIM_EXPORT      __attribute__((visibility("default")))
#define SIM_UNWRAP(...) __VA_ARGS__

enum sim_entry_flags { SIM_ENTRY_EARLY = 1, SIM_ENTRY_TWIN = 2, SIM_ENTRY_ALIAS = 4, SIM_ENTRY_REPORTED = 8 };

/* Largest number of simulated devices; the ledger counts calls by the device of the context current
 * to the caller. */
#define SIM_MAX_DEVICES 32

struct sim_entry {
    const char *name;
    void *function;
    uint32_t cbid;
    int since; /* first CUDA version with this ABI, 1000 x major + 10 x minor */
    uint32_t flags;
    uint32_t latency; /* virtual ns of a call, set once in cuInit */
    uint64_t calls[SIM_MAX_DEVICES];
};

/* One running call.  Calls nest when a callback calls the driver; `previous` is the outer one. */
struct sim_call {
    struct sim_entry *entry;
    const void *params;
    const void *caller; /* where the call returns to */
    const char *symbol; /* a launch body sets the kernel's name here for the EXIT callback */
    struct sim_call *previous;
    uint64_t correlation;
    uint32_t correlation_id;
    int locked, reported;
};

/* call->caller is the caller's.  CUDA_SUCCESS: run the body (the lock is held).  Anything else: the
 * result, without running it. */
CUresult sim_call_begin(struct sim_call *call, struct sim_entry *entry, const void *params);
CUresult sim_call_end(struct sim_call *call, CUresult result);

/* The linker section holds pointers: records themselves would depend on the compiler's padding
 * between them. */
#define SIM_REGISTER(symbol_, string_, fn_, id_, since_, flags_)                                                       \
    static struct sim_entry sim_entry_##symbol_ = {                                                                    \
        .name = string_, .function = (void *)fn_, .cbid = id_, .since = since_, .flags = flags_};                      \
    static struct sim_entry *const sim_ref_##symbol_ __attribute__((used, section("sim_entries"))) =                   \
        &sim_entry_##symbol_
extern struct sim_entry *const __start_sim_entries[], *const __stop_sim_entries[];

#define SIM_WRAP(id_, since_, name_, body_, flags_, PARAMS, ARGS)                                                      \
    SIM_EXPORT CUresult name_ PARAMS;                                                                                  \
    SIM_REGISTER(name_, #name_, name_, id_, since_, flags_);                                                           \
    CUresult name_ PARAMS                                                                                              \
    {                                                                                                                  \
        struct sim_params_##body_ params_ = {SIM_UNWRAP ARGS};                                                         \
        struct sim_call call_ = {.caller = __builtin_return_address(0)};                                               \
        CUresult result_ = sim_call_begin(&call_, &sim_entry_##name_, &params_);                                       \
        if (result_ == CUDA_SUCCESS)                                                                                   \
            result_ = sim_body_##body_ ARGS;                                                                           \
        return sim_call_end(&call_, result_);                                                                          \
    }

#define SIM_DEFINE(id_, since_, name_, flags_, PARAMS, ARGS, ...)                                                      \
    struct sim_params_##name_ {                                                                                        \
        __VA_ARGS__                                                                                                    \
    };                                                                                                                 \
    static CUresult sim_body_##name_ PARAMS;                                                                           \
    SIM_WRAP(id_, since_, name_, name_, flags_, PARAMS, ARGS)                                                          \
    static CUresult sim_body_##name_ PARAMS

/* The twins of functions older than CUDA 7.0 came with it. */
#define SIM_TWIN_SINCE(since_) ((since_) < 7000 ? 7000 : (since_))

#define SIM_DEFINE_TWIN(id_, twin_id_, since_, name_, twin_, PARAMS, ARGS, ...)                                        \
    struct sim_params_##name_ {                                                                                        \
        __VA_ARGS__                                                                                                    \
    };                                                                                                                 \
    static CUresult sim_body_##name_ PARAMS;                                                                           \
    SIM_WRAP(id_, since_, name_, name_, 0, PARAMS, ARGS)                                                               \
    SIM_WRAP(twin_id_, SIM_TWIN_SINCE(since_), twin_, name_, SIM_ENTRY_TWIN, PARAMS, ARGS)                             \
    static CUresult sim_body_##name_ PARAMS

#define SIM_ALIAS(name_, since_, target_) SIM_REGISTER(alias_##name_, #name_, target_, 0, since_, SIM_ENTRY_ALIAS)

/* One line a count of arguments. */
/* clang-format off */
#define SIM_API0(i, s, n) SIM_DEFINE(i, s, n, 0, (void), (), )
#define SIM_EARLY0(i, s, n) SIM_DEFINE(i, s, n, SIM_ENTRY_EARLY, (void), (), )
#define SIM_API1(i, s, n, T1, a1) SIM_DEFINE(i, s, n, 0, (T1 a1), (a1), T1 a1;)
#define SIM_EARLY1(i, s, n, T1, a1) SIM_DEFINE(i, s, n, SIM_ENTRY_EARLY, (T1 a1), (a1), T1 a1;)
#define SIM_API1_PTSZ(i, t, s, n, T1, a1) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1), (a1), T1 a1;)
#define SIM_API1_PTDS(i, t, s, n, T1, a1) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1), (a1), T1 a1;)
#define SIM_API2(i, s, n, T1, a1, T2, a2) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2), (a1, a2), T1 a1; T2 a2;)
#define SIM_EARLY2(i, s, n, T1, a1, T2, a2) SIM_DEFINE(i, s, n, SIM_ENTRY_EARLY, (T1 a1, T2 a2), (a1, a2), T1 a1; T2 a2;)
#define SIM_API2_PTSZ(i, t, s, n, T1, a1, T2, a2) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2), (a1, a2), T1 a1; T2 a2;)
#define SIM_API2_PTDS(i, t, s, n, T1, a1, T2, a2) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2), (a1, a2), T1 a1; T2 a2;)
#define SIM_API3(i, s, n, T1, a1, T2, a2, T3, a3) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2, T3 a3), (a1, a2, a3), T1 a1; T2 a2; T3 a3;)
#define SIM_EARLY3(i, s, n, T1, a1, T2, a2, T3, a3) SIM_DEFINE(i, s, n, SIM_ENTRY_EARLY, (T1 a1, T2 a2, T3 a3), (a1, a2, a3), T1 a1; T2 a2; T3 a3;)
#define SIM_API3_PTSZ(i, t, s, n, T1, a1, T2, a2, T3, a3) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2, T3 a3), (a1, a2, a3), T1 a1; T2 a2; T3 a3;)
#define SIM_API3_PTDS(i, t, s, n, T1, a1, T2, a2, T3, a3) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2, T3 a3), (a1, a2, a3), T1 a1; T2 a2; T3 a3;)
#define SIM_API4(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2, T3 a3, T4 a4), (a1, a2, a3, a4), T1 a1; T2 a2; T3 a3; T4 a4;)
#define SIM_EARLY4(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4) SIM_DEFINE(i, s, n, SIM_ENTRY_EARLY, (T1 a1, T2 a2, T3 a3, T4 a4), (a1, a2, a3, a4), T1 a1; T2 a2; T3 a3; T4 a4;)
#define SIM_API4_PTSZ(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2, T3 a3, T4 a4), (a1, a2, a3, a4), T1 a1; T2 a2; T3 a3; T4 a4;)
#define SIM_API4_PTDS(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2, T3 a3, T4 a4), (a1, a2, a3, a4), T1 a1; T2 a2; T3 a3; T4 a4;)
#define SIM_API5(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5), (a1, a2, a3, a4, a5), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5;)
#define SIM_EARLY5(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) SIM_DEFINE(i, s, n, SIM_ENTRY_EARLY, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5), (a1, a2, a3, a4, a5), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5;)
#define SIM_API5_PTSZ(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5), (a1, a2, a3, a4, a5), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5;)
#define SIM_API5_PTDS(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5), (a1, a2, a3, a4, a5), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5;)
#define SIM_API6(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6), (a1, a2, a3, a4, a5, a6), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6;)
#define SIM_API6_PTSZ(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6), (a1, a2, a3, a4, a5, a6), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6;)
#define SIM_API6_PTDS(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6), (a1, a2, a3, a4, a5, a6), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6;)
#define SIM_API7(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7), (a1, a2, a3, a4, a5, a6, a7), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7;)
#define SIM_API7_PTSZ(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7), (a1, a2, a3, a4, a5, a6, a7), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7;)
#define SIM_API7_PTDS(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7), (a1, a2, a3, a4, a5, a6, a7), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7;)
#define SIM_API8(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8), (a1, a2, a3, a4, a5, a6, a7, a8), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8;)
#define SIM_API8_PTSZ(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8), (a1, a2, a3, a4, a5, a6, a7, a8), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8;)
#define SIM_API8_PTDS(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8), (a1, a2, a3, a4, a5, a6, a7, a8), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8;)
#define SIM_API9(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9), (a1, a2, a3, a4, a5, a6, a7, a8, a9), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8; T9 a9;)
#define SIM_API9_PTSZ(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9), (a1, a2, a3, a4, a5, a6, a7, a8, a9), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8; T9 a9;)
#define SIM_API9_PTDS(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9), (a1, a2, a3, a4, a5, a6, a7, a8, a9), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8; T9 a9;)
#define SIM_API10(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10), (a1, a2, a3, a4, a5, a6, a7, a8, a9, a10), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8; T9 a9; T10 a10;)
#define SIM_API10_PTSZ(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10), (a1, a2, a3, a4, a5, a6, a7, a8, a9, a10), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8; T9 a9; T10 a10;)
#define SIM_API10_PTDS(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10), (a1, a2, a3, a4, a5, a6, a7, a8, a9, a10), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8; T9 a9; T10 a10;)
#define SIM_API11(i, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11) SIM_DEFINE(i, s, n, 0, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11), (a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8; T9 a9; T10 a10; T11 a11;)
#define SIM_API11_PTSZ(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11) SIM_DEFINE_TWIN(i, t, s, n, n##_ptsz, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11), (a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8; T9 a9; T10 a10; T11 a11;)
#define SIM_API11_PTDS(i, t, s, n, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11) SIM_DEFINE_TWIN(i, t, s, n, n##_ptds, (T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11), (a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11), T1 a1; T2 a2; T3 a3; T4 a4; T5 a5; T6 a6; T7 a7; T8 a8; T9 a9; T10 a10; T11 a11;)
/* clang-format on */

#endif
