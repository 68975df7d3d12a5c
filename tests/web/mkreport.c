/* SPDX-License-Identifier: MIT
 * mkreport.c: makes the page of a document for tests/web/run.py: mkreport DOCUMENT.json
 * REPORT.html. */
#include <show/page/html.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    json_error_t error;
    char why[256];
    if (argc != 3)
        return fprintf(stderr, "usage: mkreport DOCUMENT.json REPORT.html\n"), 2;
    json_t *document = json_load_file(argv[1], JSON_ALLOW_NUL, &error);
    if (!document)
        return fprintf(stderr, "mkreport: %s: line %d: %s\n", argv[1], error.line, error.text), 1;
    int err = gp_html_report(argv[2], document, why, sizeof(why));
    if (err)
        fprintf(stderr, "mkreport: %s\n", why);
    json_decref(document);
    return err ? 1 : 0;
}
