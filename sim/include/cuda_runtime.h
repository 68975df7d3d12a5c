/* SPDX-License-Identifier: MIT
 * The name under which most programs include the runtime API; without a CUDA compiler it is only the C API. */
#ifndef SIM_CUDA_RUNTIME_H
#define SIM_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#endif
