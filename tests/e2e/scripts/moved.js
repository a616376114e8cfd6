// Everything that is scrolled although no reader could scroll it, and where the shell stands if not at the top.
() => {
  const found = [];
  const page = document.scrollingElement;
  if (page.scrollTop) found.push(`page ${page.scrollTop}`);
  for (const node of document.querySelectorAll("body, body *")) {
    const hidden = ["hidden", "clip"].includes(getComputedStyle(node).overflowY);
    if (hidden && node.scrollTop) found.push(`${node.tagName} ${node.className} ${node.scrollTop}`);
  }
  const { top } = document.querySelector(".main").getBoundingClientRect();
  if (top) found.push(`shell ${top}`);
  return found;
}
