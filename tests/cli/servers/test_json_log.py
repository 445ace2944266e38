"""Log lines as JSON: every line is one object, for any log record."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from broker_core.cli.servers.json_log import JsonLines
from tests.cli.rmq_process import running


def record(message: str, *arguments: object, with_error: bool = False) -> logging.LogRecord:
    info = None
    if with_error:
        try:
            int("why")
        except ValueError:
            info = sys.exc_info()
    return logging.LogRecord("name", logging.WARNING, "file", 1, message, arguments, info)


def test_one_object_per_line() -> None:
    line = JsonLines().format(record('a "quote"\nand %d', 7))
    assert "\n" not in line
    found = json.loads(line)
    assert found["message"] == 'a "quote"\nand 7'
    assert (found["level"], found["logger"]) == ("warning", "name")
    assert found["time"].endswith("Z")
    assert "error" not in found
    with_error = json.loads(JsonLines().format(record("failed", with_error=True)))
    assert "ValueError: invalid literal" in with_error["error"]


def test_a_server_logs_json(tmp_path: Path) -> None:
    with running(tmp_path, "namesrv", "--listen", "127.0.0.1:0", "--log-format", "json") as server:
        ended = server.end()
    lines = [json.loads(line) for line in ended.error_lines]
    assert lines
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
