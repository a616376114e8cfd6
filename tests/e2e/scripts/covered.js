// The words of a PDF that the marks of a sentence cover.
() => {
  const boxes = [...document.querySelectorAll(".pdf-sentence")].map((one) => one.getBoundingClientRect());
  const layer = document.querySelector(".pdf-sentence")?.closest(".page").querySelector(".textLayer");
  if (!layer) return "";
  const walker = document.createTreeWalker(layer, NodeFilter.SHOW_TEXT);
  let said = "";
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (let at = 0; at < node.length; at += 1) {
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      const { left, right, top, bottom } = range.getBoundingClientRect();
      const [x, y] = [(left + right) / 2, (top + bottom) / 2];
      const isIn = (box) => x > box.left && x < box.right && y > box.top && y < box.bottom;
      if (boxes.some(isIn)) said += node.data[at];
    }
  }
  return said;
}
