"""The system's Chromium without a window, and a bound on how long it takes to close one."""

import contextlib
import os
import shutil
import threading
import warnings
from typing import Any

import psutil
from playwright.sync_api import Browser, BrowserContext, Error, Playwright

from nura.bootstrap import BROWSERS

CLOSING = 30.0
"""Seconds for a window to close. Playwright has no limit of its own, and pytest-timeout none for
the clean-up after a test that failed."""

IDLE_PAGES = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
"""Pages of the browser's own that it loads for the address bar of each new window. Nobody sees one
here, and they take as much of the processor as a page of ours."""
PLAYWRIGHTS = (
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding"),
    *("ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "AimEnabled"),
    *("OptimizationHints", "NetworkTimeServiceQuerying", "PreconnectToSearch"),
)
"""What Playwright switches off itself; a list given later replaces the one before."""

CHEAP = ("--disable-gpu", "--in-process-gpu", "--renderer-process-limit=1")
"""A process of its own for each page, and one that draws, would take a quarter more of the
processor. Pages of different contexts have different processes all the same."""


def program() -> str | None:
    """The system's Chromium; None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Chromium:
    """A browser that is started when it is needed, and anew when it had to be ended."""

    def __init__(self, playwright: Playwright, executable: str) -> None:
        self._playwright = playwright
        self._executable = executable
        self._browser: Browser | None = None

    def new_context(self, **options: Any) -> BrowserContext:
        """Cookies and pages of their own."""
        if self._browser is None or not self._browser.is_connected():
            self._browser = self._launch()
        return self._browser.new_context(**options)

    def close_context(self, context: BrowserContext) -> None:
        """Close all pages of a context. A browser that does not get it done is ended."""
        late = threading.Event()

        def end() -> None:
            late.set()
            for process in processes():
                process.kill()

        timer = threading.Timer(CLOSING, end)
        timer.start()
        try:
            context.close()
        except Error:
            if not late.is_set():
                raise
        finally:
            timer.cancel()
        if late.is_set():
            warnings.warn(f"Chromium was ended: no close within {CLOSING:g} s", stacklevel=2)

    def close(self) -> None:
        """End it."""
        if self._browser is not None:
            self._browser.close()

    def _launch(self) -> Browser:
        as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
        without = f"--disable-features={','.join((*PLAYWRIGHTS, *IDLE_PAGES))}"
        options = [*as_root, *CHEAP, "--disable-dev-shm-usage", without]
        return self._playwright.chromium.launch(executable_path=self._executable, args=options)


def processes() -> list[psutil.Process]:
    """The browsers that this process started; their helpers end with them."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[0].endswith("/sh"):  # the script that started one
                continue
            if "--remote-debugging-pipe" in words and "--type=" not in " ".join(words):
                found.append(process)
    return found
