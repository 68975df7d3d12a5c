/* SPDX-License-Identifier: MIT
 * The private header of the simulated libcupti: access to the simulated driver's tool table, and
 * the thread's last error.  Included only by src/sim/cupti. */
#ifndef SIM_CUPTI_SIM_H
#define SIM_CUPTI_SIM_H

#include <cupti.h>

#include "tool.h"

#define CUPTI_EXPORT __attribute__((visibility("default")))

/* The driver's table, or NULL without a (simulated) driver.  Loads libcuda.so.1 if it is not
 * loaded; any thread. */
const struct sim_tool_table *cupti_tools(void);

/* Keeps an error for cuptiGetLastError of this thread; returns its argument. */
CUptiResult cupti_result(CUptiResult result);

/* Number of ids in a domain, INVALID included; 0 for no domain. */
uint32_t cupti_domain_size(CUpti_CallbackDomain domain);

#endif
