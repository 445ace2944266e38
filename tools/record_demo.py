"""Runs `make demo` and draws what it prints: `python tools/record_demo.py [PICTURE]`.

The lines appear one after the other, as far apart as they were, in a tenth of the time; then the
picture stays. Left out are the lines that Spark writes to stderr. Needs Java.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "demo.svg"
DEMO: Final = ROOT / "examples" / "pipeline_demo.py"
COMMAND: Final = "$ make demo"
# How many times as fast as it was.
_SPEED: Final = 10
_FONT_SIZE, _CHARACTER, _LINE, _MARGIN = 14, 8.43, 22, 16
_BACKGROUND, _TEXT, _PROMPT, _KILL, _PROOF = "#1b1f24", "#d6dae0", "#8b949e", "#ff9c6b", "#6fd388"


class Shown(NamedTuple):
    """A line, and the seconds from the start until it was printed."""

    text: str
    at_s: float


def recorded(command: Sequence[str]) -> list[Shown]:
    """Run a command; returns what it prints. Raises `CalledProcessError` if it fails."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    started = time.monotonic()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        shown = [Shown(line.rstrip("\n"), time.monotonic() - started) for line in process.stdout]
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return shown


def drawn(lines: Sequence[Shown]) -> str:
    """A terminal with these lines, as SVG."""
    rows = [Shown(COMMAND, 0.0), *lines]
    width = round(max(len(row.text) for row in rows) * _CHARACTER + 2 * _MARGIN)
    height = len(rows) * _LINE + 2 * _MARGIN
    texts = "\n".join(
        f'<text x="{_MARGIN}" y="{_MARGIN + _LINE * number + _FONT_SIZE}"'
        f' fill="{_colour(row.text)}"'
        f' style="animation-delay:{row.at_s / _SPEED:.1f}s">{escape(row.text)}</text>'
        for number, row in enumerate(rows)
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" aria-label="Output of make demo">
<style>
text {{ font: {_FONT_SIZE}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
white-space: pre; animation: appear 0.2s backwards }}
@keyframes appear {{ from {{ opacity: 0 }} }}
@media (prefers-reduced-motion: reduce) {{ text {{ animation: none }} }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="{_BACKGROUND}"/>
{texts}
</svg>
"""


def _colour(text: str) -> str:
    if text == COMMAND:
        return _PROMPT
    if "killed" in text:
        return _KILL
    return _PROOF if text.startswith("in: ") else _TEXT


def main(picture: Path) -> None:
    """Record and draw."""
    lines = recorded([sys.executable, str(DEMO)])
    picture.write_text(drawn(lines), encoding="utf-8")
    print(f"{picture}: {len(lines)} lines, the last one after {lines[-1].at_s:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
