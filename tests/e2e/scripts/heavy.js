// Makes `drawOn()`, which draws `text` on: as an answer, as a document block by block, as a streamed answer; false at the end.
async ([path, text]) => {
  const { StreamedMarkdown, parseDocumentBlocks, renderMarkdown } = await import(path);
  const root = document.createElement("div");
  document.body.append(root);
  const drawing = (function* () {
    yield root.replaceChildren(renderMarkdown(text));
    const blocks = parseDocumentBlocks(text);
    yield;
    for (const { render } of blocks.slice(0, 20)) yield root.replaceChildren(render()); // the others when they are scrolled to
    const stream = new StreamedMarkdown(root, () => ({ sources: null }));
    for (let at = 0; at < text.length; at += text.length / 8) {
      stream.append(text.slice(at, at + text.length / 8));
      stream.cancel();
      yield stream.draw();
    }
    yield stream.finish(text);
    root.remove();
  })();
  window.drawOn = () => {
    const { done } = drawing.next();
    void root.offsetHeight;
    return !done;
  };
}
