// Scrolls through a PDF; the longest frame in ms.
async () => {
  const pane = document.querySelector(".pdf-pane");
  let [longest, last] = [0, performance.now()];
  for (let step = 0; step < 60; step += 1) {
    pane.scrollTop += 400;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  }
  return longest;
}
