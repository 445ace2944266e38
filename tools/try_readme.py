"""Pastes the README's blocks, twice, with only a wheel: `python tools/try_readme.py WHEEL`.

A new virtualenv with the wheel and Spark, and an empty directory. Python blocks are programs, the
commands of a broker run as shown: the server in the background, then each client. The first Python
block must print 1000 at first and 2000 the second time. Needs Java.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
SHELL = "rmq standalone "
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and text of each block that can be pasted; `pip` and `make` are not run."""
    found = _BLOCK.findall(text)
    return [(kind, body) for kind, body in found if kind == "python" or body.startswith(SHELL)]


def paste(body: str, directory: Path, environment: dict[str, str]) -> str:
    """Run a Python block as a program; returns what it prints."""
    done = subprocess.run(
        ["python", "-c", body],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def run_commands(body: str, directory: Path, environment: dict[str, str]) -> str:
    """The first line is a server, which stays until the others have run."""
    server, *clients = [line.partition("#")[0].strip() for line in body.splitlines()]
    with subprocess.Popen(
        server.split(), cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert "ready" in ready, ready
            shown = ""
            for client in clients:
                shown += subprocess.run(
                    ["bash", "-c", client],
                    cwd=directory,
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                ).stdout
        finally:
            process.terminate()
    assert process.returncode == 0, process.returncode
    return shown


def main(wheel: Path) -> None:
    """Raises on the first block that fails."""
    with tempfile.TemporaryDirectory(prefix="rmq-readme-") as name:
        directory = Path(name)
        venv.create(directory / "venv", with_pip=True)
        # As `source venv/bin/activate` does.
        path = f"{directory / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(directory / "venv")}
        for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "NAMESRV_ADDR"):
            environment.pop(variable, None)
        install = ["python", "-m", "pip", "install", "--quiet", f"{wheel.resolve()}[spark]"]
        for command in (install, ["rmq", "doctor"]):
            subprocess.run(command, check=True, cwd=directory, env=environment)
        for turn in (1, 2):
            for number, (kind, body) in enumerate(blocks(README.read_text(encoding="utf-8"))):
                run = paste if kind == "python" else run_commands
                shown = run(body, directory, environment).splitlines()
                print(f"turn {turn}, block {number + 1}: {shown[-1] if shown else ''}")
                if number == 0:
                    assert shown[-1] == str(1000 * turn), shown


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) == 2 else sys.exit("give a wheel")))
