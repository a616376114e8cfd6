"""The list of settings is what the code reads, in docs/settings.md and in .env.example."""

import os
from pathlib import Path

import pytest

from nura.settings import env, reference

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_settings(monkeypatch):
    """An environment without settings of ours."""
    for name in reference.describe_names():
        monkeypatch.delenv(name, raising=False)


def test_every_variable_that_is_read_is_described():
    assert not set(reference.read_declarations()) - set(reference.describe_names())


def test_every_variable_that_is_described_is_read():
    assert not set(reference.describe_names()) - set(reference.read_declarations())


def test_no_variable_is_described_twice():
    names = reference.describe_names()
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("docs/settings.md", reference.write_markdown),
        (".env.example", reference.write_example),
    ],
)
def test_the_file_is_what_the_code_gives(name, write):
    """If this fails: `python manage.py settings_reference --write`."""
    assert (ROOT / name).read_text(encoding="utf-8") == write()


def test_defaults_and_bounds_come_from_the_code():
    row = next(row for row in reference.write_markdown().splitlines() if "`NURA_PORT`" in row)
    assert "| `8000` | whole number, 1 to 65,535 |" in row


def test_every_example_is_a_line_that_a_dotenv_file_takes(monkeypatch, tmp_path, no_settings):
    lines = [line[1:] for line in reference.write_example().splitlines() if line[:2] == "#N"]
    file = tmp_path / ".env"
    file.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(os, "environ", {})
    env.load_dotenv(file)
    assert os.environ["NURA_PORT"] == "8000"


def test_an_old_name_still_works_and_says_how_it_is_called_now(monkeypatch, capsys, no_settings):
    monkeypatch.setenv("NURA_PICTURES_MOST", "3")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    env.adopt_renamed(reference.RENAMED)
    assert env.read_integer("NURA_PICTURES_MAX", 20) == 3
    assert "NURA_PICTURES_MAX" in capsys.readouterr().err


def test_the_new_name_wins_over_the_old_one(monkeypatch, capsys, no_settings):
    monkeypatch.setattr(os, "environ", {"NURA_PICTURES_MOST": "3", "NURA_PICTURES_MAX": "5"})
    env.adopt_renamed(reference.RENAMED)
    assert env.read_integer("NURA_PICTURES_MAX", 20) == 5
    assert not capsys.readouterr().err
