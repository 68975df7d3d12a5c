/* SPDX-License-Identifier: MIT
 * calllog.c: see calllog.h. */
#include "lib/calllog.h"
#include "allocator/driver.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "lib/fakedriver.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct calllog calllog;
static char text[16384];
static size_t used;
static unsigned seen; /* calls of calllog.fails */

static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text + used, sizeof(text) - used, format, args);
    va_end(args);
    used += length > 0 && (size_t)length < sizeof(text) - used ? (size_t)length : 0;
}

void calllog_clear(void)
{
    used = 0;
    text[0] = '\0';
    seen = 0;
    calllog.failed = 0;
}

const char *calllog_take(void)
{
    static char taken[sizeof(text)];
    snprintf(taken, sizeof(taken), "%s", text);
    calllog_clear();
    return taken;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

#define FIRST_ADDRESS (1ull << 40)
#define FIRST_POINTER (1ull << 44) /* of the test's own data */

static void show_signed(int value)
{
    say("%d", value);
}

static void show_number(uint64_t value)
{
    if (value >= FIRST_ADDRESS && value < FIRST_POINTER) {
        say("@");
        value -= FIRST_ADDRESS;
    }
    if (value && value % (1 << 20) == 0)
        say("%lluM", (unsigned long long)value >> 20);
    else
        say("%llu", (unsigned long long)value);
}

static void show_pointer(const void *pointer)
{
    if ((uintptr_t)pointer >= FIRST_POINTER)
        say("&");
    else
        show_number((uintptr_t)pointer);
}

/* Arguments whose contents matter. */
static void show_contents(const char *name, const uintptr_t *arguments)
{
    if (strcmp(name, "cuMemSetAccess") == 0) {
        const struct gp_cu_access *access = (const void *)arguments[2];
        for (size_t i = 0; i < arguments[3]; i++)
            say(" %d:%d:%d", access[i].location.type, access[i].location.id, access[i].flags);
    } else if (strcmp(name, "cuMemCreate") == 0) {
        const struct gp_cu_mem_prop *prop = (const void *)arguments[2];
        say(" %d:%d:%d:", prop->type, prop->location.type, prop->location.id);
        for (unsigned i = 0; i < sizeof(prop->flags); i++)
            say("%d", prop->flags[i]);
    } else if (strcmp(name, "cuThreadExchangeStreamCaptureMode") == 0) {
        say(" %d", *(const int *)arguments[0]);
    } else if (strcmp(name, "cuPointerSetAttribute") == 0) {
        say(" %u", *(const unsigned *)arguments[0]);
    }
}

#define SHOW(_value)                                                                                                   \
    _Generic((_value), int                                                                                             \
             : show_signed, unsigned                                                                                   \
             : show_number, unsigned long                                                                              \
             : show_number, unsigned long long                                                                         \
             : show_number, default                                                                                    \
             : show_pointer)(_value)

/* ---- one function for each of the driver's --------------------------------------------------------------------------- */

static bool begins(const char *name, const char *with)
{
    return with && strncmp(name, with, strlen(with)) == 0;
}

static uint32_t fails(const char *name)
{
    if (!calllog.fails || strcmp(calllog.fails, name) != 0 || (++seen != calllog.number && calllog.number))
        return 0;
    calllog.failed++;
    return calllog.code;
}

static void call_begin(const char *name)
{
    bool own = gp_thread.ignored || gp_thread.inside;
    say("%s%s%s(", used ? "; " : "", own ? "" : "pass ", name);
}

#define CALL_PARAM(_type, _name) _type _name
#define CALL_NAME(_type, _name)  _name
/* `+ 0` makes a number of a function without parameters, and leaves pointers as they are. */
#pragma GCC diagnostic ignored "-Wpointer-arith"
#define CALL_WORD(_type, _name) (uintptr_t)(_name + 0)
#define CALL_SHOW(_type, _name)                                                                                        \
    say("%s", comma);                                                                                                  \
    SHOW(_name + 0);                                                                                                   \
    comma = ", ";

#define CALL(_name, ...)                                                                                               \
    static uint32_t call_##_name(GP_EACH_LIST(CALL_PARAM, __VA_ARGS__))                                                \
    {                                                                                                                  \
        uint32_t (*real)(GP_EACH_LIST(CALL_PARAM, __VA_ARGS__)) = fakedriver_function(#_name);                         \
        const uintptr_t words[] = {GP_EACH_LIST(CALL_WORD, __VA_ARGS__)};                                              \
        const char *comma = "";                                                                                        \
        if (!begins(#_name, calllog.skips)) {                                                                          \
            call_begin(#_name);                                                                                        \
            GP_EACH(CALL_SHOW, __VA_ARGS__)                                                                            \
            show_contents(#_name, words);                                                                              \
            say(")");                                                                                                  \
        }                                                                                                              \
        uint32_t result = fails(#_name);                                                                               \
        if (result)                                                                                                    \
            return result;                                                                                             \
        fakedriver.program = true; /* the text has which calls are accounted */                                        \
        bool made = real && !begins(#_name, calllog.stubs);                                                            \
        return made ? real(GP_EACH_LIST(CALL_NAME, __VA_ARGS__)) : calllog.result;                                     \
    }

/* Those that only programs call. */
/* clang-format off */
#define CALLS_OF_PROGRAMS(_call) \
    _call(cuCtxCreate, (void **, ctx), (unsigned, flags), (int, device)) \
    _call(cuCtxCreate_v2, (void **, ctx), (unsigned, flags), (int, device)) \
    _call(cuCtxCreate_v3, (void **, ctx), (const void *, affinity), (int, count), (unsigned, flags), (int, device)) \
    _call(cuCtxCreate_v4, (void **, ctx), (const void *, params), (unsigned, flags), (int, device)) \
    _call(cuCtxDestroy, (void *, ctx)) \
    _call(cuCtxDestroy_v2, (void *, ctx)) \
    _call(cuCtxDetach, (void *, ctx)) \
    _call(cuDevicePrimaryCtxReset, (int, device)) \
    _call(cuDevicePrimaryCtxReset_v2, (int, device)) \
    _call(cuDevicePrimaryCtxRelease, (int, device)) \
    _call(cuCtxEnablePeerAccess, (void *, peer), (unsigned, flags)) \
    _call(cuStreamCreateWithPriority, (void **, stream), (unsigned, flags), (int, priority)) \
    _call(cuGreenCtxStreamCreate, (void **, stream), (void *, green), (unsigned, flags), (int, priority)) \
    _call(cuStreamDestroy, (void *, stream)) \
    _call(cuStreamBeginCapture, (void *, stream)) \
    _call(cuStreamBeginCapture_ptsz, (void *, stream)) \
    _call(cuStreamBeginCapture_v2, (void *, stream), (int, mode)) \
    _call(cuStreamBeginCapture_v2_ptsz, (void *, stream), (int, mode)) \
    _call(cuStreamBeginCaptureToGraph, (void *, stream), (void *, graph), (const void **, dependencies), \
         (const void *, data), (size_t, count), (int, mode)) \
    _call(cuStreamBeginCaptureToGraph_ptsz, (void *, stream), (void *, graph), (const void **, dependencies), \
         (const void *, data), (size_t, count), (int, mode)) \
    _call(cuStreamBeginRecaptureToGraph, (void *, stream), (int, mode), (void *, graph), (void *, callback), \
         (void *, user)) \
    _call(cuStreamEndCapture, (void *, stream), (void **, graph)) \
    _call(cuStreamEndCapture_ptsz, (void *, stream), (void **, graph)) \
    _call(cuMemAllocAsync, (uint64_t *, address), (size_t, bytes), (void *, stream)) \
    _call(cuMemAllocAsync_ptsz, (uint64_t *, address), (size_t, bytes), (void *, stream)) \
    _call(cuMemAllocFromPoolAsync, (uint64_t *, address), (size_t, bytes), (void *, pool), (void *, stream)) \
    _call(cuMemAllocFromPoolAsync_ptsz, (uint64_t *, address), (size_t, bytes), (void *, pool), (void *, stream)) \
    _call(cuArrayCreate_v2, (void **, array), (const void *, desc)) \
    _call(cuArray3DCreate_v2, (void **, array), (const void *, desc)) \
    _call(cuMipmappedArrayCreate, (void **, array), (const void *, desc), (unsigned, levels)) \
    _call(cuMemAllocPitch_v2, (uint64_t *, address), (size_t *, pitch), (size_t, width), (size_t, height), \
         (unsigned, element)) \
    _call(cuMemFreeAsync, (uint64_t, address), (void *, stream)) \
    _call(cuMemFreeAsync_ptsz, (uint64_t, address), (void *, stream)) \
    _call(cuMemGetAddressRange_v2, (uint64_t *, base), (size_t *, bytes), (uint64_t, address)) \
    _call(cuPointerGetAttribute, (void *, data), (int, attribute), (uint64_t, address)) \
    _call(cuPointerGetAttributes, (unsigned, count), (int *, attributes), (void **, data), (uint64_t, address)) \
    _call(cuIpcGetMemHandle, (const void *, handle), (uint64_t, address))
/* clang-format on */

#define GP_DRIVER(_name, ...) CALL(_name, __VA_ARGS__)
#include "allocator/driver.def"
#undef GP_DRIVER
CALLS_OF_PROGRAMS(CALL)

void *calllog_function(const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } table[] = {
#define ROW(_name, ...)       {#_name, (void *)call_##_name},
#define GP_DRIVER(_name, ...) ROW(_name)
#include "allocator/driver.def"
#undef GP_DRIVER
        CALLS_OF_PROGRAMS(ROW)};
    if (calllog.lacks && strcmp(calllog.lacks, name) == 0)
        return NULL;
    for (size_t i = 0; i < GP_COUNT(table); i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].function;
    return NULL;
}
