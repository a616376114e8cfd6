// Emphasis that ends before a Korean particle: **50%**를, **(가)**는.
//
// CommonMark lets no mark close between a sign and a letter, since languages with spaces have a blank there. Korean hangs
// particles onto the word. The server reads answers by the same rule: `documents/parsers/markdown.py`.

const HANGUL = /^[가-힣]/;
const CLOSING_SIGN = /[^\s\p{L}\p{N}\p{Ps}\p{Pi}<*_]$/u;

/** Makes a markdown-it parser let a run of stars close between a sign, other than an opening one, and Hangul. */
export function letStarsCloseBeforeHangul(md) {
  md.inline.State = class extends md.inline.State {
    scanDelims(start, canSplitWord) {
      const found = super.scanDelims(start, canSplitWord);
      const end = start + found.length;
      const before = this.src.slice(Math.max(0, start - 2), start); // a sign may be a pair
      const closes = this.src[start] === "*" && CLOSING_SIGN.test(before) && HANGUL.test(this.src.slice(end, end + 1));
      return { ...found, can_close: found.can_close || closes };
    }
  };
}
