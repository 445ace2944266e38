"""Executes the example notebooks and stores their outputs, without noise.

    python tools/run_notebooks.py [examples/notebooks/NAME.ipynb …]

`RMQ_NAME_SERVER` names the Apache cluster of the last one. The tests execute the notebooks, too,
and leave the files alone (tests/spark/test_notebooks.py).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "examples" / "notebooks"
# Seconds for one cell; a query may be slow on a busy machine.
_CELL_LIMIT_S = 600


def executed(path: Path, directory: Path, variables: dict[str, str] | None = None) -> Any:
    """Run the notebook in `directory`, return it with outputs. Raises the error of a cell."""
    notebook = nbformat.read(path, as_version=4)
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **(variables or {}),
    }
    client = NotebookClient(
        notebook,
        timeout=_CELL_LIMIT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(directory)}},
    )
    return client.execute(env=environment)


def without_noise(notebook: Any) -> Any:
    """Outputs of cells only: no logs of Spark, times of execution or versions of this machine."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [
                output
                for output in cell.outputs
                if not (output.output_type == "stream" and output.name == "stderr")
            ]
            for output in cell.outputs:
                output.pop("metadata", None)
                if output.output_type != "stream":
                    output.metadata = {}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as directory:
            notebook = without_noise(executed(path, Path(directory)))
        text = nbformat.writes(notebook)
        path.write_text(f"{text.rstrip()}\n", encoding="utf-8")
        print(f"{path.name}: {len(text):,} characters")


if __name__ == "__main__":
    main()
