/* SPDX-License-Identifier: MIT
 * The settings of GPUPROF_SIM_CUPTI, which make this library answer as copies of CUPTI in the field:
 *
 *   taken[:NAME]  39, another tool called NAME holds the only place
 *   none          999, the real library's answer without a driver
 *   old           15, its answer to a driver that is too old
 *   deaf          a tool may subscribe, and no callback can be enabled
 *   13.3          CUPTI 13.3: tools that ask for it share the library
 *   newer         driver callbacks after the last of CUDA 13.0
 *   shifted       driver callbacks with other numbers
 *
 * Called by the other files; any thread. */
#define _GNU_SOURCE
#include "cupti/cupti_sim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define CUPTI_SETTING_BYTES 256

static bool setting_is_here(const char *part)
{
    Dl_info info;

    return dladdr((void *)cupti_setting, &info) && info.dli_fname && strstr(info.dli_fname, part);
}

/* One entry of the list, in `text`; cuts it into pieces. */
static bool setting_matches(char *text, const char *name, const char **value)
{
    char *place = strchr(text, '@'), *colon;

    if (place)
        *place++ = '\0';
    colon = strchr(text, ':');
    if (colon)
        *colon++ = '\0';
    if (strcmp(text, name) || (place && !setting_is_here(place)))
        return false;
    if (value)
        *value = colon ? colon : "";
    return true;
}

bool cupti_setting(const char *name, const char **value)
{
    static __thread char text[CUPTI_SETTING_BYTES];
    const char *at = secure_getenv("GPUPROF_SIM_CUPTI");

    while (at && *at) {
        size_t length = strcspn(at, ";");

        if (length < sizeof text) {
            memcpy(text, at, length);
            text[length] = '\0';
            if (setting_matches(text, name, value))
                return true;
        }
        at += length + (at[length] == ';');
    }
    return false;
}
