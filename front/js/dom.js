// Helpers for creating and placing elements.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element. `props` are attributes, or `class`, `text`, `data` (dataset) and `on` (listeners). */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function createIcon(name, extra = "") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `icon ${extra}`.trim());
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${document.documentElement.dataset.icons}#${name}`);
  svg.append(use);
  return svg;
}

export function setIcon(button, name) {
  button.querySelector("use").setAttribute("href", `${document.documentElement.dataset.icons}#${name}`);
}

/** Create a button with only an icon; `label` is its accessible name and tooltip. */
export function createIconButton(name, label, props = {}) {
  return el("button", { type: "button", class: "icon-button", "aria-label": label, title: label, ...props }, createIcon(name));
}

/**
 * The element with this id; its type depends on the template.
 *
 * @returns {any}
 */
export const byId = (id) => document.getElementById(id);

/** JSON that the server put into the page with `json_script`. */
export function readPageData(id) {
  const node = byId(id);
  return node ? JSON.parse(node.textContent) : {};
}

export function announce(text) {
  const node = byId("announcer");
  node.textContent = "";
  requestAnimationFrame(() => {
    node.textContent = text;
  });
}

/** Make `wanted` the children of `root` without moving those already in place: somebody may be reading them. */
export function placeChildren(root, wanted) {
  const kept = new Set(wanted);
  for (const node of [...root.children]) if (!kept.has(node)) node.remove();
  wanted.forEach((node, index) => {
    const here = root.children[index];
    if (here !== node) root.insertBefore(node, here ?? null);
  });
}

/** Place a popover beside the element that opened it, within the window. */
export function placeBeside(popover, anchor, { above = false, centred = false } = {}) {
  const box = anchor.getBoundingClientRect();
  const size = popover.getBoundingClientRect();
  const wished = centred ? box.left + (box.width - size.width) / 2 : box.left;
  const left = Math.max(8, Math.min(wished, innerWidth - size.width - 8));
  const roomBelow = innerHeight - box.bottom - 12;
  const goesUp = above || (roomBelow < size.height && box.top > roomBelow);
  const top = goesUp ? Math.max(8, box.top - size.height - 6) : box.bottom + 6;
  popover.style.inset = "auto";
  popover.style.margin = "0";
  popover.style.left = `${left}px`;
  popover.style.top = `${Math.min(top, Math.max(8, innerHeight - size.height - 8))}px`;
}

export function chooseFileIcon(contentType, name = "") {
  const ending = name.split(".").pop().toLowerCase();
  if (contentType === "application/pdf" || ending === "pdf") return "file-type";
  return "file-text";
}

const HOVER_LINGER_MS = 120;

/** Show a card for elements that match `selector`; `fill(card, target)` writes it, or returns false for none. */
export function watchHoverCard(root, selector, { id, fill }) {
  const card = el("div", { class: "hover-card", popover: "manual", id, role: "tooltip" });
  document.body.append(card);
  let leaving = null;
  const close = () => card.matches(":popover-open") && card.hidePopover();
  const show = (target) => {
    if (fill(card, target) === false) return;
    clearTimeout(leaving);
    if (!card.matches(":popover-open")) card.showPopover();
    placeBeside(card, target, { above: true, centred: true });
  };
  const hide = () => {
    clearTimeout(leaving);
    leaving = setTimeout(close, HOVER_LINGER_MS);
  };
  const on = (type, run) =>
    root.addEventListener(type, (event) => {
      const target = event.target.closest?.(selector);
      if (target) run(target, event);
    });
  on("mouseover", show);
  on("focusin", (target) => target.matches(":focus-visible") && show(target)); // not when focus returns after a touch
  on("mouseout", hide);
  on("focusout", hide);
  on("keydown", (_target, event) => {
    if (event.key !== "Escape" || !card.matches(":popover-open")) return;
    event.preventDefault();
    close();
  });
  byId("scroller")?.addEventListener("scroll", hide, { passive: true });
  return { hide };
}

const SCROLLING_OVERFLOWS = new Set(["auto", "scroll"]);

/**
 * Scroll `node` to `share` (0..1) of the height of its pane: 0 is the top, 0.5 the middle.
 * scrollIntoView would also scroll everything around it, even the page, which nobody could scroll back.
 */
export function scrollWithin(node, share = 0) {
  let pane = node.parentElement;
  while (pane && !SCROLLING_OVERFLOWS.has(getComputedStyle(pane).overflowY)) pane = pane.parentElement;
  if (!pane) return;
  const box = node.getBoundingClientRect();
  const room = Math.max(0, pane.clientHeight - box.height);
  pane.scrollTop += box.top - pane.getBoundingClientRect().top - pane.clientTop - room * share;
}
