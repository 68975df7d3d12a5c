/* SPDX-License-Identifier: MIT
 *
 * c10.c: stands in for PyTorch's libc10.so. It exports the two functions by which its allocators inform its profiler,
 * under the names of one age (SPELLING_old, SPELLING_signed, SPELLING_unsigned), counts their calls and keeps their arguments.
 */
#include "framework/c10.h"

#ifdef SPELLING_signed
#define C10_TOTALS "ll"
#else
#define C10_TOTALS "mm"
#endif

struct c10_seen c10_seen;
uint64_t c10_calls[C10_DEVICES];
void (*c10_thrower)(void);

static void c10_thrown(void)
{
    if (c10_thrower)
        c10_thrower();
}

#ifdef SPELLING_old
void c10_report_old(void *pointer, int64_t bytes, struct c10_device device) __asm__(C10_REPORT "NS_6DeviceE");
void c10_report_old(void *pointer, int64_t bytes, struct c10_device device)
{
    c10_seen = (struct c10_seen){pointer, bytes, -1, -1, device, c10_seen.reports + 1, c10_seen.ooms};
    c10_calls[device.index]++;
    c10_thrown();
}
#else
void c10_report(void *pointer, int64_t bytes, uint64_t allocated, uint64_t reserved,
                struct c10_device device) __asm__(C10_REPORT C10_TOTALS "NS_6DeviceE");
void c10_report(void *pointer, int64_t bytes, uint64_t allocated, uint64_t reserved, struct c10_device device)
{
    c10_seen = (struct c10_seen){
        pointer, bytes, (int64_t)allocated, (int64_t)reserved, device, c10_seen.reports + 1, c10_seen.ooms};
    c10_calls[device.index]++;
    c10_thrown();
}

void c10_oom(int64_t bytes, uint64_t allocated, uint64_t reserved,
             struct c10_device device) __asm__(C10_OOM C10_TOTALS "NS_6DeviceE");
void c10_oom(int64_t bytes, uint64_t allocated, uint64_t reserved, struct c10_device device)
{
    c10_seen = (struct c10_seen){
        NULL, bytes, (int64_t)allocated, (int64_t)reserved, device, c10_seen.reports, c10_seen.ooms + 1};
    c10_calls[device.index]++;
    c10_thrown();
}
#endif
