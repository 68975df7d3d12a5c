/* SPDX-License-Identifier: MIT
 *
 * parse.h: parsers of option values: sizes (base/text.h), numbers, lists of process ids, devices.  They print
 * nothing and read nothing but their text.  Any thread.
 */
#ifndef GP_COMMON_PARSE_H
#define GP_COMMON_PARSE_H

#include <base/text.h>
#include <stdint.h>
#include <sys/types.h>

/* "350ms", "2.5s", "10us", "5min": a decimal number, a point allowed, and its unit ns, us, ms, s, min
 * or h.  0, -EINVAL, -ERANGE (more than 2^63 ns). */
int gp_parse_duration(const char *text, uint64_t *ns);
/* A whole decimal number in [low, high].  0, -EINVAL, -ERANGE. */
int gp_parse_number(const char *text, int64_t low, int64_t high, int64_t *value);
/* "12,34".  0 with *pids from malloc, -EINVAL, -ENOMEM. */
int gp_parse_pids(const char *text, pid_t **pids, int *count);
/* A device ordinal or "host" (GP_WIRE_HOST).  0, -EINVAL, -ERANGE. */
int gp_parse_device(const char *text, int *device);

#endif
