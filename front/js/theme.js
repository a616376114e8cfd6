// Light, dark, or like the system. The choice is in a cookie, so that the server renders the right colours at once.

import { toAddress } from "./address.js";
import { patchJson } from "./api.js";
import "./zone.js";

const ICONS = { system: "monitor", light: "sun", dark: "moon" };
const NEXT = { system: "light", light: "dark", dark: "system" };

export function currentTheme() {
  return document.documentElement.dataset.theme || "system";
}

export function setTheme(theme) {
  const root = document.documentElement;
  if (theme === "system") {
    delete root.dataset.theme;
    document.cookie = `theme=; path=${toAddress("/")}; max-age=0; samesite=lax`;
  } else {
    root.dataset.theme = theme;
    document.cookie = `theme=${theme}; path=${toAddress("/")}; max-age=31536000; samesite=lax`;
  }
  document.querySelectorAll("[data-theme-cycle]").forEach(show);
}

/** Store the choice with the account, for other devices. If that fails, this browser has its cookie. */
function keepTheme(theme) {
  if (document.getElementById("preferences")) patchJson("/me/preferences", { theme }).catch(() => null);
}

function show(button) {
  const theme = currentTheme();
  const label = button.dataset[`label${theme[0].toUpperCase()}${theme.slice(1)}`];
  button.setAttribute("aria-label", label);
  button.title = label;
  const use = button.querySelector("use");
  use.setAttribute("href", `${document.documentElement.dataset.icons}#${ICONS[theme]}`);
  const text = button.querySelector("[data-theme-label]");
  if (text) text.textContent = label;
}

for (const button of document.querySelectorAll("[data-theme-cycle]")) {
  show(button);
  button.addEventListener("click", () => {
    setTheme(NEXT[currentTheme()]);
    keepTheme(currentTheme());
  });
}
