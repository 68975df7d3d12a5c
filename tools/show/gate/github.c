/* SPDX-License-Identifier: MIT
 *
 * github.c: broken findings as annotations of GitHub's workflows; see findings.h.
 */
#include <show/gate/findings.h>
#include <stdlib.h>
#include <string.h>

/* A workflow's command ends with its line; commas and colons end a property. */
static void github_text(FILE *out, const char *text, bool property)
{
    for (; text && *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '%' || byte == '\r' || byte == '\n' || (property && (byte == ',' || byte == ':')))
            fprintf(out, "%%%02X", byte);
        else
            fputc(byte, out);
    }
}

void gp_gate_annotate(FILE *out, const struct gp_findings *gate, const char *folder)
{
    size_t length = folder ? strlen(folder) : 0;
    for (uint32_t i = 0; i < gate->count; i++) {
        const struct gp_gate_finding *finding = &gate->findings[i];
        const char *file = finding->culprit.file;
        if (finding->ok)
            continue;
        char *sentence = gp_gate_sentence(finding);
        if (file && length && strncmp(file, folder, length) == 0 && file[length] == '/')
            file += length + 1;
        fputs("::error ", out);
        if (file) {
            fputs("file=", out);
            github_text(out, file, true);
            fprintf(out, ",line=%u,", finding->culprit.line ? finding->culprit.line : 1);
        }
        fputs("title=GPU memory::", out);
        github_text(out, sentence, false);
        fputc('\n', out);
        free(sentence);
    }
}
