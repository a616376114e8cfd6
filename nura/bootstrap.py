"""Sets the project up from a bare Python, with the standard library only; prints to stderr only.

`python -m nura.bootstrap` installs what the current settings need, `... base` and `... models` the
product without and with local models, `... dev` also the checks and tests, `... bench` also what
the benchmarks compare with.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "nura-requirements.json"
MIN_PYTHON = (3, 11)
FILES = {
    "base": ("base.txt", "lock.txt", "hashed/base.txt"),
    "models": ("base.txt", "lock.txt", "models.txt", "hashed/models.txt"),
    "dev": ("base.txt", "lock.txt", "models.txt", "dev.txt", "hashed/dev.txt"),
    "bench": ("base.txt", "lock.txt", "models.txt", "dev.txt", "bench.txt", "hashed/dev.txt"),
}
PACKAGES = {
    "base": ("django", "uvicorn"),
    "models": ("django", "uvicorn", "sentence_transformers", "torch"),
}
"""Packages that show that a kind is installed."""
SELDOM_IMPORTED = (
    r"/site-packages/(.*/tests?/|transformers/models/|torch/(_inductor|testing)/|moto/|mypyc?/"
    r"|networkx/|setuptools/)"
)
"""Files that are not precompiled: a third of all, hardly any of which is ever loaded."""
BROWSERS = (
    *("chromium-headless-shell", "chromium", "chromium-browser"),
    *("google-chrome", "google-chrome-stable"),
)
"""Programs that the browser tests can drive; the first is the lightest, as it draws no window."""


def enter_environment() -> None:
    """Continue here if the packages are installed, else inside `.venv`, created if needed."""
    kind = find_wanted_kind()
    if all(map(importlib.util.find_spec, PACKAGES[kind])) or (
        importlib.util.find_spec("django") and Path(sys.prefix) != VENV
    ):  # an environment that is not ours is left alone; `doctor` says what it lacks
        return
    ensure_installed(kind)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])  # noqa: S606 - the same program, another Python


def find_wanted_kind() -> str:
    """What the settings need: "base" if every model has an endpoint, else "models"."""
    settings = read_dotenv(Path(os.environ.get("NURA_DOTENV") or ROOT / ".env")) | os.environ

    def is_set(name: str) -> bool:
        return bool(settings.get(name, "").strip())

    reranks_here = is_set("NURA_RERANKER_MODEL") and not is_set("NURA_RERANKER_BASE_URL")
    if is_set("NURA_EMBEDDING_BASE_URL") and not reranks_here and not is_set("NURA_VERIFIER_MODEL"):
        return "base"
    return "models"


def read_dotenv(path: Path) -> "dict[str, str]":
    """The `NAME=value` lines of a file; the first one for a name counts."""
    values: dict[str, str] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            name, separator, value = line.partition("=")
            if separator and not line.lstrip().startswith("#"):
                name = name.strip().removeprefix("export ")
                values.setdefault(name, value.strip().strip("\"'"))
    return values


def ensure_installed(kind: str) -> None:
    """Create `.venv` and install `requirements/`, unless that has been done."""
    if sys.version_info < MIN_PYTHON:
        exit_with(f"Nura needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
    if is_current(kind):
        return
    if not os.access(VENV if VENV.exists() else ROOT, os.W_OK):
        exit_with(
            f"requirements/{kind}.txt is not installed, and this user may not write to {VENV}: run "
            f"`python -m nura.bootstrap {kind}` as its owner, or change the settings that need it."
        )
    with hold_lock():
        if is_current(kind):  # another process did it while we waited
            return
        if not PYTHON.exists():
            make_venv()
        print_message(
            f"Installing requirements/{kind}.txt into .venv (once; this takes some minutes)"
        )
        install_packages(kind)
        write_stamp(kind)


def hash_requirements(kind: str) -> str:
    """A digest of a kind's requirement files."""
    sha = hashlib.sha256()
    for name in FILES[kind]:
        sha.update((ROOT / "requirements" / name).read_bytes() + b"\0")
    return sha.hexdigest()


def is_current(kind: str) -> bool:
    """Whether exactly these requirements were installed."""
    return PYTHON.exists() and read_stamps().get(kind) == hash_requirements(kind)


