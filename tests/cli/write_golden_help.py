"""Writes the golden help texts again: `python -m tests.cli.write_golden_help`. Read the diff."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from broker_core.cli.main import COMMANDS, main

GOLDEN = Path(__file__).parent / "golden"


def _shown(*words: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
        main(words)
    return output.getvalue()


if __name__ == "__main__":
    (GOLDEN / "rmq.txt").write_text(_shown("--help"), encoding="utf-8")
    for name in COMMANDS:
        text = _shown(name, "--help")
        body = text[text.index("\n\n") + 2 :]
        (GOLDEN / f"{name}.txt").write_text(body, encoding="utf-8")
