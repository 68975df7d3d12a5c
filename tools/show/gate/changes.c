/* SPDX-License-Identifier: MIT
 *
 * changes.c: prints rows that grew or shrank from one recording to another, as a table and as
 * JSON; see growth.h.
 */
#include <show/gate/growth.h>
#include <show/text/write.h>

/* Most rows that grew, and that shrank, in a table. */
#define GP_GATE_ROWS 40u

static const char *change_text(char text[GP_SIZE_TEXT + 1], int64_t by)
{
    char size[GP_SIZE_TEXT];
    if (!by)
        return "same";
    snprintf(text, GP_SIZE_TEXT + 1, "%c%s", by > 0 ? '+' : '-', gp_size_text(size, by < 0 ? -by : by));
    return text;
}

static bool change_differs(const struct gp_gate_change *row)
{
    return row->own_bytes[0] != row->own_bytes[1] || row->peak_bytes[0] != row->peak_bytes[1] ||
           row->live_bytes[0] != row->live_bytes[1];
}

void gp_gate_changes_print(FILE *out, const struct gp_gate_changes *changes)
{
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], by[GP_SIZE_TEXT + 1], peak[GP_SIZE_TEXT + 1], end[GP_SIZE_TEXT + 1];
    uint32_t differ = 0, shown = 0;
    for (uint32_t i = 0; i < changes->count; i++)
        differ += change_differs(&changes->rows[i]);
    fprintf(out, "at the peak: %s, then %s (%s); %u of %u %ss differ%s\n", gp_size_text(a, changes->peak_bytes[0]),
            gp_size_text(b, changes->peak_bytes[1]),
            change_text(by, gp_gate_minus(changes->peak_bytes[1], changes->peak_bytes[0])), differ, changes->count,
            gp_gate_by_name(changes->by), differ ? "\n" : "");
    if (differ)
        fprintf(out, "  %11s %10s %10s %11s %11s  %s\n", "MOST", "BEFORE", "AFTER", "AT PEAK", "AT THE END", "WHERE");
    for (uint32_t i = 0; i < changes->count; i++) {
        const struct gp_gate_change *row = &changes->rows[i];
        if (!change_differs(row) || (shown >= GP_GATE_ROWS && i + GP_GATE_ROWS < changes->count))
            continue;
        shown++;
        fprintf(out, "  %11s %10s %10s %11s %11s  %s\n",
                change_text(by, gp_gate_minus(row->own_bytes[1], row->own_bytes[0])),
                gp_size_text(a, row->own_bytes[0]), gp_size_text(b, row->own_bytes[1]),
                change_text(peak, gp_gate_minus(row->peak_bytes[1], row->peak_bytes[0])),
                change_text(end, gp_gate_minus(row->live_bytes[1], row->live_bytes[0])),
                row->words ? row->words : row->label);
    }
    if (shown < differ)
        fprintf(out, "  %u more: use --json to list them\n", differ - shown);
}

json_t *gp_gate_changes_json(const struct gp_gate_changes *changes)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < changes->count; i++) {
        const struct gp_gate_change *row = &changes->rows[i];
        json_array_append_new(
            rows, json_pack("{s:s,s:o,s:o,s:o,s:o,s:[I,I],s:[I,I],s:[I,I]}", "name", row->label ? row->label : "",
                            "function", gp_json_text(row->place.function), "file", gp_json_text(row->place.file),
                            "line", row->place.line ? json_integer(row->place.line) : json_null(), "operation",
                            gp_json_text(row->operation), "most_bytes", (json_int_t)row->own_bytes[0],
                            (json_int_t)row->own_bytes[1], "at_peak_bytes", (json_int_t)row->peak_bytes[0],
                            (json_int_t)row->peak_bytes[1], "live_bytes", (json_int_t)row->live_bytes[0],
                            (json_int_t)row->live_bytes[1]));
    }
    return rows;
}
