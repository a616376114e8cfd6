// Puts a voice into the page before it loads: what it is asked to say stands in `spoken`; `sayNext()` ends a sentence.
(languages) => {
  const voices = languages.map((lang) => ({ name: lang, lang, default: false, localService: true }));
  const queue = [];
  window.spoken = [];
  window.sayNext = () => queue.shift()?.dispatchEvent(new Event("end"));
  const speech = {
    get speaking() {
      return queue.length > 0;
    },
    pending: false,
    getVoices: () => voices,
    addEventListener: () => {},
    speak(utterance) {
      queue.push(utterance);
      window.spoken.push({ text: utterance.text, lang: utterance.lang });
    },
    cancel() {
      queue.length = 0;
    },
  };
  Object.defineProperty(window, "speechSynthesis", { value: speech });
  window.SpeechSynthesisUtterance = class extends EventTarget {
    constructor(text) {
      super();
      this.text = text;
    }
  };
}
