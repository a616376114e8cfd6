from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from nura.settings import env

NAME = "NURA_SOMETHING"


@pytest.fixture(autouse=True)
def _own_declarations(monkeypatch):
    """What is read here is no setting of the product."""
    monkeypatch.setattr(env, "DECLARED", dict(env.DECLARED))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("many", lambda: env.read_integer(NAME, 1)),
        ("-1", lambda: env.read_integer(NAME, 1)),
        ("70000", lambda: env.read_integer(NAME, 1, maximum=65535)),
        ("1,5", lambda: env.read_decimal(NAME, 0.0)),
        ("nan", lambda: env.read_decimal(NAME, 0.0)),
        ("perhaps", lambda: env.read_flag(NAME, default=True)),
        ("fr", lambda: env.read_choice(NAME, "ko", ("ko", "en"))),
        ("mysql://x", lambda: env.read_url(NAME, ("postgres",))),
        ("postgres://host:port/x", lambda: env.read_url(NAME, ("postgres",))),
        ("Mars/Phobos", lambda: env.read_zone(NAME, "Asia/Seoul")),
        ("nura.example.com", lambda: env.read_origins(NAME)),
        ("/dev/null/x", lambda: env.read_folder(NAME, Path("/tmp"))),
    ],
)
def test_a_bad_value_names_its_variable(monkeypatch, value, read):
    monkeypatch.setenv(NAME, value)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        read()


def test_a_folder_is_looked_at_and_not_made(monkeypatch, tmp_path):
    monkeypatch.setenv(NAME, str(tmp_path / "데이터 1" / "var"))
    assert env.read_folder(NAME, tmp_path) == tmp_path / "데이터 1" / "var"
    assert not list(tmp_path.iterdir())


def test_a_bad_url_is_not_repeated_because_it_may_hold_a_password(monkeypatch):
    monkeypatch.setenv(NAME, "mysql://me:hunter2@host/db")
    with pytest.raises(ImproperlyConfigured) as caught:
        env.read_url(NAME, ("postgres",))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "   "])
def test_blank_counts_as_absent(monkeypatch, value):
    monkeypatch.setenv(NAME, value)
    assert env.read_integer(NAME, 7) == 7
    assert env.read_text(NAME, "default") == "default"
    assert env.read_flag(NAME, default=True) is True
