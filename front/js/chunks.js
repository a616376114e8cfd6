// Documents and their chunks, fetched once a page.

import { get, getText } from "./api.js";

const MOST = 200;
const kept = new Map();

/** The answer to `path`, asked once; failures are asked again. */
function once(path) {
  if (!kept.has(path)) {
    if (kept.size > MOST) kept.clear();
    const asked = get(path);
    kept.set(path, asked);
    asked.catch(() => kept.delete(path));
  }
  return kept.get(path);
}

/** The document was read anew. */
export const forgetChunks = () => kept.clear();

export const fetchDocument = (id) => once(`/documents/${id}`);

/** The whole text of an old version, whose chunks are gone. */
export const fetchOldText = (id, version) => getText(`/documents/${id}/text?version=${version}`);

/** The passage as it was shown, whole: it outlives its document. */
export async function fetchSnapshot({ message_id: id, chunk_id, content_preview }) {
  const shown = id ? await once(`/messages/${id}/sources`).catch(() => null) : null;
  return shown?.find((one) => one.chunk_id === chunk_id)?.text ?? content_preview;
}

/** The number of a source's chunk in its document: chunk ids end with it. */
export const indexOf = (source) => Number(source.chunk_id.split("_").pop());

/** The chunk at `index`, or null: chunks are listed in order, one a page here. */
export async function fetchChunk(documentId, index) {
  if (index < 0) return null;
  const answer = await once(`/documents/${documentId}/chunks?page_size=1&page=${index + 1}`).catch(() => null);
  return answer?.results?.[0] ?? null;
}
