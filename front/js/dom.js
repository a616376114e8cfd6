// Small help for making elements.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `props`: attributes; `class`, `text`, `data` (dataset) and `on` (listeners) are understood. */
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

export function icon(name, extra = "") {
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

/** A button that shows only a picture; `label` is read out and shown as a tip. */
export function iconButton(name, label, props = {}) {
  return el("button", { type: "button", class: "icon-button", "aria-label": label, title: label, ...props }, icon(name));
}

export const byId = (id) => document.getElementById(id);

/** JSON that the server put into the page with `json_script`. */
export function pageData(id) {
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

/** Make `wanted` the children of `root`, touching none that stand right: what is being read must not be moved. */
export function place(root, wanted) {
  const kept = new Set(wanted);
  for (const node of [...root.children]) if (!kept.has(node)) node.remove();
  wanted.forEach((node, index) => {
    const here = root.children[index];
    if (here !== node) root.insertBefore(node, here ?? null);
  });
}

/** Put a popover beside the element that opened it, inside the window. */
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

export function fileIcon(contentType, name = "") {
  const ending = name.split(".").pop().toLowerCase();
  if (contentType === "application/pdf" || ending === "pdf") return "file-type";
  return "file-text";
}
