/* SPDX-License-Identifier: MIT
 * The private header of the simulated libcupti: access to the simulated driver's tool table, and
 * the thread's last error.  Included only by sim/cupti. */
#ifndef SIM_CUPTI_SIM_H
#define SIM_CUPTI_SIM_H

#include <cupti.h>
#include <stdbool.h>

#include "tool.h"

#define CUPTI_EXPORT __attribute__((visibility("default")))

/* The driver's table, or NULL without a (simulated) driver.  Loads libcuda.so.1 if it is not
 * loaded; any thread. */
const struct sim_tool_table *cupti_tools(void);

/* Keeps an error for cuptiGetLastError of this thread; returns its argument. */
CUptiResult cupti_result(CUptiResult result);

/* Whether GPUPROF_SIM_CUPTI asks this copy of the library for `name`.  The variable is a list with
 * semicolons of NAME[:VALUE][@TEXT]; with @TEXT it is for copies whose path contains TEXT.  *value
 * is "" without one, and lives until the thread's next call; value may be NULL. */
bool cupti_setting(const char *name, const char **value);

/* Setting "shifted": driver callbacks have other numbers than in CUDA 13.0. */
#define CUPTI_SHIFT 5
/* The number inside the simulated driver of a driver callback of this library, and back. */
uint32_t cupti_driver_inside(uint32_t cbid);
uint32_t cupti_driver_outside(uint32_t cbid);

/* Since 13.2: the parameters of cuptiSubscribe_v2 with room to ask for sharing. */
struct cupti_params_shared {
    CUpti_SubscriberParams first;
    uint8_t allowMultipleSubscribers;
    uint8_t padding[7];
};

/* Number of ids in a domain, INVALID included; 0 for no domain. */
uint32_t cupti_domain_size(CUpti_CallbackDomain domain);

#endif
