"""Writes `requirements.lock`: every package that the virtualenv gets, with hashes.

    python tools/lock_requirements.py [--upgrade]

One file for Python 3.10 and newer on every system: where versions differ by interpreter, an entry
per version with a marker. Hashes are those of all files of a version. `tools/make_venv.sh` installs
with `--require-hashes`, so any other file is refused; `make audit` looks the versions up among
known vulnerabilities. Versions stay as they are unless `setup.py` asks for others or `--upgrade`
is given.

pip and what builds this package (setuptools) are pinned as well, because the package is built
without an environment of its own, which pip would fill without hashes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
OLDEST_PYTHON = "3.10"
# pip chooses for the interpreter that it runs on; this tool chooses for all of them.
RESOLVER = "uv>=0.11,<1"
HEADER = "# Made by tools/lock_requirements.py; do not edit.\n"


def resolved(upgrade: bool) -> str:
    """The entries for all extras of `setup.py` that `make_venv.sh` installs, and for pip."""
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        python = Path(directory, "bin", "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, RESOLVER], check=True)
        also = Path(directory, "also.in")
        also.write_text("pip\n", encoding="utf-8")
        # The file that it would replace tells it which versions to keep.
        output = Path(directory, LOCK.name)
        if LOCK.exists() and not upgrade:
            output.write_text(LOCK.read_text(encoding="utf-8"), encoding="utf-8")
        command = [python, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
        command += ["--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-header"]
        command += ["--no-annotate", "--extra", "dev", "--extra", "spark"]
        command += ["--output-file", output, ROOT / "setup.py", also]
        subprocess.run(command, check=True, cwd=ROOT)
        return output.read_text(encoding="utf-8")


def main() -> int:
    """Write the file."""
    entries = resolved("--upgrade" in sys.argv[1:])
    LOCK.write_text(HEADER + entries, encoding="utf-8")
    print(f"{LOCK.name}: {sum('==' in line[:40] for line in entries.splitlines())} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
