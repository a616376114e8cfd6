import pytest
from django.core.exceptions import ImproperlyConfigured

from nura.settings import env

NAME = "NURA_SOMETHING"


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("many", lambda: env.integer(NAME, 1)),
        ("-1", lambda: env.integer(NAME, 1)),
        ("70000", lambda: env.integer(NAME, 1, most=65535)),
        ("1,5", lambda: env.decimal(NAME, 0.0)),
        ("nan", lambda: env.decimal(NAME, 0.0)),
        ("perhaps", lambda: env.flag(NAME, default=True)),
        ("fr", lambda: env.choice(NAME, "ko", ("ko", "en"))),
        ("mysql://x", lambda: env.url(NAME, ("postgres",))),
    ],
)
def test_a_bad_value_names_its_variable(monkeypatch, value, read):
    monkeypatch.setenv(NAME, value)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        read()


def test_a_bad_url_is_not_repeated_because_it_may_hold_a_password(monkeypatch):
    monkeypatch.setenv(NAME, "mysql://me:hunter2@host/db")
    with pytest.raises(ImproperlyConfigured) as caught:
        env.url(NAME, ("postgres",))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "   "])
def test_blank_counts_as_absent(monkeypatch, value):
    monkeypatch.setenv(NAME, value)
    assert env.integer(NAME, 7) == 7
    assert env.text(NAME, "default") == "default"
    assert env.flag(NAME, default=True) is True
