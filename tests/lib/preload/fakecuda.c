/* SPDX-License-Identifier: MIT
 *
 * fakecuda.c: the driver's functions that the poller calls, as libcuda.so.1.  FAKE_LACKS: a bit for each function that is
 * left out; the test sets the other variables.
 */
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the callers look them up by name */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#ifndef FAKE_LACKS
#define FAKE_LACKS 0
#endif
#define HAS(_bit) (!(FAKE_LACKS >> (_bit)&1))
#define MIB       ((uint64_t)1 << 20)

unsigned fake_fails;             /* bits of functions that fail */
int fake_attribute = -1;         /* the attribute of a pool or graph that fails */
unsigned fake_calls[16];         /* of each function */
unsigned fake_wrong;             /* calls at a time when they are not allowed */
int fake_mode, fake_current;     /* of the calling thread: capture mode; contexts that are current */
uint64_t fake_held, fake_height; /* what pools and graphs hold */
unsigned fake_slow;              /* ms that a query of a pool takes */
unsigned fake_asked[64];         /* queries of each pool from 0x7000 on */
unsigned fake_default;           /* the first device's default pool */
void (*fake_inside)(void);       /* happens in the call of this number, from 1 on */
unsigned fake_inside_at, fake_count;

static int answer(unsigned bit)
{
    fake_calls[bit]++;
    if (++fake_count == fake_inside_at)
        fake_inside();
    fake_wrong += bit != 0 && bit != 11 && fake_mode != 2;
    return fake_fails >> bit & 1 ? 2 : 0;
}

#if HAS(0)
int cuDriverGetVersion(int *version)
{
    *version = 13010;
    return answer(0);
}
#endif
#if HAS(1)
int cuDeviceGetCount(int *count)
{
    *count = 2;
    return answer(1);
}
#endif
#if HAS(2)
int cuDeviceGet(int *device, int ordinal)
{
    *device = 40 + ordinal;
    return answer(2);
}
#endif
#if HAS(3)
int cuDeviceGetUuid_v2(uint8_t *uuid, int device)
{
    int result = answer(3);
    if (result == 0)
        memset(uuid, device, 16);
    return result;
}
#endif
#if HAS(4)
int cuDeviceGetName(char *name, int room, int device)
{
    int result = answer(4);
    if (result == 0)
        snprintf(name, (size_t)room, "Fake %d", device);
    return result;
}
#endif
#if HAS(5)
int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)device * 1000 * MIB;
    return answer(5);
}
#endif
#if HAS(6)
int cuDeviceGetDefaultMemPool(void **pool, int ordinal)
{
    *pool = (void *)(uintptr_t)(0x7000 + 16 * (ordinal ? (unsigned)ordinal : fake_default));
    return answer(6);
}
#endif
#if HAS(7)
int cuMemPoolGetAttribute(void *pool, int attribute, void *value)
{
    uint64_t bytes = ((uintptr_t)pool - 0x7000) / 16 * MIB + (attribute == 5 ? fake_held : fake_height);
    memcpy(value, &bytes, 8);
    fake_wrong += attribute != 5 && attribute != 6;
    fake_asked[((uintptr_t)pool - 0x7000) / 16]++;
    nanosleep(&(struct timespec){fake_slow / 1000, fake_slow % 1000 * 1000000L}, NULL);
    return answer(7) || attribute == fake_attribute ? 2 : 0;
}
#endif
#if HAS(8)
int cuDeviceGetGraphMemAttribute(int ordinal, int attribute, void *value)
{
    uint64_t bytes = (uint64_t)ordinal * MIB + (attribute % 2 ? fake_height : fake_held) / (attribute < 2 ? 2 : 1);
    memcpy(value, &bytes, 8);
    return answer(8) || attribute == fake_attribute ? 2 : 0;
}
#endif
#if HAS(9)
int cuPointerGetAttribute(void *value, int attribute, uint64_t address)
{
    size_t bytes = address - 0x10000000;
    memcpy(value, &bytes, sizeof(bytes));
    fake_wrong += attribute != 12;
    return answer(9);
}
#endif
#if HAS(10)
int cuPointerGetAttributes(unsigned count, int *attributes, void **values, uint64_t address)
{
    (void)count, (void)attributes, (void)values, (void)address;
    answer(10);
    return 2;
}
#endif
#if HAS(11)
int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int result = answer(11), before = fake_mode;
    if (result == 0) {
        fake_mode = *mode;
        *mode = before;
    }
    return result;
}
#endif
#if HAS(12)
int cuCtxPushCurrent_v2(void *context)
{
    int result = answer(12);
    fake_wrong += context != (void *)0xc0;
    fake_current += result == 0;
    return result;
}
#endif
#if HAS(13)
int cuCtxPopCurrent_v2(void **context)
{
    *context = (void *)0xc0;
    fake_wrong += fake_current != 1;
    fake_current--;
    return answer(13);
}
#endif
#if HAS(14)
int cuMemGetInfo_v2(size_t *free, size_t *total)
{
    *free = 3 * MIB;
    *total = 5 * MIB;
    fake_wrong += fake_current != 1;
    return answer(14);
}
#endif
#if HAS(15)
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 16 ? device : 1536; /* as many multiprocessors, of so many threads */
    fake_wrong += attribute != 16 && attribute != 39;
    return answer(15);
}
#endif
