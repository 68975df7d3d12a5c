/* SPDX-License-Identifier: MIT
 * numbers.c: the tables made of numbers.def. */
#include "base/numbers.h"
#include "base/compiler.h"
#include <string.h>

#define GP_AT(_field) offsetof(struct gp_wire_device, _field)

#define GP_KEYS(_name, _field, _told)                                                                                  \
    {_name ".allocated", GP_AT(_field.allocated), _told}, {_name ".current", GP_AT(_field.current), _told},            \
        {_name ".freed", GP_AT(_field.freed), _told}, {_name ".peak", GP_AT(_field.peak), _told},
const struct gp_stat_key gp_stat_keys[GP_STAT_KEYS] = {
#define GP_STAT(_id, _gauge, _tag, _name, _reset, _told)                                                               \
    GP_KEYS(#_name ".all", stats[_id][GP_POOL_ALL], _told)                                                             \
    GP_KEYS(#_name ".large_pool", stats[_id][GP_POOL_LARGE], _told)                                                    \
    GP_KEYS(#_name ".small_pool", stats[_id][GP_POOL_SMALL], _told)
#define GP_VALUE(_id, _name)  GP_KEYS(#_name, _name, 1)
#define GP_NUMBER(_id, _name) {#_name, GP_AT(_name), 1},
#include <gpuprof/numbers.def>
};

int64_t gp_stat_get(const struct gp_wire_device *device, const struct gp_stat_key *key)
{
    int64_t value;
    if (device->flags & GP_DEVICE_FRAMEWORK && !key->told)
        return -1;
    memcpy(&value, (const char *)device + key->offset, sizeof(value));
    return value;
}

static const char *const stat_names[] = {
#define GP_STAT(_id, _gauge, _tag, _name, _reset, _told) [_id] = #_name,
#include <gpuprof/numbers.def>
};

static const char *const kind_names[] = {
#define GP_KIND(_id, _tag, _name, ...) [_id] = #_name,
#include <gpuprof/numbers.def>
};

static const char *const lost_names[] = {
#define GP_LOST(_id, _tag, _name) [_id] = #_name,
#include <gpuprof/numbers.def>
};

#define GP_NAME(_table, _index) ((_index) < GP_COUNT(_table) ? (_table)[_index] : NULL)

const char *gp_stat_name(unsigned stat)
{
    return GP_NAME(stat_names, stat);
}

const char *gp_kind_name(unsigned kind)
{
    return GP_NAME(kind_names, kind);
}

const char *gp_lost_name(unsigned cause)
{
    return GP_NAME(lost_names, cause);
}

bool gp_stat_told(unsigned stat)
{
    static const bool told[GP_STATS] = {
#define GP_STAT(_id, _gauge, _tag, _name, _reset, _told) [_id] = _told,
#include <gpuprof/numbers.def>
    };
    return stat < GP_STATS && told[stat];
}

bool gp_reset_touches(unsigned what, unsigned stat)
{
    static const uint8_t resets[GP_STATS] = {
#define GP_STAT(_id, _gauge, _tag, _name, _reset, _told) [_id] = GP_RESET_##_reset,
#include <gpuprof/numbers.def>
    };
    return what & GP_RESET_ACCUMULATED || (stat < GP_STATS && what & resets[stat]);
}

/* Ids of rows: the sort of number in the high byte, its id (and pool) in the low one. */
enum {
    GP_ROW_STAT = 1 << 8,
    GP_ROW_VALUE = 2 << 8,
    GP_ROW_NUMBER = 3 << 8,
    GP_ROW_KIND = 4 << 8,
    GP_ROW_OTHER = 5 << 8
};
#define GP_ROW(_id, _field) {_id, GP_AT(_field), sizeof(((struct gp_wire_device *)0)->_field) / (sizeof(int64_t))},
const struct gp_number_row gp_number_rows[GP_NUMBER_ROWS] = {
#define GP_STAT(_id, _gauge, _tag, _name, _reset, _told)                                                               \
    GP_ROW(GP_ROW_STAT + _id * GP_POOLS, stats[_id][0])                                                                \
    GP_ROW(GP_ROW_STAT + _id * GP_POOLS + 1, stats[_id][1])                                                            \
    GP_ROW(GP_ROW_STAT + _id * GP_POOLS + 2, stats[_id][2])
#define GP_VALUE(_id, _name)  GP_ROW(GP_ROW_VALUE + _id, _name)
#define GP_NUMBER(_id, _name) GP_ROW(GP_ROW_NUMBER + _id, _name)
#define GP_KIND(_id, ...)     GP_ROW(GP_ROW_KIND + _id, kinds[_id])
#include <gpuprof/numbers.def>
    GP_ROW(GP_ROW_OTHER, linear_rounded_bytes) /* an estimate without a public name */
    GP_ROW(GP_ROW_OTHER + 1, scopes) GP_ROW(GP_ROW_OTHER + 2, beside_bytes) GP_ROW(GP_ROW_OTHER + 3, polled)};

const struct gp_number_row *gp_number_row(uint64_t id)
{
    for (unsigned i = 0; i < GP_NUMBER_ROWS; i++)
        if (gp_number_rows[i].id == id)
            return &gp_number_rows[i];
    return NULL;
}
