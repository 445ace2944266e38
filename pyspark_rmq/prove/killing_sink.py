"""The sink under test: the real one, passing the points of traps. Bugs may be planted in it."""

from __future__ import annotations

import dataclasses
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark_rmq.data_source import RmqDataSource
from pyspark_rmq.prove.traps import FOLDER_VARIABLE, pass_point
from pyspark_rmq.sink.commit_message import RmqCommitMessage
from pyspark_rmq.sink.sink_options import AT_LEAST_ONCE
from pyspark_rmq.sink.stream_writer import RmqStreamWriter
from pyspark_rmq.sink.task_result import TaskIdentity

PLANT_VARIABLE: Final = "RMQ_PROVE_PLANT"
# Rows are visible as soon as a task has them.
PUBLISH_IN_WRITE: Final = "publish-in-write"
# Batches are known by the run that wrote them: the next run repeats them.
KNOW_BY_RUN: Final = "know-by-run"
# A batch counts as published before it is.
ACKNOWLEDGE_FIRST: Final = "acknowledge-first"
# The broker forgets one row of each send after it acknowledged it (done by the harness).
LOSE_ACKNOWLEDGED: Final = "lose-acknowledged"
PLANTS: Final = (PUBLISH_IN_WRITE, KNOW_BY_RUN, ACKNOWLEDGE_FIRST, LOSE_ACKNOWLEDGED)

_PUBLICATION_S: Final = 0.01


class KillingWriter(RmqStreamWriter):
    """Passes points in tasks and on the driver."""

    _planted: TaskIdentity | None = None

    def write(self, iterator: Iterator[Any]) -> RmqCommitMessage:
        """In a task."""
        pass_point("write_before")
        plant = os.environ.get(PLANT_VARIABLE)
        if plant == PUBLISH_IN_WRITE:
            self._guarantee = AT_LEAST_ONCE
        elif plant == KNOW_BY_RUN:
            who = self.identity()
            self._options = dataclasses.replace(self._options, sink_id=who.run)
            self._planted = who._replace(sink=who.run)
        message = super().write(_watched(iterator))
        pass_point("write_after")
        return message

    def identity(self) -> TaskIdentity:
        """Who this task is, or claims to be."""
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

    writer_type = KillingWriter

    @classmethod
    def name(cls) -> str:
        """What `.format` is given."""
        return "rmq_prove"


def _pass_soon(point: str) -> None:
    """At a random moment of a publication, which takes a few milliseconds."""
    threading.Event().wait(random.uniform(0, _PUBLICATION_S))
    pass_point(point)


def _watched(iterator: Iterator[Any]) -> Iterator[Any]:
    for batch in iterator:
        yield batch
        pass_point("write_middle")
