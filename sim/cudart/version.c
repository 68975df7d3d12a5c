/* SPDX-License-Identifier: MIT
 * The version that libcudart.so.13 has; libcudart.so.12 has another one (sim/cudart12). */
#include "cudart/runtime.h"

const int rt_version = CUDART_VERSION;
