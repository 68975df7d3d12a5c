/* SPDX-License-Identifier: MIT
 * Texture and surface objects end with their context; api/texture.c makes them. */
#include "cuda/texture.h"

#include <stdlib.h>

struct sim_texture *sim_textures;

/* Objects of a context end with it. */
void sim_textures_end(struct sim_context *context)
{
    for (struct sim_texture **at = &sim_textures; *at;) {
        struct sim_texture *one = *at;

        if (one->context_uid != context->uid) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        free(one);
    }
}
