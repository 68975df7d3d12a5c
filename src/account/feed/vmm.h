/* SPDX-License-Identifier: MIT
 *
 * vmm.h: virtual memory management.
 *
 * Rules (cuda.h: cuMemRelease, cuMemMap, cuMemUnmap): physical memory lives while references or
 * mappings exist. A handle that is mapped twice counts once: allocated = min(size, sum of its
 * mappings).
 */
#ifndef GP_ACCOUNT_FEED_VMM_H
#define GP_ACCOUNT_FEED_VMM_H

#include <stdbool.h>
#include <stdint.h>

void gp_feed_vmm_create(uint64_t handle, uint64_t bytes, int device);
void gp_feed_vmm_import(uint64_t handle, int device);
/* A multicast object: released and mapped like a handle, but without bytes of its own. */
void gp_feed_vmm_object(uint64_t handle, int device);
/* A device joins the team of a multicast object: an imported handle is such an object, and not memory. */
void gp_feed_vmm_join(uint64_t handle);
void gp_feed_vmm_retain(uint64_t handle);
uint32_t gp_feed_vmm_release_begin(uint64_t handle);
void gp_feed_vmm_release_end(uint32_t token, bool ok);
void gp_feed_vmm_map(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle);
/* The handle behind a mapped address, for calls that name memory by address; 0: unknown. */
uint64_t gp_feed_vmm_handle_at(uint64_t address);
uint32_t gp_feed_vmm_unmap_begin(uint64_t address, uint64_t bytes);
void gp_feed_vmm_unmap_end(uint32_t token, bool ok);
/* A multicast object or a logical endpoint keeps bound memory alive as a mapping does, but adds no
 * allocated bytes. device: for which device of the team; GP_DEVICE_UNKNOWN: the memory's own. */
void gp_feed_vmm_bind(uint64_t object, int device, uint64_t offset, uint64_t bytes, uint64_t handle);
/* Ends the bindings of one device from offset on that `bytes` cover. */
void gp_feed_vmm_unbind(uint64_t object, int device, uint64_t offset, uint64_t bytes);
/* The object is gone, and its bindings with it. gp_feed_vmm_object's objects do this by themselves. */
void gp_feed_vmm_unbind_all(uint64_t object);

#endif
