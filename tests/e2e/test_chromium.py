"""A browser that hangs costs one warning, not the whole run."""

import pytest

from tests.e2e import chromium as bounds


def test_a_window_that_does_not_close_is_ended_and_the_next_one_opens(chromium, monkeypatch):
    context = chromium.new_context()
    context.new_page()
    (browser,) = bounds.processes()
    monkeypatch.setattr(bounds, "CLOSING", 0.5)
    browser.suspend()
    with pytest.warns(UserWarning, match="Chromium was ended"):
        chromium.close_context(context)
    monkeypatch.undo()
    later = chromium.new_context()
    assert later.new_page().evaluate("1 + 1") == 2
    chromium.close_context(later)
