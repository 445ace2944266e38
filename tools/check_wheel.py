"""Tries a wheel as a user would, without anything of the repository.

    python tools/check_wheel.py dist/*.whl       in a new virtualenv for each
    python tools/check_wheel.py --installed      what is installed beside this Python

Checks what users rely on: both packages import from site-packages with their types and version, the
dependencies agree, an embedded broker takes and returns messages, and errors can be looked up.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

REQUIRED = ("broker_core/py.typed", "pyspark_rmq/py.typed", "pyspark_rmq/docs/errors.md")
TRY = """
import sys
from pathlib import Path
import broker_core, pyspark_rmq
for package in (broker_core, pyspark_rmq):
    assert Path(package.__file__).is_relative_to(sys.prefix), package.__file__
    assert Path(package.__file__).with_name("py.typed").exists(), package.__file__
assert broker_core.__version__ == pyspark_rmq.__version__
wanted = sys.argv[1:]
assert not wanted or [broker_core.__version__, broker_core.codec_backend()] == wanted, wanted
from pyspark_rmq import EmbeddedBroker
with EmbeddedBroker(topics={"t": 2}) as broker:
    broker.produce("t", ["a", "b", "c"])
    assert sorted(m.body for m in broker.consume("t")) == [b"a", b"b", b"c"]
"""


def check_files(wheel: Path) -> None:
    """Check that the wheel has the files that it should have, and no others."""
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in REQUIRED if name not in names]
    strays = sorted(name for name in names if name.startswith(("tests/", "benchmarks/")))
    if missing or strays:
        raise SystemExit(f"{wheel.name}: missing {missing}, should not be there: {strays[:5]}")


def check(wheel: Path) -> None:
    """Raises on the first problem."""
    check_files(wheel)
    _, version, _, _, platform = wheel.stem.split("-")
    backend = "python" if platform == "any" else "native"
    with tempfile.TemporaryDirectory(prefix="rmq-wheel-") as directory:
        venv.create(directory, with_pip=True)
        python = Path(directory, "bin", "python")
        _run(directory, python, "-m", "pip", "install", "--quiet", wheel.resolve())
        _run(directory, python, "-m", "pip", "check")
        check_installed(directory, python, version, backend)
    print(f"{wheel.name}: installed and tried ({backend} codec)")


def check_installed(directory: str, python: Path, *expected: str) -> None:
    """Try the package that `python` has."""
    _run(directory, python, "-c", TRY, *expected)
    for words in (["--version"], ["explain", "kafka-options"], ["quickstart", "--exit"]):
        _run(directory, python.with_name("rmq"), *words)


def _run(directory: str, *command: object) -> None:
    # Not in the repository, where its folders would be imported instead of the package.
    words = [str(word) for word in command]
    subprocess.run(words, check=True, cwd=directory, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    given = sys.argv[1:] or sys.exit("give a wheel, or --installed")
    if given == ["--installed"]:
        with tempfile.TemporaryDirectory(prefix="rmq-wheel-") as elsewhere:
            check_installed(elsewhere, Path(sys.executable))
        given = []
    for wheel in given:
        check(Path(wheel))
