// Elements and attributes under `root` that may not stand in what was made of a Markdown text.
(root) => {
  const tags =
    "A P BR HR H1 H2 H3 H4 H5 H6 STRONG EM S DEL CODE PRE BLOCKQUOTE UL OL LI " +
    "TABLE THEAD TBODY TR TH TD SPAN SUB SUP DIV BUTTON";
  const names = ["class", "title", "target", "rel", "tabindex", "role", "start"];
  const isLink = (node, { name, value }) => node.tagName === "A" && name === "href" && /^(https?:|mailto:)/i.test(value);
  const isOurs = ({ name }) => names.includes(name) || name.startsWith("aria-");

  // a diagram is drawn in a frame without an origin of its own
  const isDiagram = (node) =>
    node.tagName === "IFRAME" &&
    node.getAttribute("sandbox") === "allow-scripts" &&
    node.getAttribute("src") === "/diagram" &&
    [...node.attributes].every(({ name }) => /^(sandbox|src|loading|referrerpolicy|class|title|style|tabindex)$/.test(name));

  const foul = [];
  for (const node of root.querySelectorAll("*")) {
    if (isDiagram(node)) continue;
    if (node.closest(".code-copy, .cite, .table-tools, .footnote-link")) continue;
    if (node.parentElement.closest(".math-drawn")) {
      // drawn by KaTeX, which knows hundreds of elements: nothing of them leads, loads or runs
      const leads = [...node.attributes].filter(({ name, value }) => /^on|href|src|action/i.test(name) || value.includes("url("));
      if (leads.length || /^(a|img|iframe|script|object|embed|form|input|style|link)$/i.test(node.tagName)) foul.push(node.tagName);
      continue;
    }
    if (!tags.split(" ").includes(node.tagName)) foul.push(node.tagName);
    for (const attribute of node.attributes) {
      if (isLink(node, attribute) || isOurs(attribute)) continue;
      foul.push(`${node.tagName} ${attribute.name}=${attribute.value}`);
    }
  }
  return foul;
}
