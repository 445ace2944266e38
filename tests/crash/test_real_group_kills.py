"""F07 for long groups: SIGKILL while two threads write one. All of a group is there, or nothing."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker_core.store.message_store import MessageStore
from tests.crash.group_process import CONFIG, ROWS, RUNS, TOPICS, row
from tests.store.small_store import bodies

pytestmark = pytest.mark.crash

CYCLES = 8
LONG_CYCLES = 300
# How often at most, until some kills met a group that was being written
CYCLES_MAX = 80
CUT_MIN = 3
STUCK_AFTER_S = 120


class Child:
    """The process, and what it has said."""

    def __init__(self, directory: Path, first: int) -> None:
        command = [sys.executable, "-m", "tests.crash.group_process", str(directory), str(first)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.begun = self.acked = first - 1

    def hear(self) -> str:
        """The next thing that it says."""
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        assert words, "the child ended by itself"
        self._note(words)
        return words[0]

    def kill(self, after_s: float) -> None:
        """End it that long after now, and read its last output."""
        try:
            self._process.wait(after_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        output, _ = self._process.communicate(timeout=STUCK_AFTER_S)
        for line in output.splitlines():
            self._note(line.split())

    def _note(self, words: list[str]) -> None:
        if words[0] == "begun":
            self.begun = int(words[1])
        elif words[0] == "ack":
            self.acked = int(words[1])


def present(store: MessageStore, seen: int) -> int:
    """How many groups there are, from the first on; each of them whole and in its place."""
    found = {topic: bodies(store, topic) for topic in TOPICS}
    per_topic = RUNS // len(TOPICS) * ROWS
    count, rest = divmod(len(found[TOPICS[0]]), per_topic)
    assert rest == 0, "a part of a group"
    for number, topic in enumerate(TOPICS):
        assert len(found[topic]) == count * per_topic
        wanted = (
            row(group, run, n)
            for group in range(seen, count)
            for run in range(number, RUNS, len(TOPICS))
            for n in range(ROWS)
        )
        assert all(a == b for a, b in zip(found[topic][seen * per_topic :], wanted, strict=True))
    return count


def test_killed_while_two_threads_write(
    tmp_path: Path, long_run: bool, summary_lines: list[str]
) -> None:
    rng = random.Random(11)
    directory = tmp_path / "store"
    count = cut = cycles = 0
    started = time.monotonic()
    least = LONG_CYCLES if long_run else CYCLES
    while cycles < least or (cut < CUT_MIN and cycles < CYCLES_MAX):
        cycles += 1
        child = Child(directory, count)
        while child.hear() != "begun":
            pass
        child.kill(rng.uniform(0.0, 0.02))
        with MessageStore.open(directory, CONFIG) as store:
            cut += bool(store.recovery.cut_reason)
            assert not store.recovery.epoch_changed, "a kill alone loses nothing"
            after = present(store, count)
        assert child.acked < after <= child.begun + 1
        count = after
    assert cut >= CUT_MIN
    summary_lines.append(
        f"F07 group kills      {cycles} cycles: {count} groups whole, {cut} cut, "
        f"{time.monotonic() - started:.0f} s"
    )
