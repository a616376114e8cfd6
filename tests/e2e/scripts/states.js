// Notes every state that an upload goes through in `window.states`.
() => {
  window.states = [];
  const note = (node) => node.dataset?.state && window.states.at(-1) !== node.dataset.state && window.states.push(node.dataset.state);
  const watch = { subtree: true, childList: true, attributes: true, attributeFilter: ["data-state"] };
  new MutationObserver((changes) => {
    for (const { target, addedNodes } of changes) [target, ...addedNodes].forEach(note);
  }).observe(document.querySelector("#uploads"), watch);
}
