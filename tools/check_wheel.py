"""Tries a wheel in a new virtualenv: `python tools/check_wheel.py dist/*.whl`.

Installs the wheel without anything of the repository, then checks what users rely on: both packages
import from site-packages with their types and version, the dependencies agree, an embedded broker
takes and returns messages, and errors can be looked up.
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
    assert package.__version__ == sys.argv[1], package.__version__
from pyspark_rmq import EmbeddedBroker
with EmbeddedBroker(topics={"t": 2}) as broker:
    broker.produce("t", ["a", "b", "c"])
    assert sorted(m.body for m in broker.consume("t")) == [b"a", b"b", b"c"]
"""


def check(wheel: Path) -> None:
    """Raises on the first thing that is wrong."""
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in REQUIRED if name not in names]
    strays = sorted(name for name in names if name.startswith(("tests/", "benchmarks/")))
    if missing or strays:
        raise SystemExit(f"{wheel.name}: missing {missing}, should not be there: {strays[:5]}")
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory(prefix="rmq-wheel-") as directory:
        venv.create(directory, with_pip=True)
        python = str(Path(directory, "bin", "python"))
        rmq = str(Path(directory, "bin", "rmq"))
        for command in (
            [python, "-m", "pip", "install", "--quiet", str(wheel.resolve())],
            [python, "-m", "pip", "check"],
            [python, "-c", TRY, version],
            [rmq, "--version"],
            [rmq, "explain", "kafka-options"],
            [rmq, "quickstart", "--exit"],
        ):
            # Not from the repository, whose folders would be imported instead.
            subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL)
    print(f"{wheel.name}: installed and tried")


if __name__ == "__main__":
    for given in sys.argv[1:] or sys.exit("give a wheel"):
        check(Path(given))
