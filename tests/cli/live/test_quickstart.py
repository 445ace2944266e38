"""`rmq quickstart` shows a broker at work, and ends on a signal."""

from __future__ import annotations

import re
import signal
import subprocess

from tests.cli.rmq_process import LIMIT_S, command, environment, run_rmq


def test_quickstart_sends_reads_and_shows_what_to_try() -> None:
    ended = run_rmq("quickstart", "--exit")
    assert (ended.code, ended.errors) == (0, "")
    shown = ended.output.decode()
    server = re.search(r"name server: (127\.0\.0\.1:\d+)\n", shown)
    assert server is not None
    assert shown.count(server[1]) == 3
    bodies = re.findall(r"   queue \d, offset \d: (.+)\n", shown)
    assert sorted(bodies) == ["order 1", "order 2", "order 3"]


def test_quickstart_serves_until_it_is_interrupted() -> None:
    with subprocess.Popen(
        command("quickstart"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        shown = b""
        while b"Ctrl-C ends the broker" not in shown:
            line = process.stdout.readline()
            assert line, process.communicate(timeout=LIMIT_S)
            shown += line
        found = re.search(rb"name server: (\S+)\n", shown)
        assert found is not None
        server = found[1].decode()
        read = run_rmq("consume", "-n", server, "-t", "quickstart", "-e")
        assert sorted(read.output.splitlines()) == [b"order 1", b"order 2", b"order 3"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, errors) == (130, b"")
