import re
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nura import bootstrap
from tests.support import ROOT


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose set-up is recorded instead of done."""
    requirements = tmp_path / "requirements"
    (requirements / "hashed").mkdir(parents=True)
    for name in ("base", "models", "dev", "lock", "hashed/base", "hashed/models", "hashed/dev"):
        (requirements / f"{name}.txt").write_text(f"# {name}\n")
    venv = tmp_path / ".venv"
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", venv)
    monkeypatch.setattr(bootstrap, "PYTHON", venv / "bin" / "python")
    monkeypatch.setattr(bootstrap, "STAMP", venv / "nura-requirements.json")
    commands = []

    def run(command):
        commands.append(command)
        if "venv" in command:
            (venv / "bin").mkdir(parents=True)
            (venv / "bin" / "python").touch()
        return 0

    monkeypatch.setattr(bootstrap, "run_command", run)
    return tmp_path, commands


def test_the_first_time_makes_the_environment_and_installs(project):
    _, commands = project
    bootstrap.ensure_installed("base")
    assert [command[2] for command in commands] == ["venv", "pip", "compileall"]


def test_the_second_time_does_nothing(project):
    _, commands = project
    bootstrap.ensure_installed("base")
    commands.clear()
    bootstrap.ensure_installed("base")
    assert commands == []


@pytest.mark.parametrize("name", ["base.txt", "lock.txt", "hashed/base.txt"])
def test_a_changed_file_installs_again(project, name):
    folder, commands = project
    bootstrap.ensure_installed("base")
    commands.clear()
    (folder / "requirements" / name).write_text("changed\n")
    bootstrap.ensure_installed("base")
    assert [command[2] for command in commands] == ["pip", "compileall"]


def test_what_the_tests_need_includes_what_the_product_needs(project):
    _, commands = project
    bootstrap.ensure_installed("dev")
    commands.clear()
    bootstrap.ensure_installed("base")
    assert commands == []


def test_only_files_with_known_digests_are_taken_and_torch_by_its_version(project):
    folder, commands = project
    bootstrap.ensure_installed("base")
    hashed, *more = [command for command in commands if "pip" in command]
    assert "--require-hashes" in hashed
    assert hashed[-1] == str(folder / "requirements" / "hashed" / "base.txt")
    assert not more
    commands.clear()
    bootstrap.ensure_installed("models")
    hashed, rest = [command for command in commands if "pip" in command]
    assert "--require-hashes" in hashed
    assert rest[-1] == str(folder / "requirements" / "models.txt")


PIN = re.compile(r"^([\w.-]+)(?:\[\w]+\])?==([^\s;]+)", re.MULTILINE)


def read_pins(name):
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return {canonicalize_name(one): version for one, version in PIN.findall(text)}


def find_needed(names):
    """These packages and all that they need on this machine, as it is installed."""
    found, waiting = set(), [(name, "") for name in names]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for text in metadata.requires(name) or ():
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(one.name)
                waiting += [(needed, part) for part in ("", *one.extras)]
    return {name for name, _ in found}


@pytest.mark.parametrize("kind", ["base", "models", "dev"])
def test_every_package_but_torch_has_digests_at_the_locked_version(kind):
    hashed, locked = read_pins(f"hashed/{kind}.txt"), read_pins("lock.txt")
    assert hashed.items() <= locked.items()
    files = {"base": ["base"], "models": ["base", "models"], "dev": ["base", "models", "dev"]}
    pinned = {
        name: version for one in files[kind] for name, version in read_pins(f"{one}.txt").items()
    }
    without_torch = set(pinned) - {"torch"}
    assert find_needed(without_torch) & set(locked) - {"torch"} <= set(hashed)
    assert find_needed(without_torch) - find_needed({"torch"}) <= set(hashed)


def test_who_may_not_install_what_the_settings_need_is_told_so(project, monkeypatch, capsys):
    bootstrap.ensure_installed("base")
    monkeypatch.setattr(bootstrap.os, "access", lambda *_: False)
    bootstrap.ensure_installed("base")
    with pytest.raises(SystemExit):
        bootstrap.ensure_installed("models")
    assert "python -m nura.bootstrap models" in capsys.readouterr().err


def test_local_models_are_installed_unless_endpoints_have_them_all(project, monkeypatch):
    folder, _ = project
    for name in ("EMBEDDING_BASE_URL", "RERANKER_MODEL", "RERANKER_BASE_URL", "VERIFIER_MODEL"):
        monkeypatch.delenv(f"NURA_{name}", raising=False)
    monkeypatch.delenv("NURA_DOTENV", raising=False)
    assert bootstrap.find_wanted_kind() == "models"
    (folder / ".env").write_text("export NURA_EMBEDDING_BASE_URL='http://127.0.0.1:9/v1'\n")
    assert bootstrap.find_wanted_kind() == "base"
    monkeypatch.setenv("NURA_RERANKER_MODEL", "m")
    assert bootstrap.find_wanted_kind() == "models"
    monkeypatch.setenv("NURA_RERANKER_BASE_URL", "http://127.0.0.1:9/v1")
    assert bootstrap.find_wanted_kind() == "base"


def test_what_the_product_runs_on_without_local_models_holds_no_torch():
    base = (ROOT / "requirements" / "base.txt").read_text()
    assert "torch" not in base
    assert "sentence-transformers" not in base
    assert "torch" in (ROOT / "requirements" / "models.txt").read_text()


def test_an_installation_that_failed_is_tried_again(project, monkeypatch):
    _, commands = project
    works = bootstrap.run_command
    monkeypatch.setattr(
        bootstrap, "run_command", lambda command: "pip" in command or works(command)
    )
    with pytest.raises(SystemExit):
        bootstrap.ensure_installed("base")
    monkeypatch.setattr(bootstrap, "run_command", works)
    commands.clear()
    bootstrap.ensure_installed("base")
    assert [command[2] for command in commands] == ["pip", "compileall"]


def test_a_torn_stamp_counts_as_nothing_installed(project):
    bootstrap.ensure_installed("base")
    bootstrap.STAMP.write_text('{"base": ')
    assert not bootstrap.is_current("base")


def test_an_old_python_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "MIN_PYTHON", (99, 0))
    with pytest.raises(SystemExit):
        bootstrap.ensure_installed("base")
    assert "needs Python" in capsys.readouterr().err


def test_it_needs_the_standard_library_only():
    code = "import nura.bootstrap, sys; print('django' in sys.modules, 'psutil' in sys.modules)"
    ran = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "False False\n"
