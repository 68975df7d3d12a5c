/* SPDX-License-Identifier: MIT
 *
 * each.h: what to do with the parameters of a row of hooks.def, which are (type, name) pairs:
 * GP_EACH(macro, pairs...) gives macro(type, name) for each, GP_EACH_LIST the same with commas between.
 * Up to 8: no row has more.
 */
#ifndef GP_SOURCE_EACH_H
#define GP_SOURCE_EACH_H

#define GP_EACH_COUNT_(_1, _2, _3, _4, _5, _6, _7, _8, _n, ...) _n
#define GP_EACH_COUNT(...)                                      GP_EACH_COUNT_(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define GP_EACH_JOIN_(_a, _b)                                   _a##_b
#define GP_EACH_JOIN(_a, _b)                                    GP_EACH_JOIN_(_a, _b)
#define GP_EACH_CALL(_m, _pair)                                 _m _pair

#define GP_EACH_1(_m, _sep, _p)      GP_EACH_CALL(_m, _p)
#define GP_EACH_2(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_1(_m, _sep, __VA_ARGS__)
#define GP_EACH_3(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_2(_m, _sep, __VA_ARGS__)
#define GP_EACH_4(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_3(_m, _sep, __VA_ARGS__)
#define GP_EACH_5(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_4(_m, _sep, __VA_ARGS__)
#define GP_EACH_6(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_5(_m, _sep, __VA_ARGS__)
#define GP_EACH_7(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_6(_m, _sep, __VA_ARGS__)
#define GP_EACH_8(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_7(_m, _sep, __VA_ARGS__)

#define GP_EACH_NOTHING()
#define GP_EACH_COMMA()       ,
#define GP_EACH(_m, ...)      GP_EACH_JOIN(GP_EACH_, GP_EACH_COUNT(__VA_ARGS__))(_m, GP_EACH_NOTHING, __VA_ARGS__)
#define GP_EACH_LIST(_m, ...) GP_EACH_JOIN(GP_EACH_, GP_EACH_COUNT(__VA_ARGS__))(_m, GP_EACH_COMMA, __VA_ARGS__)

#endif
