/* SPDX-License-Identifier: MIT
 * libcufft.so.10 to .12.  A plan's workspace is as large as its complex data; the library allocates it
 * unless the program said that it brings its own. */
#include "standin.h"

#include <pthread.h>
#include <stdlib.h>

enum { STANDIN_INVALID_PLAN = 1, STANDIN_NO_MEMORY = 2, STANDIN_INVALID = 4, STANDIN_NOT_SUPPORTED = 16 };
enum { PLANS = 4096 };

struct plan {
    bool used, own; /* own: the program brings the workspace */
    size_t bytes;
    word workspace;
};
static struct plan plans[PLANS]; /* by handle; under the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

RULE(none, )
RULE(w3_0, W(3, 0))
F(cufftSetStream, none)
F(cufftSetPlanPropertyInt64, none)
F(cufftResetPlanProperty, none)
F(cufftXtClearCallback, none)
F(cufftXtSetCallback, none)
F(cufftXtSetCallbackSharedSize, none)
F(cufftXtSetJITCallback, none)
F(cufftExecC2C, w3_0)
F(cufftExecC2R, w3_0)
F(cufftExecR2C, w3_0)
F(cufftExecZ2Z, w3_0)
F(cufftExecZ2D, w3_0)
F(cufftExecD2Z, w3_0)
F(cufftXtExec, w3_0)
/* Several GPUs. */
REFUSED(cufftXtExecDescriptor)
REFUSED(cufftXtExecDescriptorC2C)
REFUSED(cufftXtExecDescriptorC2R)
REFUSED(cufftXtExecDescriptorR2C)
REFUSED(cufftXtExecDescriptorZ2Z)
REFUSED(cufftXtExecDescriptorZ2D)
REFUSED(cufftXtExecDescriptorD2Z)
REFUSED(cufftXtMalloc)
REFUSED(cufftXtFree)
REFUSED(cufftXtMemcpy)
REFUSED(cufftXtSetGPUs)
REFUSED(cufftXtQueryPlan)
REFUSED(cufftXtSetDistribution)
REFUSED(cufftXtSetWorkArea)
REFUSED(cufftXtSetWorkAreaPolicy)
REFUSED(cufftGetPlanPropertyInt64)

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static size_t size_of(int rank, const int64_t *n, int64_t batch, bool twice)
{
    size_t numbers = batch > 0 ? (size_t)batch : 1;
    standin_assumed("plans: a workspace as large as the complex data");
    for (int i = 0; i < rank; i++)
        numbers *= (size_t)n[i];
    return numbers * (twice ? 16 : 8);
}

/* Double precision: the types Z2Z, D2Z and Z2D. */
static bool is_double(int type)
{
    return type == 0x69 || type == 0x6a || type == 0x6c;
}

