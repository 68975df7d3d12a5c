/* SPDX-License-Identifier: MIT
 *
 * optimizerstates.c: which state of an optimizer a site holds; see operation.h.
 */
#include <symbol/internal.h>
#include <symbol/operation.h>

#include <stdio.h>
#include <string.h>

#define GP_STATES 3u /* of an optimizer, that are named */

/* torch.optim makes the states of a weight in one function, one line for each, in this order.
 * Since no stack says which line it is, all must be there. */
static const struct {
    const char *file, *names[GP_STATES];
} operation_states[] = {{"/torch/optim/adam.py", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
                        {"/torch/optim/adamw.py", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
                        {"/torch/optim/radam.py", {"exp_avg", "exp_avg_sq", NULL}},
                        {"/torch/optim/nadam.py", {"exp_avg", "exp_avg_sq", NULL}},
                        {"/torch/optim/adamax.py", {"exp_avg", "exp_inf", NULL}},
                        {"/torch/optim/adadelta.py", {"square_avg", "acc_delta", NULL}}};
#define GP_STATE_FILES (sizeof(operation_states) / sizeof(operation_states[0]))

/* The frame whose line makes the state; NULL: it is none. *file: index in operation_states. */
static const struct gp_frame_text *state_frame(const struct gp_symbol_site *site, size_t *file)
{
    static const char makes[] = "_init_group";
    if (site->operation.part != GP_PART_OPTIMIZER || !site->operation.text ||
        (site->operator&& strcmp(site->operator, "zeros_like") != 0))
        return NULL;
    for (uint32_t i = 0; i < site->name; i++) {
        size_t length = strlen(site->frames[i].function), end = sizeof(makes) - 1;
        if (length < end || strcmp(site->frames[i].function + length - end, makes) != 0)
            continue;
        for (*file = 0; *file < GP_STATE_FILES; ++*file)
            if (gp_operation_has_path(site->frames[i].file, operation_states[*file].file))
                return &site->frames[i];
    }
    return NULL;
}

void gp_operation_states(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count)
{
    uint32_t lines[GP_STATE_FILES][GP_STATES + 1] = {{0}}, known[GP_STATE_FILES] = {0}, k;
    const struct gp_frame_text *frame;
    size_t file;
    for (uint32_t i = 0; i < count; i++) {
        if (!(frame = state_frame(&symbols->sites[sites[i]], &file)))
            continue;
        for (k = 0; k < known[file] && lines[file][k] < frame->line;)
            k++;
        if (known[file] > GP_STATES || (k < known[file] && lines[file][k] == frame->line))
            continue;
        memmove(&lines[file][k + 1], &lines[file][k], (known[file] - k) * sizeof(lines[0][0]));
        lines[file][k] = frame->line;
        known[file]++;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct gp_symbol_site *site = &symbols->sites[sites[i]];
        char text[GP_OPERATION_TEXT + 32];
        if (!(frame = state_frame(site, &file)) || known[file] < 2 || known[file] > GP_STATES)
            continue;
        for (k = 0; lines[file][k] != frame->line;)
            k++;
        if (!operation_states[file].names[known[file] - 1])
            continue;
        snprintf(text, sizeof(text), "%s (%s)", site->operation.text, operation_states[file].names[k]);
        site->operation.text = gp_intern(&symbols->intern, text);
    }
}
