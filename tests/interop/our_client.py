"""Our own client in a process of its own, driven like those of other languages."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop.driven_client import DrivenClient

OUR_CLIENT = "ours"

_ROOT = Path(__file__).resolve().parent.parent.parent


class OurClient(DrivenClient):
    """One process with clients of ours."""

    language = "Ours"

    def __init__(self, version: str = OUR_CLIENT) -> None:
        super().__init__(version, {"PYTHONPATH": str(_ROOT)})

    @property
    def name(self) -> str:
        return OUR_CLIENT

    def _command(self, home: str) -> list[str]:
        return [sys.executable, "-m", "tests.interop.our_driver"]
