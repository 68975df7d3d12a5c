/* SPDX-License-Identifier: MIT
 *
 * fakepython.c: exports what an interpreter exports by which its frames are found, and variables that the test sets.
 * FAKE_MINOR: of version 3; FAKE_LACKS: a bit for each function that it does not have; FAKE_MANY: many other symbols.
 */
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the callers look them up by name */
#ifndef FAKE_MINOR
#define FAKE_MINOR 12
#endif
#ifndef FAKE_LACKS
#define FAKE_LACKS 0
#endif
#define HAS(_bit) (!(FAKE_LACKS >> (_bit)&1))

void *fake_state, *fake_holder, *fake_newest, *fake_first;
int fake_finalizing;
unsigned fake_calls;

#if HAS(0)
void *PyGILState_GetThisThreadState(void)
{
    return fake_state;
}
#endif
#if HAS(1) && FAKE_MINOR >= 13
void *PyThreadState_GetUnchecked(void)
{
    return fake_holder;
}
#elif HAS(1)
void *_PyThreadState_UncheckedGet(void)
{
    return fake_holder;
}
#endif
#if HAS(2) && FAKE_MINOR >= 13
int Py_IsFinalizing(void)
{
    fake_calls++;
    return fake_finalizing;
}
#elif HAS(2)
int _Py_IsFinalizing(void)
{
    fake_calls++;
    return fake_finalizing;
}
#endif
#if HAS(3)
void *PyInterpreterState_Head(void)
{
    return fake_newest;
}
#endif
#if HAS(4)
void *PyInterpreterState_Main(void)
{
    return fake_first;
}
#endif
#if HAS(5)
long PyCode_Type[52];
#endif
#if HAS(6) && FAKE_MINOR >= 13
unsigned long _PyRuntime[96];
#endif
#if FAKE_MINOR >= 11
const unsigned long Py_Version = (3ul << 24) + ((unsigned long)FAKE_MINOR << 16) + 0xf0;
#endif
#if FAKE_MINOR >= 10
void Py_NewRef(void)
{
}
#endif

#ifdef FAKE_MANY
#define ONE(_name) int _name;
#define TEN(_name)                                                                                                     \
    ONE(_name##0)                                                                                                      \
    ONE(_name##1)                                                                                                      \
    ONE(_name##2) ONE(_name##3) ONE(_name##4) ONE(_name##5) ONE(_name##6) ONE(_name##7) ONE(_name##8) ONE(_name##9)
#define HUNDRED(_name)                                                                                                 \
    TEN(_name##0)                                                                                                      \
    TEN(_name##1)                                                                                                      \
    TEN(_name##2) TEN(_name##3) TEN(_name##4) TEN(_name##5) TEN(_name##6) TEN(_name##7) TEN(_name##8) TEN(_name##9)
HUNDRED(PyOther)
HUNDRED(_PyOther)
HUNDRED(PyMore)
#endif
