/* SPDX-License-Identifier: MIT
 * cuptifind.h: finds the CUPTI libraries that a program could use.  Called by doctor.c. */
#ifndef GP_CMD_CUPTIFIND_H
#define GP_CMD_CUPTIFIND_H

#define GP_CUPTI_FOUND 16

struct gp_cupti_found {
    int count;
    char paths[GP_CUPTI_FOUND][512];
};

/* Finds libcupti.so.13, .12 and .11*: in LD_LIBRARY_PATH, the folders of the loader, CUDA_HOME,
 * /usr/local/cuda and pip's nvidia packages, each file once. */
void gp_cupti_find(struct gp_cupti_found *found);

#endif
