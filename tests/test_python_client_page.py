"""The code of docs/python-client.md runs as one script and prints what its comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PAGE = PROJECT / "docs" / "python-client.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)


def test_the_examples_print_what_their_comments_say(tmp_path: Path) -> None:
    script = "\n".join(_BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    (tmp_path / "page.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = _PRINTED.findall(script)
    assert done.stdout.splitlines() == expected
    assert len(expected) == script.count("print(")


def test_the_page_names_every_client_class() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in ("Producer", "TransactionProducer", "PullConsumer", "PushConsumer", "Admin"):
        assert f"| `{name}` | `Sync{name}` |" in text
