/* SPDX-License-Identifier: MIT
 * The name under which most programs include the runtime API; without a CUDA compiler it is the C API alone. */
#ifndef SIM_CUDA_RUNTIME_H
#define SIM_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#endif
