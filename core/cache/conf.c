/* SPDX-License-Identifier: MIT
 *
 * conf.c: parses GPUPROF_ALLOC_CONF, in the grammar of PYTORCH_CUDA_ALLOC_CONF. Called once when
 * the library starts, and by the replay tool; never later, and never from a driver call.
 *
 * Grammar: KEY:VALUE[,KEY:VALUE...]. A VALUE is a word or a list [K:V,...]; white space is ignored.
 * PyTorch's parser accepts a number followed by other characters (it reads 20MB as 20). This parser
 * rejects it, because a misread setting can waste a whole run.
 */
#include "base/compiler.h"
#include "cache/policy.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GP_CONF_MIB ((uint64_t)1 << 20)
/* Largest number of MB whose bytes fit into 60 bits; larger requests are refused anyway. */
#define GP_CONF_MAX_MB ((uint64_t)1 << 40)
/* The longest key has 38 letters. */
#define GP_CONF_WORD 64

struct gp_conf {
    struct gp_policy policy;
    const char *at; /* the next character */
    const char *key;
    char word[GP_CONF_WORD];
    char *why;
    size_t why_bytes, why_used;
};

__attribute__((format(printf, 2, 3))) static void gp_conf_say(struct gp_conf *conf, const char *format, ...)
{
    if (conf->why_used + 1 >= conf->why_bytes)
        return;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(conf->why + conf->why_used, conf->why_bytes - conf->why_used, format, args);
    va_end(args);
    if (n > 0)
        conf->why_used += (size_t)n;
    if (conf->why_used >= conf->why_bytes)
        conf->why_used = conf->why_bytes - 1;
}

/* Notes a setting that is valid but has no effect here. */
static void conf_note(struct gp_conf *conf, const char *reason)
{
    gp_conf_say(conf, "%s%s: %s", conf->why_used ? "; " : "", conf->key, reason);
}

/* An error message replaces all notes, so that they cannot hide it. */
#define gp_conf_fail(conf, ...) ((conf)->why_used = 0, gp_conf_say(conf, __VA_ARGS__), -EINVAL)

static char conf_peek(struct gp_conf *conf)
{
    while (isspace((unsigned char)*conf->at))
        conf->at++;
    return *conf->at;
}

static bool conf_take(struct gp_conf *conf, char c)
{
    if (conf_peek(conf) != c)
        return false;
    conf->at++;
    return true;
}

/* Reads everything up to the next of `, : [ ]`; drops white space inside, as PyTorch's tokenizer
 * does. */
