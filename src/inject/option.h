/* SPDX-License-Identifier: MIT
 * option.h: settings from the environment, or from gpuprof_attach. */
#ifndef GP_INJECT_OPTION_H
#define GP_INJECT_OPTION_H

#include "source/source.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gp_option_source { GP_OPTION_AUTO, GP_OPTION_CUPTI, GP_OPTION_HOOKS };

/* The valid settings; the strings belong to the environment, or to the text of gpuprof_attach. */
struct gp_options {
    enum gp_option_source source;
    enum gp_cupti_form cupti;
    const char *allocator; /* NULL: none requested.  allocator/ parses it and conf */
    const char *conf;
    uint64_t limit_bytes; /* 0: none */
    uint32_t stacks;      /* GP_SITES_*; 0 off */
    bool stacks_set;
    const char *record; /* NULL: none */
    uint64_t record_since_ns;
    bool ring_always;
};

/* Reads every row of option.def, with secure_getenv, or from settings: NAME=VALUE, each with a NUL,
 * and one more at the end.  complaint describes the settings that cannot be used ("": none). */
void gp_options_read(struct gp_options *out, const char *settings, char *complaint, size_t complaint_bytes);

/* Adds one sentence to complaint, and logs it. */
void gp_option_complain(char *complaint, size_t complaint_bytes, const char *sentence);

#endif
