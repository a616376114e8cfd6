"""What Nura is made of: `make hashes`, `make audit`, `make sbom`. Run by the Python of `.tools`.

`requirements/hashed/KIND.txt` has all packages of a kind with the digests of their files in the
index, so that an installation takes nothing else. torch is not among them: its build for machines
without a GPU comes from another place than the index and has other digests, and with digests pip
would take the build with CUDA, 3 GB more. It is installed last, by its version alone.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements"
HASHED = REQUIREMENTS / "hashed"
BIN = Path(sys.executable).parent
KINDS = ("base", "models", "dev")
UNHASHED = "torch"
HEADER = "# All packages of {kind}.txt with their digests, but torch. Written by `make hashes`.\n"
NAME = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)
UNKNOWN = "could not be audited"


def normalise(name):
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(path):
    """The versions that a requirements file fixes, by name."""
    found = NAME.findall(path.read_text(encoding="utf-8"))
    return {normalise(name): version for name, version in found}


def write_hashes():
    """Write `requirements/hashed`. Packages outside lock.txt are torch's own and left out."""
    HASHED.mkdir(exist_ok=True)
    locked = read_pins(REQUIREMENTS / "lock.txt")
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "out.txt"
            command = [BIN / "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
            command += ["--python-version", "3.11", "--no-annotate", "--no-header", "-o", output]
            files = [REQUIREMENTS / f"{kind}.txt", "-c", REQUIREMENTS / "lock.txt"]
            subprocess.run([*command, *files], check=True)
            entries = re.split(r"\n(?=\S)", output.read_text(encoding="utf-8").strip())
        kept = [one for one in entries if normalise(NAME.match(one)[1]) in set(locked) - {UNHASHED}]
        text = HEADER.format(kind=kind) + "\n".join(kept) + "\n"
        (HASHED / f"{kind}.txt").write_text(text, encoding="utf-8")


def audit(osv_url="", lock=REQUIREMENTS / "lock.txt"):
    """Ask for known vulnerabilities of all pinned packages; the exit status, 0 where none is known.

    Without a network nothing is known either way: that is said, and is a failure in CI only.
    """
    statuses = [audit_python(osv_url, lock)]
    if not osv_url:
        statuses.append(audit_scripts())
    return max(statuses)


def audit_python(osv_url, lock):
    """The Python packages, from OSV."""
    service = ["--vulnerability-service", "osv", *(["--osv-url", osv_url] if osv_url else [])]
    command = [BIN / "pip-audit", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
    done = subprocess.run(
        [*command, *service, "--format", "json", "-r", lock],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return tell_unknown("Python packages", (done.stderr.strip().splitlines() or ["?"])[-1])
    vulnerable = [one for one in packages if one.get("vulns")]
    for one in vulnerable:
        for hole in one["vulns"]:
            fixed = ", ".join(hole["fix_versions"]) or "no version yet"
            print(f"{one['name']} {one['version']}: {hole['id']}, fixed in {fixed}")
    skipped = sum("skip_reason" in one for one in packages)
    print(f"Python packages: {len(packages)}, {len(vulnerable)} vulnerable, {skipped} {UNKNOWN}")
    return 1 if vulnerable else 0


def audit_scripts():
    """The packages of the front end, from the registry."""
    packages = "Packages of the front end"
    npm = shutil.which("npm")
    if npm is None:
        return tell_unknown(packages, "npm is not installed")
    done = subprocess.run(
        [npm, "--prefix", ROOT / "front", "audit", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout)["metadata"]["vulnerabilities"]["total"]
    except (ValueError, KeyError):
        return tell_unknown(packages, "the registry does not answer that")
    print(f"{packages}: {found} vulnerable")
    return 1 if found else 0


def tell_unknown(packages, reason):
    """Say why nothing is known of these packages; the exit status."""
    print(f"{packages}: {UNKNOWN}: {reason}")
    return 1 if os.environ.get("CI") else 0


def write_sbom(folder):
    """Write the bill of materials (CycloneDX JSON): the environment, and what the pages load."""
    path = folder / "nura.cdx.json"
    command = [BIN / "cyclonedx-py", "environment", ROOT / ".venv" / "bin" / "python"]
    subprocess.run([*command, "--output-reproducible", "-o", path], check=True)
    bill = json.loads(path.read_text(encoding="utf-8"))
    lock = json.loads((ROOT / "front" / "package-lock.json").read_text(encoding="utf-8"))
    for place, package in sorted(lock["packages"].items()):
        if place and not package.get("dev"):
            name = place.rpartition("node_modules/")[2]
            purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
            licences = [{"license": {"name": package["license"]}}] if "license" in package else []
            bill["components"].append(
                {
                    "type": "library",
                    "bom-ref": purl,
                    "name": name,
                    "version": package["version"],
                    "purl": purl,
                    "licenses": licences,
                }
            )
    path.write_text(json.dumps(bill, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path}: {len(bill['components'])} packages")


def main():
    """Do what the first argument says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("hashes", "audit", "sbom"))
    parser.add_argument("--osv-url", default="", help="another source of vulnerabilities")
    parser.add_argument("--lock", type=Path, default=REQUIREMENTS / "lock.txt")
    parser.add_argument("--folder", type=Path, default=ROOT)
    given = parser.parse_args()
    if given.what == "hashes":
        write_hashes()
    elif given.what == "audit":
        sys.exit(audit(given.osv_url, given.lock))
    else:
        write_sbom(given.folder)


if __name__ == "__main__":
    main()
