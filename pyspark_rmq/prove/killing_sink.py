"""The sink under test: the real sink with trap points and optional planted bugs."""

from __future__ import annotations

import dataclasses
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark_rmq.data_source import RmqDataSource
from pyspark_rmq.prove.traps import FOLDER_VARIABLE, WORKER, Trap, pass_point
from pyspark_rmq.sink.sink_options import AT_LEAST_ONCE
from pyspark_rmq.sink.stream_writer import RmqStreamWriter
from pyspark_rmq.sink.task.commit_message import RmqCommitMessage
from pyspark_rmq.sink.task.result import TaskIdentity

PLANT_VARIABLE: Final = "RMQ_PROVE_PLANT"
# Tasks make rows visible before the commit.
PUBLISH_IN_WRITE: Final = "publish-in-write"
# Batches are identified by run, so the next run repeats them.
KNOW_BY_RUN: Final = "know-by-run"
# A batch is recorded as published before it is.
ACKNOWLEDGE_FIRST: Final = "acknowledge-first"
# The broker loses one acknowledged row of each send (simulated by the harness).
LOSE_ACKNOWLEDGED: Final = "lose-acknowledged"
PLANTS: Final = (PUBLISH_IN_WRITE, KNOW_BY_RUN, ACKNOWLEDGE_FIRST, LOSE_ACKNOWLEDGED)
# A kill that brings each of them out; most others hide it.
SHOWN_BY: Final = {
    PUBLISH_IN_WRITE: Trap("write_after", WORKER),
    KNOW_BY_RUN: Trap("commit_after", WORKER),
    ACKNOWLEDGE_FIRST: Trap("commit_before", WORKER),
    LOSE_ACKNOWLEDGED: Trap("write_before", WORKER),
}

_PUBLICATION_S: Final = 0.01


class KillingWriter(RmqStreamWriter):
    """Writer with trap points in tasks and on the driver."""

    _planted: TaskIdentity | None = None

    def write(self, iterator: Iterator[Any]) -> RmqCommitMessage:
        """In a task."""
        pass_point("write_before")
        plant = os.environ.get(PLANT_VARIABLE)
        if plant == PUBLISH_IN_WRITE:
            self._guarantee = AT_LEAST_ONCE
        elif plant == KNOW_BY_RUN:
            identity = self.identity()
            self._options = dataclasses.replace(self._options, sink_id=identity.run)
            self._planted = identity._replace(sink=identity.run)
        message = super().write(_watched(iterator))
        pass_point("write_after")
        return message

    def identity(self) -> TaskIdentity:
        """Identity of the task, or a planted one."""
        return self._planted or super().identity()

    def commit(self, messages: list[Any], batchId: int) -> None:
        """On the driver."""
        if os.environ.get(PLANT_VARIABLE) == ACKNOWLEDGE_FIRST:
            mark = Path(os.environ[FOLDER_VARIABLE]) / f"acknowledged-{batchId}"
            if mark.exists():
                return
            mark.touch()
        pass_point("commit_before")
        beside = threading.Thread(target=_pass_soon, args=("commit_middle",))
        beside.start()
        try:
            super().commit(messages, batchId)
        finally:
            beside.join()
        pass_point("commit_after")


class KillingSource(RmqDataSource):
    """`rmq_prove`."""

    @classmethod
    def writer_type(cls) -> type[KillingWriter]:
        """The real writer with the points of traps."""
        return KillingWriter

    @classmethod
    def name(cls) -> str:
        """The name for `.format`."""
        return "rmq_prove"


def _pass_soon(point: str) -> None:
    """Pass a point at a random moment of the publication, which takes a few milliseconds."""
    threading.Event().wait(random.uniform(0, _PUBLICATION_S))
    pass_point(point)


def _watched(iterator: Iterator[Any]) -> Iterator[Any]:
    for batch in iterator:
        yield batch
        pass_point("write_middle")
