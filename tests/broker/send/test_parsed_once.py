"""Each plain send is parsed once, with the native codec and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.native import codec_backend
from tests.broker.send.counted_parses import SENDS

ROOT = Path(__file__).resolve().parents[3]


def counts(root: Path, backend: str) -> dict[str, Any]:
    """What a broker in a process of its own did with sends that came together."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.broker.send.counted_parses", str(root)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "RMQ_CODEC": backend},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("backend") == backend
    return found


def test_without_the_native_codec_only_the_general_decoder_reads_a_send(tmp_path: Path) -> None:
    assert counts(tmp_path, "python") == {"decode_header": SENDS}


@pytest.mark.skipif(codec_backend() == "python", reason="the native codec is not built")
def test_with_the_native_codec_sends_are_read_as_bursts(tmp_path: Path) -> None:
    found = counts(tmp_path, "native")
    assert found.keys() == {"read_sends"}
    assert found["read_sends"] < SENDS
