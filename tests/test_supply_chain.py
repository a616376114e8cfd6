"""What Nura is made of: its licences, and what the audit does with a hole that is known."""

import json
import os
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".tools" / "bin"
PLANTED = "django"
FREE = re.compile(
    r"MIT|BSD|APACHE|ISC|MPL|MOZILLA|PSF|PYTHON SOFTWARE FOUNDATION|ZLIB|CC0|UNLICENSE|HPND|LGPL|"
    r"DFSG APPROVED"
)
"""Licences under which a product may use a package without taking over its terms."""
OF_THE_WORKSHOP = {"djlint"}
"""Programs that look at the source and are part of no installation; their licence is the GPL."""


def read_pins(name):
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*?\])?==", text, re.MULTILINE)


def find_licence(name):
    """As the package states it; empty where it is of another system and not here."""
    try:
        told = metadata(name)
    except PackageNotFoundError:
        return ""
    kinds = [one for one in told.get_all("Classifier", []) if one.startswith("License")]
    first = (told.get("License") or "").strip().partition("\n")[0]
    return told.get("License-Expression") or "; ".join(kinds) or first or "none"


def test_every_package_is_under_a_licence_that_binds_nobody():
    told = {name: find_licence(name) for name in read_pins("lock.txt")}
    bound = {name: one for name, one in told.items() if one and not FREE.search(one.upper())}
    assert bound.keys() <= OF_THE_WORKSHOP, bound
    assert not OF_THE_WORKSHOP & {name.lower() for name in read_pins("base.txt")}


@pytest.fixture
def holes():
    """Where the audit asks: it knows of one hole, in the package that is planted."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(query["package"]["name"])
            package = {"name": PLANTED, "ecosystem": "PyPI"}
            ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.0"}]}]
            hole = {"id": "PYSEC-PLANTED", "affected": [{"package": package, "ranges": ranges}]}
            told = {"vulns": [hole]} if asked[-1] == PLANTED else {}
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/query"
    server.shutdown()
    server.server_close()


def audit(address, tmp_path, *pins):
    lock = tmp_path / "lock.txt"
    lock.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
    script = ROOT / "deploy" / "supply_chain.py"
    command = [TOOLS / "python", script, "audit", "--osv-url", address, "--lock", lock]
    place = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CI": "true"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=place)


@pytest.mark.skipif(not (TOOLS / "pip-audit").exists(), reason="make .tools/made first")
def test_c100_a_planted_hole_makes_the_audit_red(holes, tmp_path):
    done = audit(holes, tmp_path, "django==5.2.0", "pillow==13.0.0")
    assert done.returncode == 1
    assert "django 5.2.0: PYSEC-PLANTED, fixed in 99.0" in done.stdout
    assert audit(holes, tmp_path, "pillow==13.0.0").returncode == 0
    unknown = audit("http://127.0.0.1:1/", tmp_path, "pillow==13.0.0")
    assert unknown.returncode == 1  # what nobody could ask is not clean
