// Calls of this server's REST API, with the session cookie.

import { toAddress } from "./address.js";
import { noteSignedOut } from "./notify.js";
import { t } from "./strings.js";

const BASE = toAddress("/api/v1");

/** A response that is not a success: `status`, `code` and a sentence for the reader. */
export class ApiError extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

/** From the cookie, which a sign-in in another tab renews; from the form if scripts may not read the cookie. */
export function readCsrfToken() {
  const cookie = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1];
  const field = /** @type {HTMLInputElement | null} */ (document.querySelector("[name=csrfmiddlewaretoken]"));
  return cookie ?? field?.value ?? "";
}

/** A failed response as an ApiError. If the user is signed out, a note offers to sign in. */
export function toApiError(status, body) {
  if (isSignedOut(status)) noteSignedOut();
  const detail = describeInvalid(body) || (typeof body?.detail === "string" ? body.detail : t(status === 0 ? "offline" : "failed"));
  return new ApiError(status, body?.code ?? "", isSignedOut(status) ? t("signed_out") : detail);
}

/** The errors of the fields; `detail` only names them. */
function describeInvalid(body) {
  const found = body?.code === "invalid" ? Object.values(body.errors ?? {}).flat() : [];
  return found.filter((one) => typeof one === "string").join(" ");
}

export function isSignedOut(status) {
  return status === 401;
}

/** Send a request; throws an ApiError if the response is not a success. */
async function sendRequest(method, path, body, options = {}) {
  const headers = {
    Accept: "application/json, */*;q=0.5",
    "Accept-Language": document.documentElement.lang,
    "X-CSRFToken": readCsrfToken(),
  };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(BASE + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      ...options,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw toApiError(0);
  }
  if (!response.ok) throw toApiError(response.status, await readJson(response));
  return response;
}

async function readJson(response) {
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  return isJson ? response.json().catch(() => null) : null;
}

async function requestJson(...what) {
  return readJson(await sendRequest(...what));
}

export const getJson = (path, options) => requestJson("GET", path, undefined, options);
export const postJson = (path, body = {}, options = {}) => requestJson("POST", path, body, options);
export const patchJson = (path, body) => requestJson("PATCH", path, body);
export const postForm = (path, form) => requestJson("POST", path, undefined, { body: form });
export const sendDelete = (path, options) => requestJson("DELETE", path, undefined, options);

/** The response itself, with its headers. */
export const getResponse = (path) => sendRequest("GET", path);

/** The body of a GET as text. */
export async function getText(path) {
  return (await getResponse(path)).text();
}

/** The body of a POST as a Blob, such as a sound. */
export async function postForBlob(path, body = {}, options = {}) {
  return (await sendRequest("POST", path, body, options)).blob();
}

export function toQueryString(values) {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return new URLSearchParams(entries).toString();
}

const MAX_KEPT_ANSWERS = 200;
const keptAnswers = new Map();

/** The response of `path`, fetched once; after a failure it is fetched again. */
function getOnce(path) {
  if (!keptAnswers.has(path)) {
    if (keptAnswers.size > MAX_KEPT_ANSWERS) keptAnswers.clear();
    const asked = getJson(path);
    keptAnswers.set(path, asked);
    asked.catch(() => keptAnswers.delete(path));
  }
  return keptAnswers.get(path);
}

/** Forget cached responses: a document was processed again. */
export const forgetChunks = () => keptAnswers.clear();

export const fetchDocument = (id) => getOnce(`/documents/${id}`);

/** The whole passage as shown with the answer; it outlives its document. */
export async function fetchSnapshot({ message_id: id, chunk_id, content_preview }) {
  const shown = id ? await getOnce(`/messages/${id}/sources`).catch(() => null) : null;
  return shown?.find((one) => one.chunk_id === chunk_id)?.text ?? content_preview;
}

/** The chunk at `index`, or null: chunks are listed in order, one a page here. */
export async function fetchChunk(documentId, index) {
  if (index < 0) return null;
  const answer = await getOnce(`/documents/${documentId}/chunks?page_size=1&page=${index + 1}`).catch(() => null);
  return answer?.results?.[0] ?? null;
}