static size_t size_of_ints(int rank, const int *n, int64_t batch, int type)
{
    int64_t sizes[3] = {1, 1, 1};
    for (int i = 0; i < rank && i < 3; i++)
        sizes[i] = n[i];
    return size_of(rank < 3 ? rank : 3, sizes, batch, is_double(type));
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

EXPORT int cufftCreate(int *handle);
EXPORT int cufftCreate(int *handle)
{
    int found = -1;
    pthread_mutex_lock(&lock);
    for (int i = 1; i < PLANS && found < 0; i++)
        if (!plans[i].used)
            found = i;
    if (found > 0)
        plans[found] = (struct plan){.used = true};
    pthread_mutex_unlock(&lock);
    *handle = found > 0 ? found : 0;
    return found > 0 ? 0 : STANDIN_NO_MEMORY;
}

static struct plan *plan_of(int handle)
{
    return handle > 0 && handle < PLANS && plans[handle].used ? &plans[handle] : NULL;
}

EXPORT int cufftDestroy(int handle);
EXPORT int cufftDestroy(int handle)
{
    word workspace = 0;
    pthread_mutex_lock(&lock);
    struct plan *plan = plan_of(handle);
    if (plan) {
        workspace = plan->workspace;
        *plan = (struct plan){0};
    }
    pthread_mutex_unlock(&lock);
    standin_device_free(workspace);
    return plan ? 0 : STANDIN_INVALID_PLAN;
}

EXPORT int cufftSetAutoAllocation(int handle, int automatic);
EXPORT int cufftSetAutoAllocation(int handle, int automatic)
{
    pthread_mutex_lock(&lock);
    struct plan *plan = plan_of(handle);
    if (plan)
        plan->own = !automatic;
    pthread_mutex_unlock(&lock);
    return plan ? 0 : STANDIN_INVALID_PLAN;
}

EXPORT int cufftSetWorkArea(int handle, word workspace);
EXPORT int cufftSetWorkArea(int handle, word workspace)
{
    word before = 0;
    (void)workspace;
    pthread_mutex_lock(&lock);
    struct plan *plan = plan_of(handle);
    if (plan) {
        before = plan->workspace;
        plan->workspace = 0;
    }
    pthread_mutex_unlock(&lock);
    standin_device_free(before);
    return plan ? 0 : STANDIN_INVALID_PLAN;
}

/* A handle belongs to one thread at a time, so the plan stays while memory is allocated without the lock. */
static int plan_make(int handle, size_t bytes, size_t *answer)
{
    pthread_mutex_lock(&lock);
    struct plan *plan = plan_of(handle);
    bool own = plan && plan->own;
    pthread_mutex_unlock(&lock);
    if (!plan)
        return STANDIN_INVALID_PLAN;
    plan->bytes = bytes;
    if (!own && bytes && !plan->workspace) {
        plan->workspace = standin_device_alloc(bytes);
        if (!plan->workspace)
            return STANDIN_NO_MEMORY;
    }
    if (answer)
        *answer = bytes;
    return 0;
}

static int plan_new(int *handle, size_t bytes)
{
    int error = cufftCreate(handle);
    return error ? error : plan_make(*handle, bytes, NULL);
}

EXPORT int cufftGetSize(int handle, size_t *bytes);
EXPORT int cufftGetSize(int handle, size_t *bytes)
{
    struct plan *plan = plan_of(handle);
    *bytes = plan ? plan->bytes : 0;
    return plan ? 0 : STANDIN_INVALID_PLAN;
}

#define NUMBERS_1 int nx
#define NUMBERS_2 int nx, int ny
#define NUMBERS_3 int nx, int ny, int nz
#define SIZE_1    size_of_ints(1, (const int[]){nx}, batch, type)
#define SIZE_2    size_of_ints(2, (const int[]){nx, ny}, 1, type)
#define SIZE_3    size_of_ints(3, (const int[]){nx, ny, nz}, 1, type)
#define BATCH_1   , int batch
#define BATCH_2
#define BATCH_3
#define DIMENSIONS(_d)                                                                                                 \
    EXPORT int cufftPlan##_d##d(int *handle, NUMBERS_##_d, int type BATCH_##_d);                                       \
    EXPORT int cufftPlan##_d##d(int *handle, NUMBERS_##_d, int type BATCH_##_d)                                        \
    {                                                                                                                  \
        return plan_new(handle, SIZE_##_d);                                                                            \
    }                                                                                                                  \
    EXPORT int cufftMakePlan##_d##d(int handle, NUMBERS_##_d, int type BATCH_##_d, size_t *bytes);                     \
    EXPORT int cufftMakePlan##_d##d(int handle, NUMBERS_##_d, int type BATCH_##_d, size_t *bytes)                      \
    {                                                                                                                  \
        return plan_make(handle, SIZE_##_d, bytes);                                                                    \
    }                                                                                                                  \
    EXPORT int cufftGetSize##_d##d(int handle, NUMBERS_##_d, int type BATCH_##_d, size_t *bytes);                      \
    EXPORT int cufftGetSize##_d##d(int handle, NUMBERS_##_d, int type BATCH_##_d, size_t *bytes)                       \
    {                                                                                                                  \
        (void)handle;                                                                                                  \
        *bytes = SIZE_##_d;                                                                                            \
        return 0;                                                                                                      \
    }                                                                                                                  \
    EXPORT int cufftEstimate##_d##d(NUMBERS_##_d, int type BATCH_##_d, size_t *bytes);                                 \
    EXPORT int cufftEstimate##_d##d(NUMBERS_##_d, int type BATCH_##_d, size_t *bytes)                                  \
    {                                                                                                                  \
        *bytes = SIZE_##_d;                                                                                            \
        return 0;                                                                                                      \
    }
DIMENSIONS(1)
DIMENSIONS(2)
DIMENSIONS(3)

/* Positions: rank, sizes and so on; batch and the answer's are given. */
#define MANY(_function, _result)                                                                                       \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        return _result;                                                                                                \
    }
static int answer(word to, size_t bytes)
{
    *(size_t *)to = bytes;
    return 0;
}
MANY(cufftPlanMany, plan_new((int *)a1, size_of_ints((int)a2, (const int *)a3, (int)a11, (int)a10)))
MANY(cufftMakePlanMany, plan_make((int)a1, size_of_ints((int)a2, (const int *)a3, (int)a11, (int)a10), (size_t *)a12))
MANY(cufftGetSizeMany, answer(a12, size_of_ints((int)a2, (const int *)a3, (int)a11, (int)a10)))
MANY(cufftEstimateMany, answer(a11, size_of_ints((int)a1, (const int *)a2, (int)a10, (int)a9)))
MANY(cufftMakePlanMany64,
     plan_make((int)a1, size_of((int)a2, (const int64_t *)a3, (int64_t)a11, is_double((int)a10)), (size_t *)a12))
MANY(cufftGetSizeMany64, answer(a12, size_of((int)a2, (const int64_t *)a3, (int64_t)a11, is_double((int)a10))))
/* The type of the computation is a cudaDataType: C_64F is 5, R_64F 1. */
MANY(cufftXtMakePlanMany,
     plan_make((int)a1, size_of((int)a2, (const int64_t *)a3, (int64_t)a12, (int)a14 == 5 || (int)a14 == 1),
               (size_t *)a13))
MANY(cufftXtGetSizeMany,
     answer(a13, size_of((int)a2, (const int64_t *)a3, (int64_t)a12, (int)a14 == 5 || (int)a14 == 1)))

/* ---- the library ------------------------------------------------------------------------------------------------- */

static int version(int part)
{
    static const int versions[][3] = {{10, 9, 0}, {11, 4, 1}, {12, 0, 0}};
    int major = standin_major();
    return standin_version(part, versions[major <= 10 ? 0 : major == 11 ? 1 : 2]);
}

EXPORT int cufftGetVersion(int *value);
EXPORT int cufftGetVersion(int *value)
{
    *value = version(0) * 1000 + version(1) * 100 + version(2);
    return 0;
}

EXPORT int cufftGetProperty(int part, int *value);
EXPORT int cufftGetProperty(int part, int *value)
{
    return standin_property(part, value, version, STANDIN_INVALID);
}
