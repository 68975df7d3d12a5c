/* SPDX-License-Identifier: MIT
 *
 * junit.c: findings as JUnit's XML; see findings.h.
 */
#include <limits.h>
#include <show/gate/findings.h>
#include <stdlib.h>

static void xml_text(FILE *out, const char *text)
{
    for (; text && *text; text++) {
        static const char *const names[UCHAR_MAX + 1] = {
            ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;"};
        const char *named = names[(unsigned char)*text];
        if (named)
            fputs(named, out);
        else
            fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
    }
}

/* The attributes are those that the Jenkins xUnit plugin's junit-10.xsd allows, as pytest's xunit2
 * keeps to it: a case has no file and no line, so the failure's text has them. */
void gp_gate_junit(FILE *out, const struct gp_findings *gate)
{
    uint32_t broken = 0;
    for (uint32_t i = 0; i < gate->count; i++)
        broken += !gate->findings[i].ok;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<testsuites tests=\"%u\" failures=\"%u\">\n"
            "  <testsuite name=\"gpuprof\" tests=\"%u\" failures=\"%u\" errors=\"0\" skipped=\"0\">\n",
            gate->count, broken, gate->count, broken);
    for (uint32_t i = 0; i < gate->count; i++) {
        const struct gp_gate_finding *finding = &gate->findings[i];
        char *sentence = gp_gate_sentence(finding);
        fputs("    <testcase classname=\"gpuprof.", out);
        xml_text(out, finding->name);
        fputs("\" name=\"", out);
        xml_text(out, finding->what);
        if (finding->rank >= 0)
            fprintf(out, " of rank %d", finding->rank);
        if (finding->ok) {
            fputs("\"/>\n", out);
        } else {
            fputs("\">\n      <failure type=\"memory\" message=\"", out);
            xml_text(out, sentence);
            fputs("\">", out);
            if (finding->culprit.file) {
                xml_text(out, finding->culprit.file);
                fprintf(out, ":%u", finding->culprit.line);
            }
            fputs("</failure>\n    </testcase>\n", out);
        }
        free(sentence);
    }
    fputs("  </testsuite>\n</testsuites>\n", out);
}
