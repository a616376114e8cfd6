// What is wrong with a file, as far as it shows before the file is sent. The server looks at all of it.

const BEGINNING_BYTES = 1024;
const PACKAGE = /^(PK|ÐÏ)/; // a ZIP, or the container (D0 CF) of one that is locked
const BEGINNINGS = { pdf: /%PDF-/, docx: PACKAGE, hwpx: PACKAGE };

function getExtension(name) {
  const dot = name.lastIndexOf(".");
  return dot > 0 ? name.slice(dot + 1).toLowerCase() : "";
}

/**
 * What name and size tell: the code of the fault, "" for none. A name without an extension says nothing.
 *
 * @param {{name: string, size: number}} file
 * @param {{accept: string, limitMb: number}} limits `accept` as a file input has it
 */
export function findFault({ name, size }, { accept, limitMb }) {
  const extension = getExtension(name);
  if (extension && !accept.split(",").includes(`.${extension}`)) return "unsupported_type";
  if (size > limitMb * 1024 * 1024) return "too_large";
  return size ? "" : "empty_file";
}

/**
 * What the first bytes tell against the name. Bytes that cannot be read tell nothing: sending fails by itself.
 *
 * @param {File | Blob & {name: string}} file
 */
export async function findForeignBeginning(file) {
  const expected = BEGINNINGS[getExtension(file.name)];
  if (!expected) return "";
  const bytes = await file.slice(0, BEGINNING_BYTES).arrayBuffer().catch(() => null);
  const isForeign = bytes && !expected.test(new TextDecoder("latin1").decode(bytes));
  return isForeign ? "type_mismatch" : "";
}
