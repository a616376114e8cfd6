// The REST API of this server, with the session's cookie.

import { t } from "./strings.js";

const BASE = "/api/v1";

/** An answer that was not a success: `status`, `code` and a sentence for the reader. */
export class ApiError extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

/** From the cookie, which a sign-in in another tab renews; the form's own copy where scripts may not read cookies. */
export function csrfToken() {
  const cookie = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1];
  return cookie ?? document.querySelector("[name=csrfmiddlewaretoken]")?.value ?? "";
}

/** What a failed response says, as an ApiError. */
export function problem(status, body) {
  const detail = typeof body?.detail === "string" ? body.detail : t(status === 0 ? "offline" : "failed");
  return new ApiError(status, body?.code ?? "", signedOut(status) ? t("signed_out") : detail);
}

export function signedOut(status) {
  return status === 401;
}

/** The response to a request; throws what the server says where it is no success. */
async function send(method, path, body, options = {}) {
  const headers = {
    Accept: "application/json, */*;q=0.5",
    "Accept-Language": document.documentElement.lang,
    "X-CSRFToken": csrfToken(),
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
    throw problem(0);
  }
  if (!response.ok) throw problem(response.status, await jsonOf(response));
  return response;
}

async function jsonOf(response) {
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  return isJson ? response.json().catch(() => null) : null;
}

async function request(...what) {
  return jsonOf(await send(...what));
}

export const get = (path, options) => request("GET", path, undefined, options);
export const post = (path, body = {}, options = {}) => request("POST", path, body, options);
export const patch = (path, body) => request("PATCH", path, body);
export const remove = (path, options) => request("DELETE", path, undefined, options);

/** What the server answers as it is, with its headers. */
export const getResponse = (path) => send("GET", path);

/** The same as a text. */
export async function getText(path) {
  return (await getResponse(path)).text();
}

/** The same for a picture, a sound. */
export async function postForBlob(path, body = {}, options = {}) {
  return (await send("POST", path, body, options)).blob();
}

export function query(values) {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return new URLSearchParams(entries).toString();
}
