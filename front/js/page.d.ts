// What the checker cannot know of our pages: they hold HTML elements only, custom events carry a `detail`, and htmx is
// loaded beside the scripts.

interface Window {
  htmx: { process(element: Element): void };
}

interface Event {
  readonly detail?: any;
}

interface EventTarget {
  closest?(selector: string): any;
}

interface Error {
  /** Of an ApiError; absent on failures of our own. */
  status?: number;
}

interface Node {
  /** Of text nodes. */
  data?: string;
}

interface Element {
  readonly dataset: DOMStringMap;
  hidden: boolean | string;
  focus(options?: FocusOptions): void;
}
