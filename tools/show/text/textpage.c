/* SPDX-License-Identifier: MIT
 * textpage.c: text of analyses in a terminal's width; see textpage.h. */
#include <analyze/report.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <show/text/write.h>
#include <stdio.h>
#include <symbol/symbol.h>

#include <string.h>

/* A shorter piece of function, file and line is of no use. */
#define GP_PAGE_NAME 24

int gp_text_width(const struct gp_text_page *page)
{
    return page->width < 40 ? 40 : page->width > 200 ? 200 : page->width;
}

const char *gp_text_on(const struct gp_text_page *page, const char *code)
{
    return page->colour ? code : "";
}

/* Counts characters, not cells, because names of functions and files hardly ever have wide characters. */
void gp_text_cut(const struct gp_text_page *page, const char *text, int columns)
{
    int letters = 0, keep = 0;
    size_t at = 0, cut = 0;
    columns = columns < 8 ? 8 : columns;
    for (; text[at]; at++) {
        if (((unsigned char)text[at] & 0xc0) == 0x80)
            continue;
        if (letters++ == columns - 3) {
            cut = at;
            keep = 1;
        }
    }
    if (letters <= columns || !keep || page->whole)
        fputs(text, page->out);
    else
        fprintf(page->out, "%.*s...", (int)cut, text);
}

int gp_text_room(const struct gp_text_page *page, int used)
{
    int left = gp_text_width(page) - used;
    if (left >= GP_PAGE_NAME)
        return left;
    fputs("\n       ", page->out);
    return gp_text_width(page) - 7;
}

void gp_text_phrases(const struct gp_text_page *page, const char *text, int used)
{
    const int indent = 5;
    for (size_t bytes; *text; text += bytes) {
        bytes = strcspn(text, ",;");
        bytes += text[bytes] != '\0';
        if (!page->whole && used > indent && used + (int)bytes > gp_text_width(page)) {
            fprintf(page->out, "\n%*s", indent, "");
            used = indent;
            const size_t blank = *text == ' '; /* bytes counts it too */
            text += blank;
            bytes -= blank;
        }
        fprintf(page->out, "%.*s", (int)bytes, text);
        used += (int)bytes;
    }
}

void gp_text_bar(const struct gp_text_page *page, double share)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    unsigned parts = (unsigned)(share * GP_PAGE_BAR * 8 + 0.5), used = 0;
    parts = parts == 0 && share > 0 ? 1 : parts;
    fputs(gp_text_on(page, GP_BLUE), page->out);
    for (; used < parts / 8; used++)
        fputs(page->utf8 ? "█" : "#", page->out);
    if (used < GP_PAGE_BAR) {
        fputs(page->utf8 ? eighths[parts % 8] : parts % 8 >= 4 ? "#" : " ", page->out);
        used++;
    }
    fputs(gp_text_on(page, GP_OFF), page->out);
    fprintf(page->out, "%*s", (int)(GP_PAGE_BAR - used), "");
}

void gp_text_heading(const struct gp_text_page *page, const char *text, bool blank)
{
    fprintf(page->out, "%s%s%s%s\n", blank ? "\n" : "", gp_text_on(page, GP_BOLD), text, gp_text_on(page, GP_OFF));
}

void gp_text_spark(const struct gp_text_page *page, const int64_t *values, uint32_t count, unsigned columns)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char ascii[] = "_.-:=+*#";
    int64_t high = 1;
    for (uint32_t i = 0; i < count; i++)
        high = values[i] > high ? values[i] : high;
    columns = columns < count ? columns : count;
    for (unsigned i = 0; i < columns; i++) {
        int64_t value = values[(uint64_t)i * count / columns];
        unsigned level = value <= 0 ? 0 : (unsigned)((double)value / (double)high * 7.999);
        if (page->utf8)
            fputs(bars[level], page->out);
        else
            fputc(ascii[level], page->out);
    }
}

const char *gp_text_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

void gp_text_site(const struct gp_text_page *page, const struct gp_report *report, uint32_t site,
                  const struct gp_frame_text *caller, const struct gp_frame_text *callee, int used)
{
    char label[256];
    size_t room = page->whole ? sizeof(label) : (size_t)gp_text_room(page, used) + 1;
    size_t large =
        gp_symbols_line(report->symbols, site, caller, callee, label, room < sizeof(label) ? room : sizeof(label));
    fprintf(page->out, "%s%.*s%s%s%s%s", gp_text_on(page, GP_BOLD), (int)large, label, gp_text_on(page, GP_OFF),
            gp_text_on(page, GP_DIM), label + large, gp_text_on(page, GP_OFF));
}
