/* SPDX-License-Identifier: MIT
 *
 * count.h: how often a bench repeats. `make check` runs every bench built with hardly any repetitions
 * (tests/tiny/, run by bench/tiny.sh), only to see that it still works.
 */
#ifndef GP_TEST_BENCH_COUNT_H
#define GP_TEST_BENCH_COUNT_H

#ifdef BENCH_TINY
#define BENCH_COUNT(_full, _tiny) (_tiny)
#else
#define BENCH_COUNT(_full, _tiny) (_full)
#endif

#endif
