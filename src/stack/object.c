/* SPDX-License-Identifier: MIT
 * object.c: the loaded objects by address, each with its owner (internal.h). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "base/known.h"
#include "base/loader.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <stddef.h>
#include <string.h>

struct object_list {
    struct gp_owner_object *objects;
    unsigned count;
};

static int object_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object_list *list = arg;
    uint64_t low = UINT64_MAX, high = 0;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD || !(header->p_flags & PF_X))
            continue;
        low = start < low ? start : low;
        high = start + header->p_memsz > high ? start + header->p_memsz : high;
    }
    if (low >= high || list->count == GP_OBJECTS)
        return 0;
    /* The kernel maps objects downwards, so the loader's list is nearly in falling order, but for the
     * program itself, which comes first. */
    unsigned at = list->count++;
    for (; at > 0 && list->objects[at - 1].x_low < low; at--)
        list->objects[at] = list->objects[at - 1];
    struct gp_owner_object *object = &list->objects[at];
    const char *path = info->dlpi_name ? info->dlpi_name : "", *base = gp_known_base(path);
    *object = (struct gp_owner_object){
        .x_low = low, .x_high = high, .x_owner = gp_known_owner(path), .x_row = GP_OBJECT_NO_ROW};
    memcpy(object->name, base, strnlen(base, sizeof(object->name) - 1));
    if ((uint64_t)(uintptr_t)gp_object_list - low < high - low)
        object->x_owner = NULL; /* gpuprof, under whatever name */
    return 0;
}

int gp_object_list(struct gp_owner_object objects[GP_OBJECTS])
{
    struct object_list list = {objects, 0};
    return gp_loader_look(object_visit, &list) ? (int)list.count : -1;
}

int gp_object_find(const struct gp_owner_object *objects, unsigned count, uint64_t pc)
{
    unsigned low = 0, high = count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (__atomic_load_n(&objects[middle].x_low, __ATOMIC_ACQUIRE) > pc)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && pc < __atomic_load_n(&objects[low].x_high, __ATOMIC_ACQUIRE) ? (int)low : -1;
}
