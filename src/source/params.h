/* SPDX-License-Identifier: MIT
 * params.h: the parameter structs of every row of hooks.def, as CUPTI hands them over: struct
 * gp_params_<name>. */
#ifndef GP_SOURCE_PARAMS_H
#define GP_SOURCE_PARAMS_H

#include "source/abi.h"
#include "source/each.h"

#define GP_PARAMS_FIELD(_type, _name) _type _name;
#define GP_HOOK(_id, _name, _handler, ...)                                                                             \
    struct gp_params_##_name {                                                                                         \
        GP_EACH(GP_PARAMS_FIELD, __VA_ARGS__)                                                                          \
    };
#include "source/hooks.def"
#undef GP_HOOK

#endif
