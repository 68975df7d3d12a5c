/* SPDX-License-Identifier: MIT
 * What NCCL's variables and a communicator's configuration say of its memory (setting.def).  As NCCL does, a variable
 * goes before the configuration, and a text that is no number counts as 0.  NCCL's files (nccl.conf) are not read. */
#define _GNU_SOURCE
#include "nccl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *variable;
    size_t at;
} setting_names[] = {
#define NCCL_SETTING(_field, _variable, _value) {_variable, offsetof(struct nccl_settings, _field)},
#include "setting.def"
#undef NCCL_SETTING
};

static const char *setting_text(const char *variable)
{
    const char *text = secure_getenv(variable);
    return text && *text ? text : NULL;
}

/* "LOC", the shortest distance, or 0 as its number. */
static bool setting_nowhere(const char *variable)
{
    const char *text = setting_text(variable);
    return text && (!strcasecmp(text, "LOC") || !strcmp(text, "0"));
}

static void setting_of_config(int64_t *field, const struct nccl_config *config, size_t at)
{
    int value;
    if (config->size < at + sizeof value)
        return;
    memcpy(&value, (const char *)config + at, sizeof value);
    if (value != NCCL_CONFIG_UNDEFINED)
        *field = value;
}

struct nccl_settings nccl_settings_read(const struct nccl_config *config)
{
    struct nccl_settings set = nccl_settings_default();
    const char *network = setting_text("NCCL_NET"), *list = setting_text("NCCL_ALGO");
    if (config) {
        setting_of_config(&set.ctas_least, config, offsetof(struct nccl_config, ctas_least));
        setting_of_config(&set.ctas_most, config, offsetof(struct nccl_config, ctas_most));
        setting_of_config(&set.split_share, config, offsetof(struct nccl_config, split_share));
        setting_of_config(&set.nvls_channels, config, offsetof(struct nccl_config, nvls_channels));
        setting_of_config(&set.net_each, config, offsetof(struct nccl_config, net_each));
    }
    for (size_t i = 0; i < sizeof setting_names / sizeof *setting_names; i++) {
        const char *text = setting_text(setting_names[i].variable);
        errno = 0;
        int64_t value = text ? strtoll(text, NULL, 0) : 0;
        if (text && !errno)
            memcpy((char *)&set + setting_names[i].at, &value, sizeof value);
    }
    set.p2p_off = set.p2p_off || setting_nowhere("NCCL_P2P_LEVEL");
    set.net_host = set.ib_off || setting_nowhere("NCCL_NET_GDR_LEVEL") || (network && !strcasecmp(network, "Socket"));
    snprintf(set.algorithms, sizeof set.algorithms, "%s", list ? list : "");
    return set;
}
