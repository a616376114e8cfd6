// Builds what the pages load, scripts and styles, into static/nura/built. What it writes is kept in the repository, so that
// running Nura needs no node. `--check` writes nothing and fails where the files there are not what the sources give.

import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const BUILT = join(HERE, "../static/nura/built");
const SCRIPTS = ["chat", "documents", "document", "settings", "passkeys", "theme", "markdown", "highlight", "katex"];
const STYLES = ["chat", "documents", "document", "settings", "narrow"];
const COPIED = { "htmx.js": "node_modules/htmx.org/dist/htmx.min.js" };
const LICENCES = {
  "htmx.org": "node_modules/htmx.org/LICENSE",
  "markdown-it": "node_modules/markdown-it/LICENSE",
  "entities": "node_modules/entities/LICENSE",
  "linkify-it": "node_modules/linkify-it/LICENSE",
  "mdurl": "node_modules/mdurl/LICENSE",
  "punycode.js": "node_modules/punycode.js/LICENSE-MIT.txt",
  "uc.micro": "node_modules/uc.micro/LICENSE.txt",
  "dompurify": "node_modules/dompurify/LICENSE",
  "highlight.js": "node_modules/highlight.js/LICENSE",
  "katex": "node_modules/katex/LICENSE",
};
const OPTIONS = {
  absWorkingDir: HERE,
  bundle: true,
  minify: true,
  charset: "utf8",
  legalComments: "none", // licenses.txt has them, whole
  write: false,
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
    external: ["./markdown.js", "./highlight.js", "./katex.js"], // shared by pages; loaded when the first code is seen
  });
  const styles = await build({
    ...OPTIONS,
    entryPoints: STYLES.map((name) => `css/${name}.css`),
    external: ["../fonts/*"],
  });
  const files = new Map();
  for (const { path, text } of [...scripts.outputFiles, ...styles.outputFiles]) files.set(basename(path), text);
  for (const [name, path] of Object.entries(COPIED)) files.set(name, await readFile(join(HERE, path), "utf8"));
  files.set("katex.css", await writeFormulaStyle());
  files.set("licenses.txt", await writeLicences());
  return files;
}

/** KaTeX's own style with the fonts of static/nura/fonts/katex, in the one format that every browser of today reads. */
async function writeFormulaStyle() {
  const style = await readFile(join(HERE, "node_modules/katex/dist/katex.min.css"), "utf8");
  const fonts = /url\(fonts\/([\w-]+\.woff2)\) ?format\("woff2"\)(?:, ?url\([^)]*\) ?format\("\w+"\))*/g;
  return style.replace(fonts, 'url(../fonts/katex/$1) format("woff2")');
}

/** The licences of all packages that the bundles hold. */
async function writeLicences() {
  const parts = ["These packages are part of the files in this folder.\n"];
  for (const [name, path] of Object.entries(LICENCES)) {
    const { version, license } = JSON.parse(await readFile(join(HERE, "node_modules", name, "package.json"), "utf8"));
    parts.push(`${"=".repeat(80)}\n${name} ${version} (${license})\n\n${(await readFile(join(HERE, path), "utf8")).trim()}\n`);
  }
  return parts.join("\n");
}

/** Names of files that are missing, differ or are left over. */
async function listDifferences(files) {
  const there = await readdir(BUILT).catch(() => []);
  const found = there.filter((name) => !files.has(name));
  for (const [name, text] of files) {
    const kept = await readFile(join(BUILT, name), "utf8").catch(() => null);
    if (kept !== text) found.push(name);
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
  for (const [name, text] of files) await writeFile(join(BUILT, name), text);
  for (const [name, text] of files) console.log(`${name}  ${(Buffer.byteLength(text) / 1000).toFixed(1)} kB`);
}
