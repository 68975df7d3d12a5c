/* SPDX-License-Identifier: MIT
 * object.h: the loaded objects by address, for owner.c. */
#ifndef GP_STACK_OBJECT_H
#define GP_STACK_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

/* Large Python programs load 500 objects. Further objects have no entry, and the owner of memory
 * that they request is unknown. */
#define GP_OBJECTS       2048u
#define GP_OBJECT_NAME   48u
#define GP_OBJECT_NO_ROW UINT8_MAX

/* owner.c reads the fields with an x_ without a lock. */
struct gp_owner_object {
    uint64_t x_low, x_high;    /* executable addresses */
    const char *x_owner;       /* as gp_known_owner; NULL: an intermediary; "": use the file name */
    uint8_t x_row;             /* its row in the table of owners */
    bool x_segment;            /* gp_owner_segments_of names it */
    char name[GP_OBJECT_NAME]; /* of its file, without the folder */
};

/* Reads the loader's list again into `objects`, by falling address. Returns their number, or -1 if
 * the process is forking. Called by one thread at a time, inside gp_loader_with if it holds a lock. */
int gp_object_list(struct gp_owner_object objects[GP_OBJECTS]);

/* The object of an address among `count` ones in falling order, or -1. Loads with acquire, and ends
 * whatever it finds: another thread may write the list meanwhile. */
int gp_object_find(const struct gp_owner_object *objects, unsigned count, uint64_t pc);

#endif
