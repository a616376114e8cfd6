// Where this server's pages are: at the root of a host, or below the path prefix of a proxy.

/** `""`, or the prefix without a trailing slash. */
const PREFIX = globalThis.document?.documentElement.dataset.root?.replace(/\/$/, "") ?? "";

/** The URL path of a page, a file or the API, with the prefix. */
export const toAddress = (path) => PREFIX + path;
