// SPDX-License-Identifier: MIT
// Bundles src/ and the libraries into one page: node build.mjs [PAGE NOTICE].
// `make` embeds dist/report.html, so a build needs no npm.  tests/lint/check-report rebuilds it and compares.
import { build } from "esbuild";
import { readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { TABLE } from "./src/colours.js";

const here = dirname(fileURLToPath(import.meta.url));
const [out = join(here, "dist/report.html"), noticeOut = join(here, "../../../../NOTICE")] = process.argv.slice(2);

const result = await build({
    absWorkingDir: here, entryPoints: ["src/main.js"], bundle: true, minify: true, write: false, metafile: true,
    format: "iife", target: ["es2022"], outdir: "out", legalComments: "none", charset: "utf8", logLevel: "warning",
});
const file = (end) => result.outputFiles.find((f) => f.path.endsWith(end)).text.trim();

// The licences of the packages that are in the bundle, and of no others.
const packages = [...new Set(Object.keys(result.metafile.inputs).map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1]).filter(Boolean))].sort();
const texts = new Map();
for (const name of packages) {
    const folder = join(here, "node_modules", name), about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const text = readFileSync(join(folder, "LICENSE"), "utf8").trim();
    texts.set(text, [...(texts.get(text) || []), `${name} ${about.version} (${about.license})`]);
}
const notice = [...texts].map(([text, names]) => `${names.join(", ")}\n\n${text}`).join(`\n\n${"-".repeat(80)}\n\n`);

const variables = (side) => Object.entries(TABLE).map(([name, pair]) => `--${name}:${pair[side]}`).join(";");
const theme = `:root{color-scheme:light;${variables(0)}}:root[data-theme=dark]{color-scheme:dark;${variables(1)}}@media (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;${variables(1)}}}`;
const styles = await build({ absWorkingDir: here, entryPoints: ["src/report.css"], minify: true, write: false, logLevel: "warning", outdir: "out" });
const uplot = readFileSync(join(here, "node_modules/uplot/dist/uPlot.min.css"), "utf8").trim();

// The script must not contain text that the HTML parser takes for markup, nor a comment text that looks like its end.
const js = file(".js").replace(/<\/script/gi, "<\\/script").replace(/<!--/g, "<\\!--");
const parts = { NOTICE: notice.replace(/--+>/g, "- ->").replace(/--/g, "- -"), CSS: theme + uplot + file(".css") + styles.outputFiles[0].text.trim(), JS: js };
const page = readFileSync(join(here, "template.html"), "utf8").replace(/@(NOTICE|CSS|JS)@/g, (_, name) => parts[name]);
mkdirSync(dirname(out), { recursive: true });
writeFileSync(out, page);
// The command has these (third-party/nanoarrow); the licence's text is above, d3-flame-graph's.
const arrow = `nanoarrow 0.8.0 (Apache-2.0), flatcc fd3c4ae5 (Apache-2.0)

The command contains these two works (third-party/nanoarrow), under the Apache License above.

Apache Arrow nanoarrow
Copyright 2023 The Apache Software Foundation

This product includes software developed at
The Apache Software Foundation (http://www.apache.org/).

flatcc
Copyright 2015-2023 Mikkel F. Jørgensen, dvide.com`;
writeFileSync(noticeOut, `gpuprof is under the MIT licence (LICENSE).  The page that \`gpuprof report -o\` writes contains these works:\n\n${notice}\n\n${"-".repeat(80)}\n\n${arrow}\n`);
