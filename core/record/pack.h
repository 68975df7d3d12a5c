/* SPDX-License-Identifier: MIT
 *
 * pack.h: encodes and decodes numbers and strings (format.h). Both directions check bounds, and the
 * first error sticks.
 */
#ifndef GP_RECORD_PACK_H
#define GP_RECORD_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ==== numbers ===================================================================================================== */

struct gp_pack {
    uint8_t *at, *start, *end;
    bool full; /* something did not fit; later writes are ignored */
};

static inline size_t gp_pack_bytes(const struct gp_pack *pack)
{
    return (size_t)(pack->at - pack->start);
}

static inline void gp_pack_raw(struct gp_pack *pack, const void *bytes, size_t count)
{
    if (pack->full || (size_t)(pack->end - pack->at) < count) {
        pack->full = true;
        return;
    }
    memcpy(pack->at, bytes, count);
    pack->at += count;
}

static inline void gp_pack_number(struct gp_pack *pack, uint64_t value)
{
    if (pack->full || pack->end - pack->at < 10) {
        pack->full = true;
        return;
    }
    for (; value >= 128; value >>= 7)
        *pack->at++ = (uint8_t)(value | 128);
    *pack->at++ = (uint8_t)value;
}

static inline uint64_t gp_pack_fold(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static inline void gp_pack_signed(struct gp_pack *pack, int64_t value)
{
    gp_pack_number(pack, gp_pack_fold(value));
}

static inline void gp_pack_string(struct gp_pack *pack, const char *text, size_t length)
{
    gp_pack_number(pack, length);
    gp_pack_raw(pack, text, length);
}

struct gp_unpack {
    const uint8_t *at, *end;
    bool bad; /* read beyond the end, or a malformed number: every later read gives 0 */
};

static inline size_t gp_unpack_left(const struct gp_unpack *unpack)
{
    return (size_t)(unpack->end - unpack->at);
}

static inline uint64_t gp_unpack_number(struct gp_unpack *unpack)
{
    uint64_t value = 0;
    if (__builtin_expect(unpack->at < unpack->end && *unpack->at < 128, 1))
        return *unpack->at++;
    for (unsigned shift = 0; shift < 70 && unpack->at < unpack->end; shift += 7) {
        uint8_t byte = *unpack->at++;
        if (shift == 63 && byte > 1)
            break;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    unpack->bad = true;
    unpack->at = unpack->end;
    return 0;
}

static inline int64_t gp_unpack_signed(struct gp_unpack *unpack)
{
    uint64_t value = gp_unpack_number(unpack);
    return (int64_t)(value >> 1 ^ -(value & 1));
}

/* `count` bytes in place; NULL: fewer are left. */
static inline const uint8_t *gp_unpack_raw(struct gp_unpack *unpack, size_t count)
{
    if (unpack->bad || gp_unpack_left(unpack) < count) {
        unpack->bad = true;
        unpack->at = unpack->end;
        return NULL;
    }
    unpack->at += count;
    return unpack->at - count;
}

/* ==== checksums =================================================================================================== */
/* The checksum of a recording's blocks. */

/* CRC-32C (Castagnoli, as in iSCSI and ext4) of `count` bytes, continued from the checksum `before`
 * of the preceding bytes (0: none). */
uint32_t gp_file_crc32c(uint32_t before, const void *bytes, size_t count);

#endif
