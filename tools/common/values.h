/* SPDX-License-Identifier: MIT
 *
 * values.h: single values as people read them, and as JSON.  JSON functions return new references, and
 * NULL when memory is out.
 */
#ifndef GP_COMMON_VALUES_H
#define GP_COMMON_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define GP_SIZE_TEXT 24

/* "1.500 GiB", "512 B": four significant digits, "1023.9 MiB" at most.  Negative: "-" (unknown). */
const char *gp_size_text(char text[GP_SIZE_TEXT], int64_t bytes);

#define GP_BOLD   "\033[1m"
#define GP_DIM    "\033[2m"
#define GP_RED    "\033[31m"
#define GP_GREEN  "\033[32m"
#define GP_YELLOW "\033[33m"
#define GP_BLUE   "\033[34m"
#define GP_OFF    "\033[0m"
/* The escape sequence, or nothing where the stream is no terminal that has colours, or NO_COLOR is set. */
const char *gp_tone(FILE *out, const char *code);

/* "350 ms", "2.5 s", "3.0 h"; negative: "-" (unknown). */
const char *gp_seconds_text(char text[GP_SIZE_TEXT], double seconds);

/* The integer; null if it is negative (unknown). */
json_t *gp_json_known(int64_t value);
/* Likewise. */
json_t *gp_json_known_seconds(double seconds);
/* "0x7f..." */
json_t *gp_json_address(uint64_t address);
/* The string; null if it is NULL or empty. */
json_t *gp_json_text(const char *text);
/* The string; "?" if it is not UTF-8, as a name in a recording may be. */
json_t *gp_json_words(const char *text);
/* Prints and frees the object; indented unless `line`.  0, -ENOMEM (object was NULL), or -errno of
 * the stream. */
int gp_json_print(FILE *out, json_t *object, bool line);

#endif
