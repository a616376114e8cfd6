// Emphasis that ends before a Korean particle: **50%**를, **(가)**는.
//
// CommonMark does not let emphasis close between punctuation and a letter, where most languages have a space. Korean attaches
// particles to the word. The server parses answers by the same rule: `documents/parsers/markdown.py`.

const HANGUL = /^[가-힣]/;
const CLOSING_SIGN = /[^\s\p{L}\p{N}\p{Ps}\p{Pi}<*_]$/u;

/** Let a markdown-it parser close emphasis between punctuation, except opening brackets, and Hangul. */
export function letStarsCloseBeforeHangul(md) {
  md.inline.State = class extends md.inline.State {
    scanDelims(start, canSplitWord) {
      const found = super.scanDelims(start, canSplitWord);
      const end = start + found.length;
      const before = this.src.slice(Math.max(0, start - 2), start); // a character may be two units
      const closes = this.src[start] === "*" && CLOSING_SIGN.test(before) && HANGUL.test(this.src.slice(end, end + 1));
      return { ...found, can_close: found.can_close || closes };
    }
  };
}
