/* SPDX-License-Identifier: MIT
 * no_gauges.h: put before every source of cache_bare.so: a gate is a lock and no more. */
#ifndef GP_TEST_BENCH_PEER_NO_GAUGES_H
#define GP_TEST_BENCH_PEER_NO_GAUGES_H

#include "base/counter.h"

#define gp_gate_add(_set, _gate, _amounts) ((void)(_set), (void)(_amounts), true)
#define gp_gate_sub(_gate, _amounts)       ((void)(_amounts))

#endif
