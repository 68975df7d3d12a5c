/* SPDX-License-Identifier: MIT
 * place.c: which device memory lies on, by the location that a call names. */
#include "account/feed/feed.h"
#include "source/internal.h"
#include <gpuprof/wire.h>

int gp_place_device(const struct gp_cu_location *location)
{
    if (location->type == GP_CU_LOCATION_DEVICE)
        return location->id;
    if (location->type == GP_CU_LOCATION_LOCALITY_DOMAIN)
        return location->id & 0xff; /* both processors that CUDA runs on are little-endian */
    if (location->type >= GP_CU_LOCATION_HOST && location->type <= GP_CU_LOCATION_NUMA_CURRENT)
        return (int)GP_WIRE_HOST;
    return GP_DEVICE_UNKNOWN;
}
