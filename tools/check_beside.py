"""Installs a wheel beside packages that users have with Spark.

    python tools/check_beside.py dist/pyspark_rmq-….whl

One new virtualenv with Spark, JupyterLab, Delta Lake and Iceberg: pip must find versions that
agree, `pip check` must be clean, and all of them must import.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

# Distribution -> module.
BESIDE = {"jupyterlab": "jupyterlab", "delta-spark": "delta", "pyiceberg": "pyiceberg"}
SHOWN = ("pyspark-rmq", "pyspark", "pandas", "pyarrow", "numpy", *BESIDE)


def check(wheel: Path) -> None:
    """Raises on the first problem."""
    with tempfile.TemporaryDirectory(prefix="rmq-beside-") as directory:
        venv.create(directory, with_pip=True)
        python = str(Path(directory, "bin", "python"))
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        imports = "; ".join(f"import {name}" for name in ("pyspark_rmq", *BESIDE.values()))
        for command in (
            [*install, f"{wheel.resolve()}[spark]", *BESIDE],
            [python, "-m", "pip", "check"],
            [python, "-c", imports],
        ):
            subprocess.run(command, check=True, cwd=directory)
        frozen = subprocess.run(
            [python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
            check=True,
            capture_output=True,
            text=True,
        )
    # pip prints some names with an underscore.
    lines = frozen.stdout.replace("_", "-").splitlines()
    versions = dict(line.split("==") for line in lines if "==" in line)
    print(", ".join(f"{name} {versions.get(name)}" for name in SHOWN))


if __name__ == "__main__":
    check(Path(sys.argv[1] if len(sys.argv) == 2 else sys.exit("give a wheel")))