static int conf_word(struct gp_conf *conf)
{
    size_t n = 0;
    for (char c; (c = conf_peek(conf)) && !strchr(",:[]", c); conf->at++) {
        if (n + 1 == sizeof conf->word) {
            conf->word[n] = 0;
            return gp_conf_fail(conf, "'%.20s...' is too long for a key or a value", conf->word);
        }
        conf->word[n++] = c;
    }
    conf->word[n] = 0;
    return 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool conf_digits(const char *word, uint64_t *out)
{
    uint64_t value = 0;
    if (!*word)
        return false;
    for (; *word; word++) {
        if (*word < '0' || *word > '9' || value > (UINT64_MAX - 9) / 10)
            return false;
        value = value * 10 + (uint64_t)(*word - '0');
    }
    *out = value;
    return true;
}

static int conf_mb(struct gp_conf *conf, uint64_t least, uint64_t *bytes)
{
    uint64_t mb;
    if (!conf_digits(conf->word, &mb))
        return gp_conf_fail(conf, "%s:%s is not a whole number of MB: write it with digits alone, as in %s:%llu",
                            conf->key, conf->word, conf->key, (unsigned long long)least);
    if (mb < least)
        return gp_conf_fail(conf, "%s:%s is too small: it must be at least %llu", conf->key, conf->word,
                            (unsigned long long)least);
    *bytes = (mb > GP_CONF_MAX_MB ? GP_CONF_MAX_MB : mb) * GP_CONF_MIB;
    return 0;
}

/* Not strtod, because it uses the decimal point of the program's locale. */
static bool conf_decimal(const char *word, double *out)
{
    double value = 0, unit = 1;
    bool digit = false, point = false;
    for (; *word; word++) {
        if (*word == '.' && !point) {
            point = true;
            continue;
        }
        if (*word < '0' || *word > '9')
            return false;
        digit = true;
        value = value * 10 + (*word - '0');
        unit *= point ? 10 : 1;
    }
    *out = value / unit;
    return digit;
}

static int conf_bool(struct gp_conf *conf, bool *out)
{
    *out = strcmp(conf->word, "True") == 0;
    if (*out || strcmp(conf->word, "False") == 0)
        return 0;
    return gp_conf_fail(conf, "%s:%s must be exactly True or False", conf->key, conf->word);
}

static bool conf_is_power(uint64_t value)
{
    return value && !(value & (value - 1));
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static int conf_max_split(struct gp_conf *conf)
{
    return conf_mb(conf, 20, &conf->policy.max_split_bytes);
}

static int conf_max_round(struct gp_conf *conf)
{
    return conf_mb(conf, 20, &conf->policy.max_round_bytes);
}

static int conf_large_segment(struct gp_conf *conf)
{
    uint64_t bytes = 0;
    /* kMinLargeAlloc: requests up to 10 MB have to fit. */
    int error = conf_mb(conf, 10, &bytes);
    if (error)
        return error;
    if (bytes % (2 * GP_CONF_MIB))
        return gp_conf_fail(conf, "%s:%s must be even: device memory is mapped in pages of 2 MB", conf->key,
                            conf->word);
    conf->policy.large_segment_bytes = conf->policy.large_page_bytes = bytes;
    if (!conf->policy.own_segment_bytes)
        conf_note(conf, "every segment of this allocator is as large as the request; this changes only page sizes");
    return 0;
}

static int conf_collection(struct gp_conf *conf)
{
    double value;
    if (!conf_decimal(conf->word, &value) || value <= 0 || value >= 1)
        return gp_conf_fail(conf, "%s:%s must be between 0 and 1, both excluded, as in %s:0.8", conf->key, conf->word,
                            conf->key);
    conf->policy.gc_threshold = value;
    return 0;
}

static int conf_fraction(struct gp_conf *conf)
{
    double value;
    if (!conf_decimal(conf->word, &value) || value > 1)
        return gp_conf_fail(conf, "%s:%s must be between 0 and 1, as in %s:0.5", conf->key, conf->word, conf->key);
    if (value == 0)
        conf_note(conf, "0 means no limit here");
    conf->policy.memory_fraction = value;
    return 0;
}

static int conf_expandable(struct gp_conf *conf)
{
    bool on;
    int error = conf_bool(conf, &on);
    if (error)
        return error;
    if (on && !conf->policy.large_page_bytes) {
        conf_note(conf, "this allocator has no segments that could grow");
        return 0;
    }
    conf->policy.growable = on;
    if (!on)
        conf->policy.moves_pages = false;
    return 0;
}

/* divisions <= 128: eight bits hold them, and a 128th of a power of two is already below 1 %. */
static int conf_division(struct gp_conf *conf, bool none_allowed, uint8_t *out)
{
    uint64_t value;
    if (!conf_digits(conf->word, &value) || value > 128 || (!conf_is_power(value) && !(none_allowed && value == 0)))
        return gp_conf_fail(conf, "%s: '%s' divisions: it must be a power of two up to 128%s", conf->key, conf->word,
                            none_allowed ? ", or 0 for none" : "");
    *out = (uint8_t)value;
    return 0;
}

static int conf_division_entry(struct gp_conf *conf, bool *first, unsigned *last)
{
    char border[GP_CONF_WORD];
    uint8_t *divisions = conf->policy.divisions, value = 0;
    uint64_t mb = 0;
    int error = conf_word(conf);
    if (error)
        return error;
    memcpy(border, conf->word, sizeof border);
    bool beyond = strcmp(border, ">") == 0;
    if (!beyond && (!conf_digits(border, &mb) || !conf_is_power(mb)))
        return gp_conf_fail(conf, "%s: the border '%s' must be a power of two in MB, or >", conf->key, border);
    if (!conf_take(conf, ':'))
        return gp_conf_fail(conf, "%s: ':' is missing after '%s', as in [64:8,256:4,>:1]", conf->key, border);
    error = conf_word(conf);
    if (!error)
        error = conf_division(conf, true, &value);
    if (error)
        return error;
    if (beyond) {
        for (unsigned i = *last + 1; i < GP_POLICY_DIVISIONS; i++)
            divisions[i] = value;
        return 0;
    }
    unsigned index = 63u - (unsigned)__builtin_clzll(mb);
    index = index < GP_POLICY_DIVISIONS ? index : GP_POLICY_DIVISIONS - 1;
    /* The first border also applies to everything below it. */
    for (unsigned i = *first ? 0 : index; i <= index; i++)
        divisions[i] = value;
    *first = false;
    *last = index;
    return 0;
}

static int conf_divisions(struct gp_conf *conf)
{
    uint8_t value = 0;
    bool first = true;
    unsigned last = 0;
    if (!conf_take(conf, '[')) {
        int error = conf_word(conf);
        if (!error)
            error = conf_division(conf, false, &value);
        if (!error)
            memset(conf->policy.divisions, value, sizeof conf->policy.divisions);
        return error;
    }
    do {
        int error = conf_division_entry(conf, &first, &last);
        if (error)
            return error;
    } while (conf_take(conf, ','));
    if (!conf_take(conf, ']'))
        return gp_conf_fail(conf, "%s: the list does not end with ']'", conf->key);
    return 0;
}

/* ---- keys that other allocators need ----------------------------------------------------------------------------- */

enum gp_conf_shape { GP_CONF_WORDED, GP_CONF_BOOL, GP_CONF_NUMBER, GP_CONF_BACKEND, GP_CONF_ANY };

static int conf_skip_list(struct gp_conf *conf)
{
    while (conf_peek(conf) && *conf->at != ']')
        conf->at++;
    return conf_take(conf, ']') ? 0 : gp_conf_fail(conf, "%s: the list does not end with ']'", conf->key);
}

static int conf_ignore(struct gp_conf *conf, enum gp_conf_shape shape, const char *reason)
{
    bool on;
    uint64_t number;
    int error = 0;
    if (shape == GP_CONF_ANY && conf_take(conf, '['))
        error = conf_skip_list(conf);
    else
        error = conf_word(conf);
    if (!error && shape == GP_CONF_BOOL)
        error = conf_bool(conf, &on);
    if (!error && shape == GP_CONF_NUMBER && (!conf_digits(conf->word, &number) || number == 0))
        error = gp_conf_fail(conf, "%s:%s is not a number of at least 1", conf->key, conf->word);
    if (!error && shape == GP_CONF_BACKEND && strcmp(conf->word, "native") && strcmp(conf->word, "cudaMallocAsync"))
        error = gp_conf_fail(conf, "%s:%s must be native or cudaMallocAsync", conf->key, conf->word);
    if (!error)
        conf_note(conf, reason);
    return error;
}

#define GP_CONF_LOCK   "no effect: no lock is held across driver calls in any case"
#define GP_CONF_PINNED "no effect: host memory requests go to the driver unchanged"

static const struct gp_conf_key {
    const char *name;
    int (*set)(struct gp_conf *conf); /* NULL: accepted for compatibility, without effect; `ignored` has the reason */
    enum gp_conf_shape shape;
    const char *ignored;
} gp_conf_keys[] = {
    {"max_split_size_mb", conf_max_split, GP_CONF_WORDED, NULL},
    {"max_non_split_rounding_mb", conf_max_round, GP_CONF_WORDED, NULL},
    {"garbage_collection_threshold", conf_collection, GP_CONF_WORDED, NULL},
    {"roundup_power2_divisions", conf_divisions, GP_CONF_ANY, NULL},
    {"expandable_segments", conf_expandable, GP_CONF_WORDED, NULL},
    {"large_segment_size_mb", conf_large_segment, GP_CONF_WORDED, NULL},
    {"per_process_memory_fraction", conf_fraction, GP_CONF_WORDED, NULL},
    {"backend", NULL, GP_CONF_BACKEND, "no effect: --allocator selects the allocator"},
    {"release_lock_on_cudamalloc", NULL, GP_CONF_BOOL, GP_CONF_LOCK},
    {"release_lock_on_hipmalloc", NULL, GP_CONF_BOOL, GP_CONF_LOCK},
    {"pinned_use_cuda_host_register", NULL, GP_CONF_BOOL, GP_CONF_PINNED},
    {"pinned_use_hip_host_register", NULL, GP_CONF_BOOL, GP_CONF_PINNED},
    {"pinned_use_background_threads", NULL, GP_CONF_BOOL, GP_CONF_PINNED},
    {"pinned_num_register_threads", NULL, GP_CONF_NUMBER, GP_CONF_PINNED},
    {"pinned_reserve_segment_size_mb", NULL, GP_CONF_NUMBER, GP_CONF_PINNED},
    {"pinned_free_catch_all", NULL, GP_CONF_BOOL, GP_CONF_PINNED},
    {"graph_capture_record_stream_reuse", NULL, GP_CONF_BOOL,
     "no effect: a block that other streams used waits until a fence may be recorded again"},
    {"throw_on_cudamalloc_oom", NULL, GP_CONF_BOOL,
     "no effect: a request that fails after one retry is always reported"},
    {"expandable_segments_reserve", NULL, GP_CONF_WORDED, "no effect: a growable segment reserves 9/8 of the device"},
    {"expandable_segments_reserve_by_class", NULL, GP_CONF_ANY,
     "no effect: a growable segment reserves 9/8 of the device"},
    {"pinned_max_cached_size_mb", NULL, GP_CONF_WORDED, GP_CONF_PINNED},
    {"pinned_max_round_threshold_mb", NULL, GP_CONF_WORDED, GP_CONF_PINNED},
};

const char *gp_policy_key(unsigned index)
{
    return index < GP_COUNT(gp_conf_keys) ? gp_conf_keys[index].name : NULL;
}

static int conf_value(struct gp_conf *conf, const struct gp_conf_key *key)
{
    conf->key = key->name;
    if (!conf_take(conf, ':'))
        return gp_conf_fail(conf, "'%s' needs a value: write %s:VALUE", key->name, key->name);
    char next = conf_peek(conf);
    if (next == 0 || next == ',' || (next == '[' && key->shape != GP_CONF_ANY))
        return gp_conf_fail(conf, "'%s' needs a value: write %s:VALUE", key->name, key->name);
    if (!key->set)
        return conf_ignore(conf, key->shape, key->ignored);
    int error = key->shape == GP_CONF_WORDED ? conf_word(conf) : 0;
    return error ? error : key->set(conf);
}

static int conf_pair(struct gp_conf *conf)
{
    int error = conf_word(conf);
    if (error)
        return error;
    for (unsigned i = 0; i < GP_COUNT(gp_conf_keys); i++)
        if (strcmp(conf->word, gp_conf_keys[i].name) == 0)
            return conf_value(conf, &gp_conf_keys[i]);
    if (strchr(conf->word, '='))
        return gp_conf_fail(conf, "'%s': a key and its value are separated by ':', not by '='", conf->word);
    if (!conf->word[0])
        return gp_conf_fail(conf, "a key is missing before '%.10s': the form is KEY:VALUE,KEY:VALUE", conf->at);
    return gp_conf_fail(conf,
                        "unknown key '%s': known are max_split_size_mb, max_non_split_rounding_mb, "
                        "garbage_collection_threshold, roundup_power2_divisions, expandable_segments, "
                        "large_segment_size_mb, per_process_memory_fraction and PyTorch's others",
                        conf->word);
}

/* Checks settings that depend on each other, in whatever order they were written. */
static int conf_finish(struct gp_conf *conf)
{
    const struct gp_policy *policy = &conf->policy;
    if (policy->max_split_bytes < policy->large_segment_bytes)
        return gp_conf_fail(conf,
                            "max_split_size_mb:%llu is below large_segment_size_mb:%llu: shared segments could not "
                            "be split",
                            (unsigned long long)(policy->max_split_bytes / GP_CONF_MIB),
                            (unsigned long long)(policy->large_segment_bytes / GP_CONF_MIB));
    const char *reason = policy->frees_at_once ? "no effect: this allocator caches nothing"
                         : policy->growable    ? "growable segments are exempt; it applies only to the others"
                                               : NULL;
    conf->key = "max_split_size_mb";
    if (reason && policy->max_split_bytes != UINT64_MAX)
        conf_note(conf, reason);
    conf->key = "garbage_collection_threshold";
    if (reason && policy->gc_threshold > 0)
        conf_note(conf, reason);
    return 0;
}

int gp_policy_configure(struct gp_policy *policy, const char *text, char *why, size_t why_bytes)
{
    struct gp_conf conf = {.policy = *policy, .at = text, .why = why, .why_bytes = why_bytes};
    if (why_bytes)
        why[0] = 0;
    while (conf_peek(&conf)) {
        int error = conf_pair(&conf);
        if (!error && conf_peek(&conf) && !conf_take(&conf, ','))
            error = gp_conf_fail(&conf, "'%.10s' after %s: settings are separated by ','", conf.at, conf.key);
        if (error)
            return error;
    }
    int error = conf_finish(&conf);
    if (!error)
        *policy = conf.policy;
    return error;
}
