/* SPDX-License-Identifier: MIT
 *
 * A seeded random walk over every kind of memory: `mixed --seed N --steps N --threads N`.  Each
 * thread makes and drops objects; a shared shelf passes some of them to other threads, so that they
 * are dropped where they were not made. With one thread the walk is the same every time. Leaves
 * whatever the walk holds at its end.
 */
#include <cuda.h>

#include "finish.h"
#include "threads.h"
#include "vmm.h"

#define LIVE  48 /* objects a thread holds: enough for every kind several times over */
#define SHELF 16

enum object_kind { NOTHING, LINEAR, PITCHED, ARRAY, MANAGED, PINNED, REGISTERED, POOLED, PHYSICAL, MAPPED, KINDS };

struct object {
    enum object_kind kind;
    size_t bytes;
    CUdeviceptr pointer; /* address, handle or array */
};

static unsigned seed = 1, steps = 200, thread_count = 1;
static struct object *shelf[SHELF]; /* exchanged atomically: a pointer belongs to the thread that took it out */

static unsigned random_next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u; /* Numerical Recipes' generator: good enough to choose by its high bits */
    return *state >> 8;
}

static void array_make(struct object *object)
{
    CUDA_ARRAY_DESCRIPTOR shape;
    CUarray array = NULL;
    memset(&shape, 0, sizeof(shape));
    shape.Width = object->bytes / 1024 + 1;
    shape.Height = 16;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 2;
    CHECK(cuArrayCreate(&array, &shape));
    object->pointer = (CUdeviceptr)array;
}

static void mapped_make(struct object *object)
{
    CUmemGenericAllocationHandle handle;
    object->bytes = (object->bytes / STEP + 1) * STEP;
    handle = vmm_create(0, object->bytes);
    object->pointer = vmm_reserve(object->bytes);
    CHECK(cuMemMap(object->pointer, object->bytes, 0, handle, 0));
    CHECK(cuMemRelease(handle));
}

static struct object *object_make(unsigned *random)
{
    struct object *object = calloc(1, sizeof(*object));
    void *host = NULL;
    size_t pitch = 0;
    object->kind = 1 + random_next(random) % (KINDS - 1);
    object->bytes = 1 + random_next(random) % (random_next(random) % 4 == 0 ? 4 * MIB : 64 * KIB);
    switch (object->kind) {
    case LINEAR:
        object->pointer = program_alloc(object->bytes);
        break;
    case PITCHED:
        CHECK(cuMemAllocPitch(&object->pointer, &pitch, object->bytes / 64 + 1, 64, 4));
        break;
    case ARRAY:
        array_make(object);
        break;
    case MANAGED:
        CHECK(cuMemAllocManaged(&object->pointer, object->bytes, CU_MEM_ATTACH_GLOBAL));
        break;
    case PINNED:
        CHECK(cuMemHostAlloc(&host, object->bytes, 0));
        object->pointer = (CUdeviceptr)host;
        break;
    case REGISTERED:
        object->pointer = (CUdeviceptr)aligned_alloc(4096, (object->bytes + 4095) / 4096 * 4096);
        CHECK(cuMemHostRegister((void *)object->pointer, object->bytes, 0));
        break;
    case POOLED:
        CHECK(cuMemAllocAsync(&object->pointer, object->bytes, NULL));
        break;
    case PHYSICAL:
        object->bytes = STEP;
        object->pointer = vmm_create(0, object->bytes);
        break;
    default:
        mapped_make(object);
    }
    return object;
}

static void object_drop(struct object *object, unsigned *random)
{
    switch (object->kind) {
    case ARRAY:
        CHECK(cuArrayDestroy((CUarray)object->pointer));
        break;
    case PINNED:
        CHECK(cuMemFreeHost((void *)object->pointer));
        break;
    case REGISTERED:
        if (CHECK(cuMemHostUnregister((void *)object->pointer)) == 0)
            free((void *)object->pointer); /* else the driver still uses it */
        break;
    case POOLED:
        if (random_next(random) % 2 == 0) {
            CHECK(cuMemFreeAsync(object->pointer, NULL));
            break;
        }
        CHECK(cuMemFree(object->pointer));
        break;
    case PHYSICAL:
        CHECK(cuMemRelease(object->pointer));
        break;
    case MAPPED:
        CHECK(cuMemUnmap(object->pointer, object->bytes));
        CHECK(cuMemAddressFree(object->pointer, object->bytes));
        break;
    default:
        CHECK(cuMemFree(object->pointer));
    }
    free(object);
}

static void thread_walk(unsigned number)
{
    struct object *live[LIVE] = {NULL};
    unsigned random = seed * 7919u + number, step, slot;
    for (step = 0; step < steps; step++) {
        slot = random_next(&random) % LIVE;
        if (live[slot] == NULL) {
            live[slot] = object_make(&random);
        } else if (random_next(&random) % 4 == 0) {
            live[slot] = __atomic_exchange_n(&shelf[random_next(&random) % SHELF], live[slot], __ATOMIC_ACQ_REL);
        } else {
            object_drop(live[slot], &random);
            live[slot] = NULL;
        }
    }
}

int main(int argc, char **argv)
{
    struct thread_arg threads[64];
    int i;
    for (i = 1; i + 1 < argc; i += 2) {
        unsigned value = (unsigned)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--seed") == 0)
            seed = value;
        else if (strcmp(argv[i], "--steps") == 0)
            steps = value;
        else if (strcmp(argv[i], "--threads") == 0 && value > 0 && value <= 64)
            thread_count = value;
    }
    program_start();
    threads_start(threads, thread_count, thread_walk);
    threads_join(threads, thread_count);
    printf("walked\n");
    return finish();
}
