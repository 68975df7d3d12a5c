/* SPDX-License-Identifier: MIT
 * calls.c: which call of a net each call site belongs to; see beats.h. */
#include <analyze/beats.h>

#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

static bool calls_python(const struct gp_recording *recording, const struct gp_rec_frame *frame)
{
    const char *file = recording->strings + frame->file;
    size_t length = strlen(file);
    return !frame->pc && (file[0] == '<' || (length > 3 && strcmp(file + length - 3, ".py") == 0));
}

/* The frame runs inside a call of a torch.nn.Module, whatever its class. */
static bool calls_net(const struct gp_recording *recording, const struct gp_rec_frame *frame)
{
    const char *name = recording->strings + frame->function, *dot = strrchr(name, '.');
    name = dot ? dot + 1 : name;
    return strcmp(name, "forward") == 0 || strcmp(name, "_call_impl") == 0 || strcmp(name, "_wrapped_call_impl") == 0;
}

struct gp_net_call *gp_calls_find(const struct gp_recording *recording)
{
    struct gp_net_call *calls = calloc(recording->site_count + 1ul, sizeof(*calls));
    for (uint32_t i = 0; calls && i < recording->site_count; i++) {
        const struct gp_rec_site *site = &recording->sites[i];
        const struct gp_rec_frame *frames = &recording->frames[site->first_frame];
        for (uint32_t k = site->frame_count; k-- > 0 && !calls[i].net;) { /* the outermost first */
            if (!calls_python(recording, &frames[k]))
                continue;
            calls[i].net = calls_net(recording, &frames[k]);
            if (calls[i].net)
                break;
            calls[i].line = k;
            calls[i].key = gp_hash_of_number(calls[i].key + gp_hash_of_text(recording->strings + frames[k].file));
            calls[i].key = gp_hash_of_number(
                calls[i].key + gp_hash_of_text(recording->strings + frames[k].function) * 2 + frames[k].line);
        }
    }
    return calls;
}
