/* SPDX-License-Identifier: MIT
 * cuInit: reads the specification, makes the devices, injects the tool library; handles forks.
 * The first successful call does all of it; others wait for it.  A failure leaves no partial state. */
#define _GNU_SOURCE
#include "cuda/module.h"
#include "cuda/pool.h"

#include <dlfcn.h>
#include <stdlib.h>

static bool sim_forked;   /* this process is a fork of one that had initialised: CUDA is unusable in it */
static bool sim_starting; /* a thread is inside the first cuInit */
static pthread_t sim_starter;
static pthread_cond_t sim_started = PTHREAD_COND_INITIALIZER;

/* Another thread may have held the lock at the time of the fork: the child gets a new one, and may
 * use nothing but the calls that need no cuInit. */
static void sim_fork_child(void)
{
    sim_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (!sim_initialized)
        return;
    sim_forked = true;
    __atomic_store_n(&sim_initialized, false, __ATOMIC_RELAXED); /* the child has one thread */
    sim_self = (struct sim_thread){0};
    sim_ledger_forget();
}

/* A handler of exit() that the program registered before its first cuInit, and a destructor, come too late: each call fails
 * (as UCX, Hypre and many more report of real drivers). quick_exit has no part in it. */
static void sim_deinitialize(void)
{
    __atomic_store_n(&sim_deinitialized, true, __ATOMIC_RELAXED);
}

/* As the driver does: a missing library or symbol causes no error and no message, and the library's
 * names do not become global.  Before that it opens the program itself, with other threads waiting
 * for this cuInit (seen in 525 to 555): a constructor that calls cuInit meanwhile waits for ever. */
static void sim_inject(void)
{
    void *program = dlopen(NULL, RTLD_LAZY);
    if (program)
        dlclose(program);
    const char *path = secure_getenv("CUDA_INJECTION64_PATH");
    if (!path || !*path)
        return;
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return;
    int (*initialize)(void) = (int (*)(void))dlsym(library, "InitializeInjection");
    if (initialize)
        initialize();
}

static void sim_reclaim(int device)
{
    sim_pool_reclaim(device);
    sim_graph_reclaim(device);
}

static CUresult sim_setup(void)
{
    /* 802 says that the system is not ready for CUDA work: a specification that cannot be read
     * leaves no machine. */
    if (sim_spec_read() != 0 || sim_fault_load() != 0)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (sim_device_setup() != 0)
        return CUDA_ERROR_NO_DEVICE;
    sim_device_reclaim = sim_reclaim;
    static bool hooked;
    if (!hooked && (pthread_atfork(NULL, NULL, sim_fork_child) != 0 || atexit(sim_deinitialize) != 0))
        return CUDA_ERROR_OPERATING_SYSTEM;
    hooked = true;
    if (*sim_spec.shared && sim_share_setup(sim_spec.shared) != 0)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    return CUDA_SUCCESS;
}

/* The first cuInit takes about as long as the creation of a context; later ones cost what a query does. */
#define SIM_INIT_NS UINT64_C(100000000)

SIM_EARLY1(1, 2000, cuInit, unsigned int, Flags)
{
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    while (sim_starting && !pthread_equal(sim_starter, pthread_self()))
        pthread_cond_wait(&sim_started, &sim_mutex);
    if (sim_initialized)
        return CUDA_SUCCESS;
    CUresult result = sim_setup();
    if (result != CUDA_SUCCESS)
        return result;
    sim_clock_add(SIM_INIT_NS); /* after the setup, which reads whether calls cost time */
    sim_starting = true;
    sim_starter = pthread_self();
    /* release pairs with the acquire in sim_call_gate: the devices above are visible to every
     * thread that passes the gate. */
    __atomic_store_n(&sim_initialized, true, __ATOMIC_RELEASE);
    sim_unlock();
    if (sim_spec.dropped)
        sim_layout_setup();
    sim_inject();
    sim_lock();
    sim_tool_event(SIM_TOOL_RESOURCE, SIM_TOOL_INIT_FINISHED, NULL, NULL, NULL);
    sim_starting = false;
    pthread_cond_broadcast(&sim_started);
    return CUDA_SUCCESS;
}

SIM_EARLY1(2, 2020, cuDriverGetVersion, int *, driverVersion)
{
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = SIM_VERSION;
    return CUDA_SUCCESS;
}
