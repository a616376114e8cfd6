"""What a window did that it must not do."""

from collections import deque

from playwright.sync_api import BrowserContext, Response, WebError

REPORT = """
document.addEventListener("securitypolicyviolation", (event) => {
  const { violatedDirective, blockedURI, sample } = event;
  console.error(`Content Security Policy: ${violatedDirective} ${blockedURI} ${sample}`);
});
"""
KEPT_REFUSALS = 10


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
        self._refused: deque[str] = deque(maxlen=KEPT_REFUSALS)
        context.add_init_script(REPORT)
        context.on("console", lambda message: self._heard(message.text))
        context.on("weberror", self._failed)
        context.on("request", lambda request: self._asked(request.url))
        context.on("response", self._answered)
        context.on("dialog", self._dialog)

    def _heard(self, text: str) -> None:
        if "Content Security Policy" in text or "Content-Security-Policy" in text:
            self.breaches.append(text)

    def _failed(self, failure: WebError) -> None:
        """A script threw, or nobody waited for a promise: with what the server refused before."""
        where = failure.page.url if failure.page else "a page that is gone"
        told = failure.error.stack or str(failure.error)
        self.errors.append("\n  ".join([f"{where}: {told}", *self._refused]))

    def _asked(self, url: str) -> None:
        if not url.startswith((self._home, "data:", "blob:", "about:")):
            self.foreign.append(url)

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self._refused.append(f"{response.status} {response.request.method} {response.url}")

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
