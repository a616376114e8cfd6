// Builds what the pages load, scripts and styles, into static/nura/built. What it writes is kept in the repository, so that
// running Nura needs no node. `--check` writes nothing and fails where the files there are not what the sources give.

import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const BUILT = join(HERE, "../static/nura/built");
const SCRIPTS = ["chat", "documents", "document", "settings", "team", "passkeys", "theme", "markdown", "highlight", "katex", "pdf"];
const STYLES = ["chat", "documents", "document", "settings", "team", "narrow", "administration"];
const PDFJS = "node_modules/pdfjs-dist";
const COPIED = {
  "htmx.js": "node_modules/htmx.org/dist/htmx.min.js",
  "pdf.worker.js": `${PDFJS}/legacy/build/pdf.worker.min.mjs`,
  "pdfjs/wasm/jbig2_nowasm_fallback.js": `${PDFJS}/wasm/jbig2_nowasm_fallback.js`,
  "pdfjs/wasm/openjpeg_nowasm_fallback.js": `${PDFJS}/wasm/openjpeg_nowasm_fallback.js`,
};
// What PDFs lean on without bringing it: fonts that every reader has, and the characters behind Korean codes.
const COPIED_FOLDERS = {
  "pdfjs/cmaps": { from: `${PDFJS}/cmaps`, ending: ".bcmap" },
  "pdfjs/fonts": { from: `${PDFJS}/standard_fonts`, ending: "" },
};
// Packages that are copied, not bundled; those of bundles are found by what esbuild took from them.
const COPIED_PACKAGES = ["htmx.org", "pdfjs-dist"];
const FURTHER_LICENCES = {
  "pdfjs/cmaps": [`${PDFJS}/cmaps/LICENSE`],
  "pdfjs/fonts": [`${PDFJS}/standard_fonts/LICENSE_FOXIT`, `${PDFJS}/standard_fonts/LICENSE_LIBERATION`],
  "pdfjs/wasm": ["JBIG2", "OPENJPEG", "PDFJS_JBIG2", "PDFJS_OPENJPEG"].map((name) => `${PDFJS}/wasm/LICENSE_${name}`),
};
// Runs in a frame without an origin, which may load no module: a script of its own, whole.
const FRAMED = "diagram";
// Layouts by ELK are under a licence that asks more of those who pass it on, and formulas have KaTeX of their own.
const LEFT_OUT_OF_DIAGRAMS = { "elkjs/lib/elk.bundled.js": "./js/absent.js", katex: "./js/absent.js" };
const OPTIONS = {
  absWorkingDir: HERE,
  bundle: true,
  minify: true,
  charset: "utf8",
  legalComments: "none", // licenses.txt has them, whole
  write: false,
  metafile: true,
  outdir: BUILT,
  logLevel: "warning",
};

/** Every file of static/nura/built by its name. */
async function buildFiles() {
  const scripts = await build({
    ...OPTIONS,
    entryPoints: SCRIPTS.map((name) => `js/${name}.js`),
    format: "esm",
    target: "es2022",
    external: ["./markdown.js", "./highlight.js", "./katex.js", "./pdf.js"], // shared by pages; all but the first are loaded when needed
  });
  const framed = await build({ ...OPTIONS, entryPoints: [`js/${FRAMED}.js`], format: "iife", target: "es2022", alias: LEFT_OUT_OF_DIAGRAMS });
  const styles = await build({
    ...OPTIONS,
    entryPoints: STYLES.map((name) => `css/${name}.css`),
    external: ["../fonts/*"],
  });
  const files = new Map();
  for (const { path, text } of [...scripts.outputFiles, ...framed.outputFiles, ...styles.outputFiles]) files.set(basename(path), keepImports(text));
  for (const [name, path] of Object.entries(COPIED)) files.set(name, await readFile(join(HERE, path)));
  for (const [folder, { from, ending }] of Object.entries(COPIED_FOLDERS)) {
    for (const name of (await readdir(join(HERE, from))).sort()) {
      if (name.endsWith(ending) && !name.startsWith("LICENSE")) files.set(`${folder}/${name}`, await readFile(join(HERE, from, name)));
    }
  }
  files.set("katex.css", await writeFormulaStyle());
  files.set("licenses.txt", await writeLicences([...listPackages(scripts), ...listPackages(framed), ...COPIED_PACKAGES]));
  return files;
}

/** KaTeX's own style with the fonts of static/nura/fonts/katex, in the one format that every browser of today reads. */
async function writeFormulaStyle() {
  const style = await readFile(join(HERE, "node_modules/katex/dist/katex.min.css"), "utf8");
  const fonts = /url\(fonts\/([\w-]+\.woff2)\) ?format\("woff2"\)(?:, ?url\([^)]*\) ?format\("\w+"\))*/g;
  return style.replace(fonts, 'url(../fonts/katex/$1) format("woff2")');
}

/** An import whose address is made at run time, which hashed static files would take for the name of a file. */
function keepImports(text) {
  return text.replaceAll('import("${', 'import ("${');
}

/** The packages of which a build holds something. */
function listPackages({ metafile }) {
  const taken = Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs).filter((path) => inputs[path].bytesInOutput > 0));
  return taken.map((path) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean);
}

/** The licences of packages; the terms that it names, of one that brings no text of them. */
async function writeLicences(names) {
  const parts = ["These packages are part of the files in this folder.\n"];
  for (const name of [...new Set(names)].sort()) {
    const folder = join(HERE, "node_modules", name);
    const { version, license, author } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((one) => /^licen[cs]e(-mit)?(\.(md|txt))?$/i.test(one));
    const terms = file ? await readFile(join(folder, file), "utf8") : `${license}. ${author?.name ?? author ?? ""}`;
    parts.push(`${"=".repeat(80)}\n${name} ${version}${license ? ` (${license})` : ""}\n\n${terms.trim()}\n`);
  }
  for (const [name, paths] of Object.entries(FURTHER_LICENCES)) {
    for (const path of paths) parts.push(`${"=".repeat(80)}\n${name}\n\n${(await readFile(join(HERE, path), "utf8")).trim()}\n`);
  }
  return parts.join("\n");
}

/** Names of files that are missing, differ or are left over. */
async function listDifferences(files) {
  const there = await readdir(BUILT, { recursive: true, withFileTypes: true }).catch(() => []);
  const names = there.filter((one) => one.isFile()).map((one) => relative(BUILT, join(one.parentPath, one.name)));
  const found = names.filter((name) => !files.has(name));
  for (const [name, content] of files) {
    const kept = await readFile(join(BUILT, name)).catch(() => null);
    if (!kept?.equals(Buffer.from(content))) found.push(name);
  }
  return found;
}

const files = await buildFiles();
if (process.argv.includes("--check")) {
  const different = await listDifferences(files);
  if (different.length) {
    console.error(`static/nura/built is not what the sources give: ${different.join(", ")}. Run: make front`);
    process.exitCode = 1;
  }
} else {
  await rm(BUILT, { recursive: true, force: true });
  await mkdir(BUILT, { recursive: true });
  for (const [name, content] of files) {
    await mkdir(dirname(join(BUILT, name)), { recursive: true });
    await writeFile(join(BUILT, name), content);
    if (!name.includes("/")) console.log(`${name}  ${(Buffer.byteLength(content) / 1000).toFixed(1)} kB`);
  }
}
