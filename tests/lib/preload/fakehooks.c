/* SPDX-License-Identifier: MIT
 *
 * fakehooks.c: the driver's functions that the hooks ask, as libcuda.so.1; the test sets the variables.
 */
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the callers look them up by name */
#include <stddef.h>

void *fake_current;   /* context */
int fake_device;      /* of the current context */
int fake_active[2];   /* primary contexts */
unsigned fake_fails;  /* bits of functions that fail */
unsigned fake_number; /* of captured nodes that the next one depends on */
int fake_status;      /* of the capture */

int cuCtxGetCurrent(void **context)
{
    *context = fake_current;
    return fake_fails & 1 ? 3 : 0;
}

int cuCtxGetDevice(int *device)
{
    *device = fake_device;
    return fake_fails & 2 ? 3 : 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = fake_active[device];
    return fake_fails & 4 ? 3 : 0;
}

int cuCtxFromGreenCtx(void **context, void *green)
{
    *context = (char *)green + 1;
    return fake_fails & 8 ? 3 : 0;
}

int cuStreamGetCaptureInfo_v3(void *stream, int *status, unsigned long *id, void **graph, void *const **nodes,
                              const void **edges, size_t *count)
{
    static void *node = (void *)0x900d;
    *status = fake_status;
    *id = 1;
    *graph = (char *)stream + 2;
    *nodes = &node;
    *edges = NULL;
    *count = fake_number;
    return fake_fails & 16 ? 3 : 0;
}
