// Draws `text` as an answer, as a streamed answer and as a document, block by block; the longest that the page stood still, in ms.
async ([path, text]) => {
  const { StreamedMarkdown, parseDocumentBlocks, renderMarkdown } = await import(path);
  const root = document.createElement("div");
  document.body.append(root);
  let longest = 0;
  const time = (draw) => {
    const begun = performance.now();
    draw();
    void root.offsetHeight;
    longest = Math.max(longest, performance.now() - begun);
  };
  time(() => root.replaceChildren(renderMarkdown(text)));
  let blocks = [];
  time(() => (blocks = parseDocumentBlocks(text)));
  for (const { render } of blocks.slice(0, 20)) time(() => root.replaceChildren(render())); // the others when they are scrolled to
  const stream = new StreamedMarkdown(root, () => ({ sources: null }));
  for (let at = 0; at < text.length; at += text.length / 8) {
    stream.append(text.slice(at, at + text.length / 8));
    stream.cancel();
    time(() => stream.draw());
  }
  time(() => stream.finish(text));
  root.remove();
  return Math.round(longest);
}
