// Another file for the same document: sent, then read while the old one goes on serving.

import { byId } from "./dom.js";
import { percent, t } from "./strings.js";
import { sendFile } from "./upload_send.js";

/** Events: `sent` once the server has the file. */
export class NewVersion extends EventTarget {
  constructor({ id, limitMb }) {
    super();
    this.id = id;
    this.limitMb = limitMb;
    this.news = byId("version-news");
    this.button = byId("version-upload");
    const input = byId("version-input");
    this.button.addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      if (input.files.length) this.send(input.files[0]);
      input.value = "";
    });
    addEventListener("beforeunload", (event) => this.button.disabled && event.preventDefault());
  }

  async send(file) {
    if (file.size > this.limitMb * 1024 * 1024) return this.say(t("too_large", { size: this.limitMb }), true);
    this.button.disabled = true;
    const onProgress = (share) => this.say(`${t("upload.uploading")} ${percent(share)}`);
    try {
      const { body } = await sendFile({ method: "PUT", path: `/documents/${this.id}/file`, file, onProgress });
      this.say(t(body?.duplicate ? "version.duplicate" : "version.sent"));
      this.dispatchEvent(new Event("sent"));
    } catch (error) {
      this.say(error.message, true);
    } finally {
      this.button.disabled = false;
    }
    return undefined;
  }

  say(text, isTrouble = false) {
    this.news.hidden = false;
    this.news.textContent = text;
    this.news.classList.toggle("version-trouble", isTrouble);
  }
}