def read_stamps() -> "dict[str, str]":
    """Digests of the installed requirements, by kind."""
    try:
        return dict(json.loads(STAMP.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return {}


def write_stamp(kind: str) -> None:
    """Record what is installed; each kind includes those before it."""
    kinds = list(FILES)[: list(FILES).index(kind) + 1]
    stamps = dict(read_stamps(), **{name: hash_requirements(name) for name in kinds})
    draft = STAMP.with_suffix(".new")
    draft.write_text(json.dumps(stamps), encoding="ascii")
    draft.replace(STAMP)


def make_venv() -> None:
    """Make `.venv` with the running Python."""
    print_message(f"Making .venv with Python {sys.version.split()[0]}")
    command = [sys.executable, "-m", "venv", str(VENV)]
    if run_command(command) and not (install_with_apt("python3-venv") and not run_command(command)):
        exit_with(
            "This Python cannot make virtual environments: install python3-venv and try again."
        )


def install_packages(kind: str) -> None:
    """Install one kind's requirements with pip: first those with pinned digests, torch last.

    torch's builds with and without CUDA have different digests, so it is pinned by version alone,
    as are the packages only it needs and those of the benchmarks.
    """
    requirements = next(name for name in FILES[kind] if name.startswith("hashed/"))
    pip_install("--require-hashes", "--no-deps", "-r", str(ROOT / "requirements" / requirements))
    if kind != "base":
        pip_install("-r", str(ROOT / "requirements" / f"{kind}.txt"))
    # pip would compile files one by one, including those never imported. Some files cannot be
    # compiled and are not meant to be imported, so the exit code means nothing.
    options = ["-qq", "-j", "0", "-x", SELDOM_IMPORTED]
    run_command([str(PYTHON), "-m", "compileall", *options, str(VENV / "lib")])


def pip_install(*arguments: str) -> None:
    """Run pip in `.venv`."""
    options = ["--disable-pip-version-check", "--no-input", "--quiet", "--no-compile"]
    if run_command([str(PYTHON), "-m", "pip", "install", *options, *arguments]):
        exit_with(f"pip could not install {arguments[-1]} (its words are above).")


def ensure_browser() -> None:
    """For the browser tests: a Chromium and a font for Korean, installed where possible."""
    has_browser = any(map(shutil.which, BROWSERS)) or install_with_apt(BROWSERS[0])
    missing = [] if has_browser else ["chromium"]
    missing += [] if has_korean_font() else ["fonts-noto-cjk"]
    if missing and not install_with_apt(*missing):
        print_message(f"The browser tests will be skipped: please install {' '.join(missing)}.")


def ensure_recognition() -> None:
    """For the tests of scanned pages: tesseract with Korean, installed where possible."""
    if not (shutil.which("tesseract") or install_with_apt("tesseract-ocr", "tesseract-ocr-kor")):
        print_message(
            "The tests of text recognition will be skipped: please install tesseract-ocr-kor."
        )


def has_korean_font() -> bool:
    """Whether fontconfig knows a font for Korean; True if it cannot be asked."""
    listing = shutil.which("fc-list")
    if not listing:
        return Path("/usr/share/fonts/opentype/noto").is_dir()
    result = subprocess.run([listing, ":lang=ko", "family"], capture_output=True, check=False)
    return bool(result.stdout.strip())


def install_with_apt(*packages: str) -> bool:
    """Install Debian packages if permitted; whether it worked."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    print_message(f"Installing {' '.join(packages)}")
    run_command(["apt-get", "update", "-qq"])
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq"]
    return not run_command([*quiet, "--no-install-recommends", *packages])


@contextlib.contextmanager
def hold_lock() -> "Iterator[None]":
    """Hold the lock for one set-up at a time; the kernel releases it with the process."""
    VENV.mkdir(exist_ok=True)
    with (VENV / ".lock").open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_command(command: "list[str]") -> int:
    """Run a command with all its output on stderr; its exit code."""
    result = subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False)
    return result.returncode


def print_message(sentence: str) -> None:
    """Print a message for the user."""
    sys.stderr.write(f"nura: {sentence}\n")
    sys.stderr.flush()


def exit_with(sentence: str) -> "NoReturn":
    """Exit with a reason."""
    print_message(sentence)
    sys.exit(1)


if __name__ == "__main__":
    asked = sys.argv[1] if len(sys.argv) > 1 else find_wanted_kind()
    ensure_installed(asked)
    if asked == "dev":
        ensure_browser()
        ensure_recognition()
