"""What a window did that it must not do."""

from playwright.sync_api import BrowserContext

REPORT = """
document.addEventListener("securitypolicyviolation", (event) => {
  const { violatedDirective, blockedURI, sample } = event;
  console.error(`Content Security Policy: ${violatedDirective} ${blockedURI} ${sample}`);
});
"""


class Watch:
    """Listens to all pages of a context.

    For breaches of the policy, errors of scripts, foreign requests and dialogs.
    """

    def __init__(self, context: BrowserContext, home: str) -> None:
        self.breaches: list[str] = []
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.dialogs: list[str] = []
        self._home = home
        context.add_init_script(REPORT)
        context.on("console", lambda message: self._heard(message.text))
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        context.on("request", lambda request: self._asked(request.url))
        context.on("dialog", self._dialog)

    def _heard(self, text: str) -> None:
        if "Content Security Policy" in text or "Content-Security-Policy" in text:
            self.breaches.append(text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self._home, "data:", "blob:", "about:")):
            self.foreign.append(url)

    def _dialog(self, dialog) -> None:
        if dialog.type != "beforeunload":
            self.dialogs.append(dialog.message)
        dialog.accept()

    def assert_clean(self) -> None:
        """Fail with all that was seen; it is forgotten then."""
        kinds = (self.breaches, self.errors, self.foreign, self.dialogs)
        seen = [one for kind in kinds for one in kind]
        for kind in kinds:
            kind.clear()
        assert not seen, "\n".join(seen)
