// Enter sends, once, and never in the middle of a syllable.
//
// A Korean syllable is still open ("composing") when Enter is pressed. Browsers then differ: Chrome reports a composing
// Enter, closes the syllable, and usually reports a second, plain Enter; Safari closes the syllable first and then reports
// an Enter with key code 229; some report the composing Enter only. We wait until the syllable is closed; the next event
// then sends, and later ones find nothing left to send. In Japanese or Chinese, Enter chooses a candidate, so there only a
// plain Enter sends.

import { readPageData } from "./dom.js";

const IME_KEY = 229;
const JUST_CLOSED_MS = 80;
const HANGUL_END = /[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]$/;

export const isEnter = (event) => event.key === "Enter" || event.code === "Enter" || event.code === "NumpadEnter";

/** Call `send` when the reader presses the chosen send key; possibly twice for one Enter. */
export function sendOnEnter(input, send) {
  if (readPageData("preferences").send_key === "mod-enter") sendOnModEnter(input, send);
  else sendOnPlainEnter(input, send);
}

function sendOnModEnter(input, send) {
  input.addEventListener("keydown", (event) => {
    if (!isEnter(event) || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
    event.preventDefault();
    send();
  });
}

function sendOnPlainEnter(input, send) {
  let wanted = false;
  let closedAt = -Infinity;
  let closedWithHangul = false;

  input.addEventListener("keydown", (event) => {
    if (!isEnter(event) || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.isComposing) {
      wanted = true;
      return;
    }
    const syllableJustClosed = event.timeStamp - closedAt < JUST_CLOSED_MS;
    if (event.keyCode === IME_KEY && !(syllableJustClosed && closedWithHangul)) return;
    event.preventDefault();
    wanted = false;
    send();
  });

  input.addEventListener("compositionstart", () => {
    wanted = false;
  });

  input.addEventListener("compositionend", (event) => {
    closedAt = event.timeStamp;
    closedWithHangul = HANGUL_END.test(event.data ?? "");
    if (!wanted || !closedWithHangul) return;
    wanted = false;
    const before = input.value;
    setTimeout(() => {
      if (input.value === `${before}\n`) input.value = before;
      send();
    });
  });
}
