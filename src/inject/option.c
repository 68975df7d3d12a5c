/* SPDX-License-Identifier: MIT
 * option.c: see option.def. */
#include "inject/option.h"
#include "base/compiler.h"
#include "base/log.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each parser: true, or false with a short reason in why. */
static bool gp_parse_source(const char *value, const char **why)
{
    if (strcmp(value, "auto") == 0 || strcmp(value, "cupti") == 0)
        return true;
    *why = strcmp(value, "hooks") == 0 ? "is not part of this version" : "must be auto or cupti";
    return false;
}

static bool gp_parse_log(const char *value, const char **why)
{
    static const char *const levels[] = {"off", "error", "warning", "info", "debug"};
    size_t length = strcspn(value, ":");
    const char *file = value[length] ? value + length + 1 : NULL;
    for (size_t i = 0; i < GP_COUNT(levels); i++) {
        if (strlen(levels[i]) != length || strncmp(levels[i], value, length) != 0)
            continue;
        *why = "names a file that cannot be opened";
        return gp_log_open((enum gp_log_level)i, file) == 0;
    }
    *why = "must be off, error, warning, info or debug";
    return false;
}

static const struct gp_option {
    const char *name;
    bool (*parse)(const char *value, const char **why);
} gp_options[] = {
#define GP_OPTION(_name, _parser, _help) {#_name, gp_parse_##_parser},
#define GP_LATER(_name)                  {#_name, NULL},
#include "inject/option.def"
#undef GP_OPTION
#undef GP_LATER
};

void gp_options_read(char *complaint, size_t complaint_bytes)
{
    size_t used = 0;
    complaint[0] = '\0';
    for (size_t i = 0; i < GP_COUNT(gp_options); i++) {
        const char *value = secure_getenv(gp_options[i].name), *why = "is not part of this version";
        if (!value || !*value || (gp_options[i].parse && gp_options[i].parse(value, &why)))
            continue;
        if (used < complaint_bytes)
            used += (size_t)snprintf(complaint + used, complaint_bytes - used, "%s%s=%.24s %s", used ? "; " : "",
                                     gp_options[i].name, value, why);
        gp_log(GP_LOG_WARN, "%s=%s %s: the default is used", gp_options[i].name, value, why);
    }
}
