/* SPDX-License-Identifier: MIT
 * Shared by texture.c and api/texture.c.  Call everything with the lock held. */
#ifndef SIM_TEXTURE_H
#define SIM_TEXTURE_H

#include "cuda/context.h"

struct sim_texture {
    struct sim_texture *next;
    unsigned long long handle; /* never reused */
    bool surface, viewed;
    uint32_t context_uid;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
};

/* texture.c */
extern struct sim_texture *sim_textures;

#endif
