/* SPDX-License-Identifier: MIT
 * cuptiread.c: see cuptiread.h. */
#include <read/collect/cuptiread.h>

#include <base/compiler.h>
#include <base/text.h>
#include <string.h>

/* No process has tried or met more: a larger count is damage, and is not shown. */
#define GP_CUPTI_MOST 4096u

void gp_cupti_take(const struct gp_wire_cupti *cupti, struct gp_process *process)
{
    struct gp_cupti_view *view = &process->cupti;
    memset(view, 0, sizeof(*view));
    view->tried = cupti->copies <= GP_CUPTI_MOST ? cupti->copies : 0;
    view->strange = cupti->strange <= GP_CUPTI_MOST ? cupti->strange : 0;
    view->shared = cupti->shared == 1;
    view->copy_count = view->tried < GP_WIRE_COPIES ? view->tried : GP_WIRE_COPIES;
    view->name_count = view->strange < GP_WIRE_STRANGE ? view->strange : GP_WIRE_STRANGE;
    for (uint32_t i = 0; i < view->copy_count; i++) {
        const struct gp_wire_copy *from = &cupti->copy[i];
        struct gp_wire_copy *to = &view->copies[i];
        gp_text_clean(to->path, sizeof(to->path), from->path, sizeof(from->path));
        gp_text_clean(to->answer, sizeof(to->answer), from->answer, sizeof(from->answer));
        to->status = from->status;
        to->version = from->version;
    }
    for (uint32_t i = 0; i < view->name_count; i++)
        gp_text_clean(view->names[i], sizeof(view->names[i]), cupti->strange_names[i], sizeof(cupti->strange_names[i]));
}
