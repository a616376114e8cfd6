// Files of whole folders: all that lie below them, without those that cannot be read.

const HIDDEN = /^\./;

/** What was dropped: {files, skipped}. Files dropped by themselves are all taken; of folders, those of a kind in `accept`. */
export async function droppedFiles(transfer, accept) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  // The entries are gone as soon as the event has ended: they are taken before anything is awaited.
  const folders = items.map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry?.isDirectory);
  const isFile = (item) => !item.webkitGetAsEntry?.()?.isDirectory;
  const single = items.filter(isFile).map((item) => item.getAsFile());
  const found = await Promise.all(folders.map(filesBelow));
  const { files, skipped } = readable(found.flat(), accept);
  return { files: [...single.filter(Boolean), ...files], skipped };
}

/** The files of a folder that can be read, and how many others there are; hidden ones do not count. */
export function readable(files, accept) {
  const endings = accept.split(",").map((ending) => ending.trim());
  const shown = files.filter((file) => !HIDDEN.test(file.name));
  const kept = shown.filter((file) => endings.some((ending) => file.name.toLowerCase().endsWith(ending)));
  return { files: kept, skipped: shown.length - kept.length };
}

async function filesBelow(folder) {
  const entries = await entriesOf(folder.createReader());
  const found = await Promise.all(entries.map((entry) => (entry.isDirectory ? filesBelow(entry) : fileOf(entry))));
  return found.flat().filter(Boolean);
}

/** A reader gives a hundred at a time, and nothing at the end. */
async function entriesOf(reader) {
  const found = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject)).catch(() => []);
    if (!some.length) return found;
    found.push(...some);
  }
}

/** A file that is gone or locked by now is left out, as if it had not been there. */
function fileOf(entry) {
  return new Promise((resolve) => entry.file(resolve, () => resolve(null)));
}
