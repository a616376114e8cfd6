// Streams `text` character by character through the page's own module; all that was foul in any state of the page.
async ([path, text, foulness]) => {
  const { StreamedMarkdown } = await import(path);
  const foul = new Function(`return (${foulness})`)();
  const root = document.createElement("div");
  document.body.append(root);
  const stream = new StreamedMarkdown(root, () => ({ sources: null }));
  const found = [];
  for (const character of text) {
    stream.append(character);
    stream.cancel();
    stream.draw();
    found.push(...foul(root));
  }
  stream.finish(text);
  found.push(...foul(root));
  root.remove();
  return found;
}
