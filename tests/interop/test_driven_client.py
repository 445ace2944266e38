"""The commands that drive a real client's process, without any client."""

from __future__ import annotations

import sys

from tests.interop.driven_client import DrivenClient

# Says more than a pipe holds before it reads its next command, as a client does whose listener
# was just given large messages.
_TALKER = """
import json, sys
from urllib.parse import parse_qs
body = "A" * 400_000
for line in sys.stdin:
    command = parse_qs(line.strip())
    row = {"event": "received", "consumer": "c", "messages": [{"body": body}]}
    print(json.dumps(row), flush=True)
    print(json.dumps({"id": int(command["id"][0]), "done": command["op"][0]}), flush=True)
"""


class _Talker(DrivenClient):
    language = "Python"

    def _command(self, home: str) -> list[str]:
        return [sys.executable, "-c", _TALKER]


def test_large_commands_and_large_rows_pass_each_other() -> None:
    with _Talker("1") as talker:
        answers = [talker.begin("send", body=bytes(300_000)) for _ in range(20)]
        assert [answer.result(60) for answer in answers] == ["send"] * 20
        assert len(talker.wait_received("c", 20)) == 20
