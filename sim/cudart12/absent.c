/* SPDX-License-Identifier: MIT
 * Exports that only CUDA 12's runtime has, and that have no behaviour here. */
/* The header declares the form of CUDA 13; the one without a version has the struct of CUDA 11. */
#define cudaGetDeviceProperties rt_properties_13
#include "cudart/absent.h"
#undef cudaGetDeviceProperties

#include "cudart12/absent.def"
