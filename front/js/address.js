// Where this server's pages lie: at the root of a host, or below a path that a proxy gives them.

/** `""`, or the prefix without a slash at its end. */
const PREFIX = globalThis.document?.documentElement.dataset.root?.replace(/\/$/, "") ?? "";

/** The path of a page, a file or the API, as a browser asks for it. */
export const toAddress = (path) => PREFIX + path;
