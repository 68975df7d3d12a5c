/* SPDX-License-Identifier: MIT
 * The version that libcudart.so.12 has. */
#include "cudart/runtime.h"

const int rt_version = 12040;
