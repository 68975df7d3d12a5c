/* SPDX-License-Identifier: MIT
 *
 * values.c: single values for all writers; see values.h.
 */
#include <base/compiler.h>
#include <common/values.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *gp_size_text(char text[GP_SIZE_TEXT], int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double value = (double)bytes;
    /* From 1023.95 on, "%.1f" would print "1024.0": use the next unit. */
    while (value >= 1023.95 && unit + 1 < GP_COUNT(units)) {
        value /= 1024;
        unit++;
    }
    if (bytes < 0)
        snprintf(text, GP_SIZE_TEXT, "-");
    else if (unit == 0)
        snprintf(text, GP_SIZE_TEXT, "%" PRId64 " B", bytes);
    else
        snprintf(text, GP_SIZE_TEXT,
                 value < 9.9995   ? "%.3f %s"
                 : value < 99.995 ? "%.2f %s"
                                  : "%.1f %s",
                 value, units[unit]);
    return text;
}

const char *gp_tone(FILE *out, const char *code)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(out)) && !(no_color && no_color[0]) && term && strcmp(term, "dumb") != 0 ? code : "";
}

const char *gp_seconds_text(char text[GP_SIZE_TEXT], double seconds)
{
    static const struct {
        double from, by;
        const char *unit;
    } units[] = {{172800, 86400, "days"}, {7200, 3600, "h"},  {120, 60, "min"}, {1, 1, "s"},
                 {1e-3, 1e-3, "ms"},      {1e-6, 1e-6, "us"}, {0, 1e-9, "ns"}};
    size_t i = 0;
    if (seconds <= 0) {
        snprintf(text, GP_SIZE_TEXT, seconds < 0 ? "-" : "0 s");
        return text;
    }
    while (seconds < units[i].from)
        i++;
    double value = seconds / units[i].by;
    if (value >= 1e7)
        snprintf(text, GP_SIZE_TEXT, "years");
    else
        snprintf(text, GP_SIZE_TEXT, value < 9.95 && i < 6 ? "%.1f %s" : "%.0f %s", value, units[i].unit);
    return text;
}

json_t *gp_json_known(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

json_t *gp_json_known_seconds(double seconds)
{
    return seconds < 0 ? json_null() : json_real(seconds);
}

json_t *gp_json_address(uint64_t address)
{
    char text[24];
    snprintf(text, sizeof(text), "0x%" PRIx64, address);
    return json_string(text);
}

json_t *gp_json_text(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}

json_t *gp_json_words(const char *text)
{
    json_t *value = json_string(text);
    return value ? value : json_string("?");
}

int gp_json_print(FILE *out, json_t *object, bool line)
{
    if (!object)
        return -ENOMEM;
    int rc = json_dumpf(object, out, line ? JSON_COMPACT : JSON_INDENT(1));
    json_decref(object);
    if (rc == 0 && putc('\n', out) != EOF && fflush(out) == 0)
        return 0;
    return -(errno ? errno : EIO);
}
