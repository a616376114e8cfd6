// Checks of a file before it is sent. The server checks everything again.

const BEGINNING_BYTES = 1024;
const PACKAGE = /^(PK|ÐÏ)/; // a ZIP, or the OLE container (D0 CF) of an encrypted one
const BEGINNINGS = { pdf: /%PDF-/, docx: PACKAGE, hwpx: PACKAGE };

function getExtension(name) {
  const dot = name.lastIndexOf(".");
  return dot > 0 ? name.slice(dot + 1).toLowerCase() : "";
}

/**
 * The code of what is wrong with name or size, "" if nothing. A name without an extension is accepted.
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
 * `type_mismatch` if the first bytes contradict the name, else "". If they cannot be read, sending fails anyway.
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
