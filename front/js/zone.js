// The browser's time zone as a cookie, so that the server writes times as the scripts do (`nura.middleware.choose_zone`).

import { toAddress } from "./address.js";

const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
document.cookie = `zone=${timeZone}; path=${toAddress("/")}; max-age=31536000; samesite=lax`;
