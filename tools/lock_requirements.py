"""Writes `requirements.lock`: every package that the tests and the examples install, with hashes.

    python tools/lock_requirements.py

Versions are those that pip chooses today for this interpreter; hashes are those of all files of
that version, so that other systems can use the list as well. `make audit` looks the versions up
among known vulnerabilities; `pip install --require-hashes -r requirements.lock` installs exactly
these files and refuses any other.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
INDEX = "https://pypi.org/simple/"
_LINK = re.compile(r"#sha256=([0-9a-f]{64})[^>]*>\s*([^<\s]+)\s*</a>")


def chosen_versions() -> dict[str, str]:
    """What pip would install, by normalised name."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), f"{ROOT}[dev,spark]"]
        subprocess.run(command, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))
    names = [item["metadata"] for item in found["install"]]
    versions = {_normal(item["name"]): item["version"] for item in names}
    del versions["pyspark-rmq"]
    return versions


def index_url() -> str:
    """The index that pip is configured for."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip().rstrip("/") + "/" if done.returncode == 0 else INDEX


def hashes(index: str, name: str, version: str) -> list[str]:
    """Of every file of a version, sorted."""
    with urllib.request.urlopen(f"{index}{name}/", timeout=60) as answer:
        page = answer.read().decode("utf-8")
    found = set()
    for file_hash, file_name in _LINK.findall(page):
        stem = _normal(file_name)
        if stem.startswith(f"{name}-{_normal(version)}-") and not file_name.endswith(".metadata"):
            found.add(file_hash)
    return sorted(found)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Write the file."""
    index = index_url()
    lines = ["# Made by tools/lock_requirements.py; do not edit."]
    for name, version in sorted(chosen_versions().items()):
        found = hashes(index, name, version)
        if not found:
            sys.stderr.write(f"no hash for {name} {version}\n")
            return 1
        lines.append(
            " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{h}" for h in found)])
        )
    LOCK.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{LOCK.name}: {len(lines) - 1} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
