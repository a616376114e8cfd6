// Plays the events of a Korean input method in the order of one browser; a plain Enter that nobody handles breaks the line.
([start, syllable, steps]) => {
  const input = document.querySelector("#composer-input");
  input.focus();

  const press = (isComposing, keyCode) => {
    const key = keyCode === 229 ? "Process" : "Enter";
    const about = { key, code: "Enter", keyCode, which: keyCode, isComposing };
    const event = new KeyboardEvent("keydown", { ...about, bubbles: true, cancelable: true });
    input.dispatchEvent(event);
    if (event.defaultPrevented || keyCode !== 13) return;
    input.setRangeText("\n", input.value.length, input.value.length, "end");
  };
  const compose = (type, data) => input.dispatchEvent(new CompositionEvent(type, { data, bubbles: true }));
  const typed = () => input.dispatchEvent(new InputEvent("input", { data: syllable, isComposing: true, bubbles: true }));

  const moves = {
    composingEnter: () => press(true, 229),
    plainEnter: () => press(false, 13),
    lateEnter: () => press(false, 229),
    end: () => {
      compose("compositionend", syllable);
      typed();
    },
  };
  input.value = start;
  compose("compositionstart", "");
  input.value = start + syllable;
  compose("compositionupdate", syllable);
  typed();
  for (const step of steps) moves[step]();
}
