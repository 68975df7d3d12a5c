/* SPDX-License-Identifier: MIT
 * state.c: see model.h. */
#include <show/terminal/model.h>

bool gp_model_process_readable(const struct gp_process *process)
{
    return process && (process->state == GP_PROCESS_LIVE || process->state == GP_PROCESS_STALE);
}

bool gp_model_process_live(const struct gp_process *process)
{
    return process->state == GP_PROCESS_LIVE && !process->closed && !process->disabled && !process->yielded;
}

const char *gp_model_process_word(const struct gp_process *process)
{
    static const char *const words[] = {"live", "stale", "unknown", "damaged", "foreign"};
    if (!process)
        return "-";
    if (gp_model_process_readable(process)) {
        if (process->closed)
            return "exited";
        if (process->disabled)
            return "disabled";
        if (process->yielded)
            return "yielded";
    }
    return words[process->state];
}
