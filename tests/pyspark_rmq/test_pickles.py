"""What Spark pickles between its processes is plain data of ours: nothing else could be run."""

from __future__ import annotations

import pickle
import pickletools

import pytest

from broker_core import MessageQueue, StagedPart
from pyspark_rmq.sink.task.result import TaskIdentity, TaskResult
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.rows.range_reader import Task

# What may be named in a pickle: our own plain records, Spark's carriers, and these of the standard
# library, none of which does anything but hold what it is given.
ALLOWED_MODULES = ("broker_core.", "pyspark_rmq.")
ALLOWED = {
    ("pyspark.sql.datasource", "InputPartition"),
    ("builtins", "frozenset"),
    ("builtins", "set"),
    ("copyreg", "__newobj__"),
    ("copyreg", "_reconstructor"),
    ("builtins", "object"),
}


def named_in(data: bytes) -> set[tuple[str, str]]:
    """Everything that reading the pickle would import."""
    found = set()
    texts: list[str] = []
    memo: dict[int, str] = {}
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"):
            texts.append(str(argument))
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = texts[-1] if texts else ""
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            texts.append(memo.get(int(argument), ""))
        elif opcode.name == "GLOBAL":
            module, _, name = str(argument).partition(" ")
            found.add((module, name))
        elif opcode.name == "STACK_GLOBAL":
            found.add((texts[-2], texts[-1]))
        assert opcode.name not in ("INST", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID")
    return found


def foreign_types_in(value: object) -> set[tuple[str, str]]:
    names = {name for protocol in (2, 4, 5) for name in named_in(pickle.dumps(value, protocol))}
    return {
        name for name in names if name not in ALLOWED and not name[0].startswith(ALLOWED_MODULES)
    }


def task() -> Task:
    queue = MessageQueue("T", "broker-a", 0)
    return Task.of([QueueRange("T", "broker-a", 0, 5, 9)], {}, {queue: ((6, 7),)})


def result() -> TaskResult:
    identity = TaskIdentity("sink", 7, "run", 1, 0, 3, lineage="l", once=True)
    staged = (StagedPart("0" * 32, 3, 100, 12345, "broker-a"),)
    return TaskResult(identity, "exactly_once", 3, 100, 0, staged)


def test_the_scan_finds_what_is_not_plain() -> None:
    assert ("builtins", "print") in foreign_types_in(print)
    assert foreign_types_in(pytest.fail)


@pytest.mark.parametrize("value", [task(), result(), QueueRange("T", "b", 0, 1, 2)])
def test_records_that_travel_are_plain(value: object) -> None:
    assert foreign_types_in(value) == set()
    assert pickle.loads(pickle.dumps(value)) == value


def test_what_spark_carries_is_plain() -> None:
    datasource = pytest.importorskip("pyspark.sql.datasource")
    from pyspark_rmq.sink.task.commit_message import RmqCommitMessage

    assert foreign_types_in(datasource.InputPartition(task())) == set()
    assert foreign_types_in(RmqCommitMessage(result())) == set()
