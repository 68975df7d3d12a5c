/* SPDX-License-Identifier: MIT
 *
 * torch.h: declares the functions of torch.def: for torch.c, which defines them, and for
 * src/source/shim, which exports them again.  Only PyTorch calls them.
 */
#ifndef GP_ALLOCATOR_TORCH_H
#define GP_ALLOCATOR_TORCH_H

#include "base/compiler.h"
#include "source/abi.h"
#include <gpuprof/gpuprof.h>
#include <stddef.h>

#define GP_TORCH_PARAM(_type, _name)  _type _name
#define GP_TORCH(_result, _name, ...) GP_EXPORT _result _name(GP_EACH_LIST(GP_TORCH_PARAM, __VA_ARGS__));
#include "allocator/torch.def"
#undef GP_TORCH

#endif
