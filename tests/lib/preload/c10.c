/* SPDX-License-Identifier: MIT
 *
 * c10.c: a stand-in for PyTorch's libc10_cuda.so and for the parts of the C++ library that it needs.  It writes into
 * c10_log what is called with which arguments, and calls c10_leave where C++ would throw.  With -DOLD the names have the
 * C++ library's std::string of before GCC 5; -DLACKS_TYPE and the like leave one name out,
 * and -DLACKS_ALL one of each error.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef LACKS_ALL
#define LACKS_MAKE_TEXT
#define LACKS_FAIL
#define LACKS_BAD_ALLOC
#endif

char c10_log[4096];
void (*c10_leave)(void);
static unsigned char object[1024];

static void say(const char *text)
{
    strncat(c10_log, text, sizeof(c10_log) - strlen(c10_log) - 1);
}

/* The table of the class of an allocator that is PyTorch's own, and an address in this library. */
void *c10_native_table[4];
void c10_address(void);
void c10_address(void)
{
}

#ifndef LACKS_ALLOCATOR
void *c10_allocator __asm__("_ZN3c104cuda20CUDACachingAllocator9allocatorE");
void c10_set_allocator(void *allocator);
void c10_set_allocator(void *allocator)
{
    c10_allocator = allocator;
}
#endif

struct location {
    const char *function, *file;
    uint32_t line;
};

#ifdef OLD
#define MAKE_ERROR "_ZN3c105ErrorC1ENS_14SourceLocationESs"
#define MAKE_TEXT  "_ZNSsC1EPKcRKSaIcE"
#define END_TEXT   "_ZNSsD1Ev"
#else
#define MAKE_ERROR "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define MAKE_TEXT  "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_"
#define END_TEXT   "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev"
#endif

#ifndef LACKS_MAKE_TEXT
void make_text(void *self, const char *text, const void *allocator) __asm__(MAKE_TEXT);
void make_text(void *self, const char *text, const void *allocator)
{
    memset(self, 0xee, 32);
    *(const char **)self = text;
    say(allocator ? "text; " : "text without allocator; ");
}
#endif

#ifndef LACKS_END_TEXT
void end_text(void *self) __asm__(END_TEXT);
void end_text(void *self)
{
    say(*(const char **)self ? "end of text; " : "end of no text; ");
}
#endif

#ifndef LACKS_MAKE_ERROR
void make_error(void *self, struct location where, void *text) __asm__(MAKE_ERROR);
void make_error(void *self, struct location where, void *text)
{
    char line[1024];
    snprintf(line, sizeof(line), "error at %s, %s, %u: %s; ", where.function, where.file, where.line,
             *(const char **)text);
    say(self == object ? line : "error elsewhere; ");
}
#endif

#ifndef LACKS_TYPE
void *type[2] __asm__("_ZTIN3c1016OutOfMemoryErrorE");
#define TYPE type
#else
#define TYPE NULL
#endif

#ifndef LACKS_TABLE
void *table[6] __asm__("_ZTVN3c1016OutOfMemoryErrorE") = {(void *)1, (void *)2, (void *)3, (void *)4};
#define TABLE (table + 2)
#else
#define TABLE ((void **)NULL)
#endif

#ifndef LACKS_ALLOCATE
void *allocate(size_t bytes) __asm__("__cxa_allocate_exception");
void *allocate(size_t bytes)
{
    memset(object, 0xff, sizeof(object));
    say(bytes == sizeof(object) ? "object; " : "object of another size; ");
    return object;
}
#endif

#ifndef LACKS_RAISE
void raise_it(void *what, void *of, void *destructor) __asm__("__cxa_throw");
void raise_it(void *what, void *of, void *destructor)
{
    unsigned set = 0;
    for (unsigned i = sizeof(void *); i < sizeof(object); i++)
        set += object[i] != 0;
    say(what != object              ? "throw of another object"
        : of != (void *)TYPE        ? "throw of another type"
        : destructor != (void *)3   ? "throw with another destructor"
        : *(void **)object != TABLE ? "throw of another class"
        : set                       ? "throw of an object with contents"
                                    : "throw");
    c10_leave();
}
#endif

#ifndef LACKS_FAIL
void fail(const char *function, const char *file, uint32_t at,
          const char *text) __asm__("_ZN3c106detail14torchCheckFailEPKcS2_jS2_");
void fail(const char *function, const char *file, uint32_t at, const char *text)
{
    char line[1024];
    snprintf(line, sizeof(line), "fail at %s, %s, %u: %s", function, file, at, text);
    say(line);
    c10_leave();
}
#endif

#ifndef LACKS_BAD_ALLOC
void bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");
void bad_alloc(void)
{
    say("bad_alloc");
    c10_leave();
}
#endif
