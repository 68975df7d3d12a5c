/* SPDX-License-Identifier: MIT
 * option.c: reads the options of option.def from the environment. */
#include "base/compiler.h"
#include "base/log.h"
#include "base/text.h"
#include "inject/inject.h"
#include <errno.h>
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each parser: true, or false with a short reason in why. */
static bool parse_source(struct gp_options *out, const char *value, const char **why)
{
    static const char *const words[] = {
        [GP_OPTION_AUTO] = "auto", [GP_OPTION_CUPTI] = "cupti", [GP_OPTION_HOOKS] = "hooks"};
    for (size_t i = 0; i < GP_COUNT(words); i++)
        if (strcmp(value, words[i]) == 0) {
            out->source = (enum gp_option_source)i;
            return true;
        }
    *why = "must be auto, cupti or hooks";
    return false;
}

static bool parse_cupti(struct gp_options *out, const char *value, const char **why)
{
    static const char *const words[] = {
        [GP_CUPTI_AUTO] = "auto", [GP_CUPTI_V1] = "v1", [GP_CUPTI_V2] = "v2", [GP_CUPTI_SHARED] = "shared"};
    for (size_t i = 0; i < GP_COUNT(words); i++)
        if (strcmp(value, words[i]) == 0) {
            out->cupti = (enum gp_cupti_form)i;
            return true;
        }
    *why = "must be auto, v1, v2 or shared";
    return false;
}

static bool parse_log(struct gp_options *out, const char *value, const char **why)
{
    static const char *const levels[] = {"off", "error", "warning", "info", "debug"};
    size_t length = strcspn(value, ":");
    const char *file = value[length] ? value + length + 1 : NULL;
    (void)out;
    for (size_t i = 0; i < GP_COUNT(levels); i++) {
        if (strlen(levels[i]) != length || strncmp(levels[i], value, length) != 0)
            continue;
        *why = "names a file that cannot be opened";
        return gp_log_open((enum gp_log_level)i, file) == 0;
    }
    *why = "must be off, error, warning, info or debug";
    return false;
}

/* allocator/ checks both, since it knows the policies. */
static bool parse_allocator(struct gp_options *out, const char *value, const char **why)
{
    (void)why;
    out->allocator = value;
    return true;
}

static bool parse_conf(struct gp_options *out, const char *value, const char **why)
{
    (void)why;
    out->conf = value;
    return true;
}

static bool parse_stacks(struct gp_options *out, const char *value, const char **why)
{
    static const char *const words[] = {"off", "native", "python", "all"};
    static const uint32_t modes[] = {0, GP_SITES_NATIVE, GP_SITES_PYTHON, GP_SITES_NATIVE | GP_SITES_PYTHON};
    for (size_t i = 0; i < GP_COUNT(words); i++)
        if (strcmp(value, words[i]) == 0) {
            out->stacks = modes[i];
            out->stacks_set = true;
            return true;
        }
    *why = "must be off, native, python or all";
    return false;
}

static bool parse_ring(struct gp_options *out, const char *value, const char **why)
{
    *why = "must be auto or always";
    out->ring_always = strcmp(value, "always") == 0;
    return out->ring_always || strcmp(value, "auto") == 0;
}

/* Opening the file shows whether it can be written (record/). */
static bool parse_record(struct gp_options *out, const char *value, const char **why)
{
    (void)why;
    out->record = value;
    return true;
}

static bool parse_since(struct gp_options *out, const char *value, const char **why)
{
    *why = "must be a number of nanoseconds";
    for (; *value >= '0' && *value <= '9' && out->record_since_ns < UINT64_MAX / 10 - 1; value++)
        out->record_since_ns = out->record_since_ns * 10 + (uint64_t)(*value - '0');
    return !*value;
}

static bool parse_limit(struct gp_options *out, const char *value, const char **why)
{
    int64_t bytes = 0;
    int rc = gp_text_size_parse(value, &bytes);
    *why = rc == -EINVAL ? "must be a size, like 512MiB or 16GiB"
           : rc == -EDOM ? "needs a unit, as in 16GiB; B is bytes"
                         : "is out of range";
    out->limit_bytes = rc || !bytes ? out->limit_bytes : (uint64_t)bytes;
    return !rc && bytes;
}

static const struct gp_option {
    const char *name;
    bool (*parse)(struct gp_options *out, const char *value, const char **why);
} gp_options[] = {
#define GP_SETTING(_name, _parser, _help) {#_name, parse_##_parser},
#include "inject/option.def"
#undef GP_SETTING
};

void gp_option_complain(char *complaint, size_t complaint_bytes, const char *sentence)
{
    size_t used = strnlen(complaint, complaint_bytes);
    if (used < complaint_bytes)
        snprintf(complaint + used, complaint_bytes - used, "%s%s", used ? "; " : "", sentence);
    gp_log(GP_LOG_WARN, "%s: the default is used", sentence);
}

static const char *option_value(const char *settings, const char *name)
{
    size_t length = strlen(name);
    if (!settings)
        return secure_getenv(name);
    for (; *settings; settings += strlen(settings) + 1)
        if (strncmp(settings, name, length) == 0 && settings[length] == '=')
            return settings + length + 1;
    return NULL;
}

void gp_options_read(struct gp_options *out, const char *settings, char *complaint, size_t complaint_bytes)
{
    char sentence[128];
    complaint[0] = '\0';
    *out = (struct gp_options){0};
    for (size_t i = 0; i < GP_COUNT(gp_options); i++) {
        const char *value = option_value(settings, gp_options[i].name), *why = NULL;
        if (!value || !*value || gp_options[i].parse(out, value, &why))
            continue;
        snprintf(sentence, sizeof(sentence), "%s=%.24s %s", gp_options[i].name, value, why);
        gp_option_complain(complaint, complaint_bytes, sentence);
    }
}
