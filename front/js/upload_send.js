// One file on its way to the server. What gets lost on the way is sent again.

import { csrfToken, problem } from "./api.js";

const WAITS = [1000, 3000, 9000, 27000];
const LONGEST_WAIT = 60_000;
const ON_THE_WAY = new Set([0, 502, 503, 504]);
const TOO_MANY = 429;

/**
 * Send `file` as a form to `path`. `onProgress` hears the share that is sent, `signal` ends it.
 * Answers {status, body, again}: `again` where it took more than one try. Throws ApiError, or AbortError.
 */
export async function sendFile({ method = "POST", path, file, onProgress, signal }) {
  for (let tries = 0; ; tries += 1) {
    onProgress?.(0);
    const answer = await once({ method, path, file, onProgress, signal });
    if (answer.status >= 200 && answer.status < 300) return { ...answer, again: tries > 0 };
    if (!passes(answer) || tries === WAITS.length) throw problem(answer.status, answer.body);
    await pause(Math.min(answer.wait || WAITS[tries], LONGEST_WAIT), signal);
  }
}

function once({ method, path, file, onProgress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const stop = () => request.abort();
    const end = () => {
      signal?.removeEventListener("abort", stop);
      const wait = Number(request.getResponseHeader("Retry-After")) * 1000;
      resolve({ status: request.status, body: request.response, wait });
    };
    request.open(method, `/api/v1${path}`);
    request.setRequestHeader("X-CSRFToken", csrfToken());
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("Accept-Language", document.documentElement.lang);
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && onProgress?.(event.loaded / event.total);
    request.onload = end;
    request.onerror = end;
    request.onabort = () => reject(new DOMException("", "AbortError"));
    signal?.addEventListener("abort", stop, { once: true });
    const body = new FormData();
    body.append("file", file, file.name);
    request.send(body);
  });
}

/** A failure of the connection or of a gateway passes; what the server itself says with a code stays. */
function passes({ status, body }) {
  return status === TOO_MANY || (ON_THE_WAY.has(status) && !body?.code);
}

/** Wait, but no longer than until the connection is back. */
function pause(wait, signal) {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      resolve();
    };
    const timer = setTimeout(end, wait);
    addEventListener("online", end);
    signal?.addEventListener("abort", () => reject(new DOMException("", "AbortError")), { once: true });
  });
}
