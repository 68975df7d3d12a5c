/* SPDX-License-Identifier: MIT
 * libcufft.so.10 to .12.  The library allocates a plan's workspace unless the program said that it brings
 * its own. */
#include "standin.h"

#include <pthread.h>
#include <stdlib.h>

enum { STANDIN_INVALID_PLAN = 1, STANDIN_NO_MEMORY = 2, STANDIN_INVALID = 4, STANDIN_NOT_SUPPORTED = 16 };
enum { PLANS = 4096 };

struct plan {
    bool used, own; /* own: the program brings the workspace */
    size_t bytes;
    word workspace;
    struct standin_object *tables;
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

/* Rules that explain what cuFFT 12 took on an H200.  A transform that fits the shared memory of a
 * multiprocessor works in place; a longer one needs room for the data.  A length with a prime factor above
 * 127 becomes a convolution (Bluestein) of a length that is at least twice as long, with tables. */
enum { COMPLEX, TO_COMPLEX, TO_REAL };
enum { LARGEST_PRIME = 127, SHARED_MEMORY = 227 * 1024, SHORT_CONVOLUTION = 4096 };

struct transform {
    int rank, kind;
    int64_t n[3], batch;
    int64_t element; /* bytes of a complex number */
};

static int64_t largest_prime(int64_t n)
{
    int64_t largest = 1;
    for (int64_t p = 2; p * p <= n; p++)
        while (n % p == 0) {
            largest = p;
            n /= p;
        }
    return n > 1 ? n : largest;
}

/* The length of the convolution: a power of a small prime if it is short, else without prime factors above 5. */
static int64_t convolution(int64_t n)
{
    int64_t least = 2 * n - 1, best = INT64_MAX;
    for (int64_t prime = 2; prime <= 7; prime += prime == 2 ? 1 : 2)
        for (int64_t power = prime; power <= SHORT_CONVOLUTION; power *= prime)
            if (power >= least && power < best)
                best = power;
    if (best <= SHORT_CONVOLUTION)
        return best;
    for (int64_t five = 1; five < 5 * least; five *= 5)
        for (int64_t three = five; three < 3 * least; three *= 3) {
            int64_t number = three;
            while (number < least)
                number *= 2;
            if (number < best)
                best = number;
        }
    return best;
}

/* 0: none is needed for this length. */
static int64_t convolution_of(int64_t n, bool real)
{
    return largest_prime(n) > LARGEST_PRIME ? convolution(real && n % 2 == 0 ? n / 2 : n) : 0;
}

static int64_t complex_space(int64_t n, int64_t count, int64_t element)
{
    int64_t length = convolution_of(n, false);
    if (length)
        return length <= SHORT_CONVOLUTION ? 0 : 2 * length * count * element;
    return n * element <= SHARED_MEMORY ? 0 : n * count * element;
}

/* Real data of even length is complex data of half of it; of odd length, two are one of complex data. */
static int64_t real_space(int64_t n, int64_t count, int64_t element, int kind)
{
    int64_t length = convolution_of(n, true), pairs = n % 2 ? (count + 1) / 2 : count, half = n % 2 ? n : n / 2;
    int64_t data = half * pairs * element;
    if (length)
        return length > SHORT_CONVOLUTION ? 2 * length * pairs * element + data : n % 2 ? 2 * data : data;
    if (n % 2)
        return n <= LARGEST_PRIME ? 0 : 2 * data;
    if (half * element > SHARED_MEMORY)
        return data;
    if (kind == TO_COMPLEX)
        return n <= 1024 || (n & (n - 1)) == 0 ? 0 : data;
    return largest_prime(n) <= 13 ? 0 : half % 2 ? 2 * data : data;
}

static size_t space_of(const struct transform *transform)
{
    int last = transform->rank - 1;
    int64_t numbers = transform->batch > 0 ? transform->batch : 1, most = 0;
    bool real = transform->kind != COMPLEX;
    for (int i = 0; i <= last; i++) {
        if (transform->n[i] < 1)
            return 0;
        numbers *= real && i == last ? transform->n[i] / 2 + 1 : transform->n[i];
    }
    for (int i = 0; i <= last; i++) {
        int64_t n = transform->n[i], space;
        if (real && i == last)
            space = real_space(n, numbers / (n / 2 + 1), transform->element, transform->kind);
        else
            space = complex_space(n, numbers / n, transform->element);
        most = space > most ? space : most;
    }
    standin_assumed("plans: the workspace that rules of cuFFT 12 on capability 9.0 give");
    return (size_t)most;
}

/* The types have cuFFT's numbers: C2C 0x29, R2C 0x2a, C2R 0x2c, and those of double precision 0x40 above them. */
static struct transform transform_of(int rank, const int64_t *n, int64_t batch, int type)
{
    struct transform transform = {.rank = rank < 0 ? 0 : rank < 3 ? rank : 3, .batch = batch};
    transform.element = type & 0x40 ? 16 : 8;
    transform.kind = (type & 0x3f) == 0x2a ? TO_COMPLEX : (type & 0x3f) == 0x2c ? TO_REAL : COMPLEX;
    for (int i = 0; i < transform.rank; i++)
        transform.n[i] = n[i];
    return transform;
}

static struct transform transform_of_ints(int rank, const int *n, int64_t batch, int type)
{
    int64_t sizes[3] = {1, 1, 1};
    for (int i = 0; i < rank && i < 3; i++)
        sizes[i] = n[i];
    return transform_of(rank, sizes, batch, type);
}

/* A cudaDataType: real ones are R_32F 0, R_64F 1 and R_16F 2, complex ones C_32F 4, C_64F 5 and C_16F 6. */
static struct transform transform_of_types(int rank, const int64_t *n, int64_t batch, int from, int to, int with)
{
    struct transform transform = transform_of(rank, n, batch, from <= 2 ? 0x2a : to <= 2 ? 0x2c : 0x29);
    transform.element = with == 5 || with == 1 ? 16 : with == 6 || with == 2 ? 4 : 8;
    return transform;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* cuFFT 12 takes these once, with the first plan and with the first one that is a convolution. */
static bool tables_common(bool convolves)
{
    static const size_t bytes[] = {6967984, 4335936};
    static bool taken[2]; /* under the lock */
    bool done = true;
    for (int i = 0; i < 1 + convolves && standin_major() >= 12; i++) {
        pthread_mutex_lock(&lock);
        bool first = !taken[i];
        taken[i] = true;
        pthread_mutex_unlock(&lock);
        done = done && (!first || standin_device_alloc(bytes[i]));
    }
    return done;
}

/* Two for each convolution; both directions of a real transform have their own. */
static bool tables_take(struct standin_object *object, const struct transform *transform)
{
    bool convolves = false;
    for (int i = 0; i < transform->rank; i++) {
        bool real = transform->kind != COMPLEX && i == transform->rank - 1;
        int64_t length = convolution_of(transform->n[i], real);
        convolves = convolves || length > 0;
        for (int j = 0; length && j < (real ? 4 : 2); j++)
            if (!standin_take(object, (size_t)(length * transform->element), false))
                return false;
    }
    return tables_common(convolves);
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
    struct plan before = {0};
    pthread_mutex_lock(&lock);
    struct plan *plan = plan_of(handle);
    if (plan) {
        before = *plan;
        *plan = (struct plan){0};
    }
    pthread_mutex_unlock(&lock);
    standin_device_free(before.workspace);
    standin_drop(before.tables);
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
static int plan_make(int handle, struct transform transform, size_t *answer)
{
    size_t bytes = space_of(&transform);
    pthread_mutex_lock(&lock);
    struct plan *plan = plan_of(handle);
    bool own = plan && plan->own;
    pthread_mutex_unlock(&lock);
    if (!plan)
        return STANDIN_INVALID_PLAN;
    plan->bytes = bytes;
    if (!plan->tables) {
        plan->tables = standin_new(0);
        if (!plan->tables || !tables_take(plan->tables, &transform))
            return STANDIN_NO_MEMORY;
    }
    if (!own && bytes && !plan->workspace) {
        plan->workspace = standin_device_alloc(bytes);
        if (!plan->workspace)
            return STANDIN_NO_MEMORY;
    }
    if (answer)
        *answer = bytes;
    return 0;
}

static int plan_new(int *handle, struct transform transform)
{
    int error = cufftCreate(handle);
    return error ? error : plan_make(*handle, transform, NULL);
}

EXPORT int cufftGetSize(int handle, size_t *bytes);
EXPORT int cufftGetSize(int handle, size_t *bytes)
{
    struct plan *plan = plan_of(handle);
    *bytes = plan ? plan->bytes : 0;
    return plan ? 0 : STANDIN_INVALID_PLAN;
}

static size_t size_of(struct transform transform)
{
    return space_of(&transform);
}

#define NUMBERS_1 int nx
#define NUMBERS_2 int nx, int ny
#define NUMBERS_3 int nx, int ny, int nz
#define SIZE_1    transform_of_ints(1, (const int[]){nx}, batch, type)
#define SIZE_2    transform_of_ints(2, (const int[]){nx, ny}, 1, type)
#define SIZE_3    transform_of_ints(3, (const int[]){nx, ny, nz}, 1, type)
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
        *bytes = size_of(SIZE_##_d);                                                                                   \
        return 0;                                                                                                      \
    }                                                                                                                  \
    EXPORT int cufftEstimate##_d##d(NUMBERS_##_d, int type BATCH_##_d, size_t *bytes);                                 \
    EXPORT int cufftEstimate##_d##d(NUMBERS_##_d, int type BATCH_##_d, size_t *bytes)                                  \
    {                                                                                                                  \
        *bytes = size_of(SIZE_##_d);                                                                                   \
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
static int answer(word to, struct transform transform)
{
    *(size_t *)to = size_of(transform);
    return 0;
}
MANY(cufftPlanMany, plan_new((int *)a1, transform_of_ints((int)a2, (const int *)a3, (int)a11, (int)a10)))
MANY(cufftMakePlanMany,
     plan_make((int)a1, transform_of_ints((int)a2, (const int *)a3, (int)a11, (int)a10), (size_t *)a12))
MANY(cufftGetSizeMany, answer(a12, transform_of_ints((int)a2, (const int *)a3, (int)a11, (int)a10)))
MANY(cufftEstimateMany, answer(a11, transform_of_ints((int)a1, (const int *)a2, (int)a10, (int)a9)))
MANY(cufftMakePlanMany64,
     plan_make((int)a1, transform_of((int)a2, (const int64_t *)a3, (int64_t)a11, (int)a10), (size_t *)a12))
MANY(cufftGetSizeMany64, answer(a12, transform_of((int)a2, (const int64_t *)a3, (int64_t)a11, (int)a10)))
MANY(cufftXtMakePlanMany,
     plan_make((int)a1, transform_of_types((int)a2, (const int64_t *)a3, (int64_t)a12, (int)a7, (int)a11, (int)a14),
               (size_t *)a13))
MANY(cufftXtGetSizeMany,
     answer(a13, transform_of_types((int)a2, (const int64_t *)a3, (int64_t)a12, (int)a7, (int)a11, (int)a14)))

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
