"""Sets the project up from a bare Python, with the standard library only; speaks on stderr only.

`python -m nura.bootstrap` for what the product runs on, `python -m nura.bootstrap dev` for the tests too.
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

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "nura-requirements.json")
LEAST = (3, 11)
FILES = {"base": ("base.txt", "lock.txt"), "dev": ("base.txt", "lock.txt", "dev.txt")}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def enter():
    """Go on in this process when the packages are here, else inside `.venv`, made first if need be."""
    if importlib.util.find_spec("django") and importlib.util.find_spec("uvicorn"):
        return
    ensure("base")
    os.execv(PYTHON, [PYTHON, *sys.argv])


def ensure(kind):
    """Make `.venv` and install what `requirements/` asks for, unless that was done before."""
    if sys.version_info < LEAST:
        stop("Nura needs Python 3.11 or newer; this is {}.{}.".format(*sys.version_info[:2]))
    if is_current(kind):
        return
    with alone():
        if is_current(kind):  # somebody else did it while we waited
            return
        if not os.path.exists(PYTHON):
            make_venv()
        say("Installing requirements/{}.txt into .venv (once; this takes some minutes)".format(kind))
        install(kind)
        remember(kind)


def digest(kind):
    """What the requirement files of a kind say now."""
    sha = hashlib.sha256()
    for name in FILES[kind]:
        with open(os.path.join(ROOT, "requirements", name), "rb") as file:
            sha.update(file.read() + b"\0")
    return sha.hexdigest()


def is_current(kind):
    """Whether exactly these requirements were installed."""
    return os.path.exists(PYTHON) and stamps().get(kind) == digest(kind)


def stamps():
    """What was installed, by kind."""
    try:
        with open(STAMP, encoding="ascii") as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def remember(kind):
    """Note what is installed; the tests' requirements include the product's."""
    kinds = ("base", "dev") if kind == "dev" else ("base",)
    noted = dict(stamps(), **{name: digest(name) for name in kinds})
    with open(STAMP + ".new", "w", encoding="ascii") as file:
        json.dump(noted, file)
    os.replace(STAMP + ".new", STAMP)


def make_venv():
    """Make `.venv` with the running Python."""
    say("Making .venv with Python {}.{}".format(*sys.version_info[:2]))
    command = [sys.executable, "-m", "venv", VENV]
    if run(command) and not (apt("python3-venv") and not run(command)):
        stop("This Python cannot make virtual environments: install python3-venv and try again.")


def install(kind):
    """Install one requirements file with pip."""
    file = os.path.join(ROOT, "requirements", kind + ".txt")
    options = ["--disable-pip-version-check", "--no-input", "--quiet"]
    if run([PYTHON, "-m", "pip", "install", *options, "-r", file]):
        stop("pip could not install {} (its words are above).".format(file))


def browser():
    """For the browser tests: a Chromium and a font with Korean letters, installed where possible."""
    missing = [] if any(map(shutil.which, BROWSERS)) else ["chromium"]
    missing += [] if has_korean_font() else ["fonts-noto-cjk"]
    if missing and not apt(*missing):
        say("The browser tests will be skipped: please install {}.".format(" ".join(missing)))


def has_korean_font():
    """Whether fontconfig knows a font for Korean; yes where it cannot be asked."""
    listing = shutil.which("fc-list")
    if not listing:
        return os.path.isdir("/usr/share/fonts/opentype/noto")
    return bool(subprocess.run([listing, ":lang=ko", "family"], capture_output=True).stdout.strip())


def apt(*packages):
    """Install Debian packages when we may; whether it worked."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    say("Installing {}".format(" ".join(packages)))
    run(["apt-get", "update", "-qq"])
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq"]
    return not run([*quiet, "--no-install-recommends", *packages])


@contextlib.contextmanager
def alone():
    """One set-up at a time; the kernel ends the lock with the process."""
    os.makedirs(VENV, exist_ok=True)
    with open(os.path.join(VENV, ".lock"), "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command):
    """Run a command with all its output on stderr; its exit code."""
    return subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode


def say(sentence):
    """Tell the person at the console."""
    sys.stderr.write("nura: {}\n".format(sentence))
    sys.stderr.flush()


def stop(sentence):
    """Give up with a reason."""
    say(sentence)
    sys.exit(1)


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else "base"
    ensure(wanted)
    if wanted == "dev":
        browser()
