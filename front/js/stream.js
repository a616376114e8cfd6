// An answer that grows. What is finished stays as it stands; only the last block is drawn again, once a frame.

import { decorate } from "./decorate.js";
import { fragmentOf, parse, plainFragment, render, tooHeavy } from "./markdown.js";

const SHORTEST_PAUSE = 30;
const COST_FACTOR = 4;

export class StreamedMarkdown {
  /** `sources()` gives the answer's sources as known now. */
  constructor(root, sources) {
    this.root = root;
    this.sources = sources;
    this.tail = document.createComment("");
    this.reset();
  }

  reset() {
    this.cancel();
    this.text = "";
    this.stable = 0;
    this.env = {};
    this.cost = 0;
    this.drawnAt = 0;
    this.root.replaceChildren(this.tail);
  }

  append(text) {
    this.text += text;
    this.schedule();
  }

  /** Draw the whole text anew, as it will stay. */
  finish(text = this.text) {
    this.cancel();
    this.text = text;
    const whole = render(text);
    decorate(whole, this.sources(), { final: true });
    this.root.replaceChildren(whole);
  }

  cancel() {
    if (this.frame) cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.frame = null;
    this.timer = null;
  }

  schedule() {
    if (this.frame || this.timer) return;
    const pause = Math.max(SHORTEST_PAUSE, this.cost * COST_FACTOR) - (performance.now() - this.drawnAt);
    const ask = () => {
      this.timer = null;
      this.frame = requestAnimationFrame(() => this.draw());
    };
    if (pause > 4) this.timer = setTimeout(ask, pause);
    else ask();
  }

  draw() {
    this.frame = null;
    const begun = performance.now();
    const open = this.text.slice(this.stable);
    this.clearTail();
    if (tooHeavy(open) || tooHeavy(this.text)) this.root.append(plainFragment(open));
    else this.drawBlocks(open);
    this.drawnAt = performance.now();
    this.cost = this.drawnAt - begun;
  }

  drawBlocks(open) {
    const tokens = parse(open, this.env);
    const { index, line } = lastBlock(tokens);
    if (index > 0) {
      this.insert(tokens.slice(0, index), this.tail, true);
      this.stable += offsetOfLine(open, line);
    }
    this.insert(tokens.slice(index), null, false);
  }

  insert(tokens, before, final) {
    const fragment = fragmentOf(tokens, this.env);
    decorate(fragment, this.sources(), { final });
    this.root.insertBefore(fragment, before);
  }

  clearTail() {
    while (this.tail.nextSibling) this.tail.nextSibling.remove();
  }
}

/** Where the last top-level block begins: its token and its line. */
function lastBlock(tokens) {
  for (let index = tokens.length - 1; index >= 0; index -= 1) {
    const token = tokens[index];
    if (token.level === 0 && token.nesting >= 0 && token.map) return { index, line: token.map[0] };
  }
  return { index: 0, line: 0 };
}

function offsetOfLine(text, line) {
  let offset = 0;
  for (let passed = 0; passed < line; passed += 1) offset = text.indexOf("\n", offset) + 1;
  return offset;
}
