"""The steps of a micro-batch without Spark: the sink under test in processes that can be killed.

    plan ─► offsets/N ─► tasks, each a process ─► commit, a process ─► commits/N

Imitates Spark's order of steps around a sink: the range is stored first, an unfinished batch is run
again with the same number and another split, a dead task is retried, a failed commit is followed by
an abort and a new run, and a stopped query aborts while its tasks are still running. Starts in one
second where Spark takes ten, so that every kill can be tried. The harness runs it as a module and
kills it.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import threading
import uuid
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from broker_core import SyncPullConsumer, errors
from pyspark_rmq.prove.killing_sink import KillingWriter
from pyspark_rmq.prove.traps import DRIVER, FOLDER_VARIABLE, name_processes
from pyspark_rmq.sink.guarantee import decide_guarantee
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import TaskIdentity
from pyspark_rmq.sink.task.sink_columns import find_columns

_log = logging.getLogger(__name__)

TASKS: Final = 2
ATTEMPTS: Final = 4
ROWS_MAX: Final = 400
_POLL_S: Final = 0.02
_FIELDS: Final = (("value", "string"), ("key", "string"))
_fork: Final = multiprocessing.get_context("fork")

# Queue id -> the next offset
Place = dict[str, int]


class Stopped(Exception):
    """The query ends: stopped, or a task or a commit has failed."""


class RehearsedWriter(KillingWriter):
    """The real writer with an identity that does not come from Spark."""

    def __init__(self, options: SinkOptions, identity: TaskIdentity) -> None:
        columns = find_columns(_FIELDS, options)
        super().__init__(options, columns, decide_guarantee(options, columns), None)
        self._identity = identity

    def identity(self) -> TaskIdentity:
        """Identity of the task, or a planted one."""
        return self._planted or self._identity


class Query:
    """One run of the query; the folder has its checkpoint."""

    def __init__(self, folder: Path, options: dict[str, str], source: str, target: str) -> None:
        self._folder = folder
        self._source = source
        self._run = uuid.uuid4().hex
        self._checkpoint = folder / "checkpoint"
        for name in ("offsets", "commits"):
            (self._checkpoint / name).mkdir(parents=True, exist_ok=True)
        self._options = SinkOptions.parse(
            {
                **options,
                "topic": target,
                "checkpointLocation": str(self._checkpoint),
                "rmq.retry.timeout.ms": "20000",
            }
        )
        self._name_server = options["rmq.namesrv.addr"]

    def run_batch(self) -> bool:
        """Run the next batch, or the unfinished one; False if there are no rows."""
        number, start = self._last()
        planned = self._checkpoint / "offsets" / str(number)
        with SyncPullConsumer(self._name_server) as consumer:
            if planned.exists():
                end = json.loads(planned.read_text())
            else:
                end = _latest(consumer, self._source, start)
                if end == start:
                    return False
                _write(planned, end)
            rows = list(_rows(consumer, self._source, start, end))
        messages = self._write(number, rows)
        self._check_stop(number, messages)
        try:
            self._in_process(_commit, self._writer(number, 0, 0), number, messages)
        except Stopped:
            self._writer(number, 0, 0).abort(messages, number)
            raise
        _write(self._checkpoint / "commits" / str(number), {})
        return True

    def _last(self) -> tuple[int, Place]:
        """The number of the next batch, and where it begins."""
        done = [int(path.name) for path in (self._checkpoint / "commits").glob("[0-9]*")]
        number = max(done, default=-1)
        start = {}
        if number >= 0:
            start = json.loads((self._checkpoint / "offsets" / str(number)).read_text())
        return number + 1, start

    def _write(self, number: int, rows: list[str]) -> list[Any]:
        """Commit messages of all tasks. The split differs between runs, as Spark's may."""
        turn = int(self._run[:2], 16)
        shares = [rows[(task + turn) % TASKS :: TASKS] for task in range(TASKS)]
        running = {task: self._begin(number, task, 0, shares[task]) for task in range(TASKS)}
        attempts, messages = dict.fromkeys(running, 0), [None] * TASKS
        pause = threading.Event()
        while running:
            self._check_stop(number, messages)
            for task, job in list(running.items()):
                if not job.is_done:
                    continue
                del running[task]
                found = job.result()
                attempts[task] += found is None
                if found is not None:
                    messages[task] = found
                elif attempts[task] < ATTEMPTS:
                    running[task] = self._begin(number, task, attempts[task], shares[task])
                else:
                    self._writer(number, 0, 0).abort(messages, number)
                    raise Stopped(f"task {task} of batch {number} failed {ATTEMPTS} times")
            pause.wait(_POLL_S)
        return messages

    def _begin(self, number: int, task: int, attempt: int, rows: list[str]) -> _Job:
        return _Job.start(_write_rows, self._writer(number, task, attempt), rows)

    def _check_stop(self, number: int, messages: list[Any]) -> None:
        stop = self._folder / "stop-query"
        if stop.exists():
            stop.unlink()
            # Spark does not wait for tasks either.
            self._writer(number, 0, 0).abort(messages, number)
            raise Stopped("the query was stopped")

    def _in_process(self, work: Any, *arguments: Any) -> None:
        job = _Job.start(work, *arguments)
        pause = threading.Event()
        while not job.is_done:
            pause.wait(_POLL_S)
        if job.result() is None:
            raise Stopped("the commit failed")

    def _writer(self, number: int, task: int, attempt: int) -> RehearsedWriter:
        identity = TaskIdentity(
            "rehearsal",
            number,
            self._run,
            task,
            attempt,
            attempt,
            lineage=self._options.lineage,
            query="rehearsal",
        )
        return RehearsedWriter(self._options, identity)


class _Job(NamedTuple):
    """A process and the pipe for its result."""

    process: ForkProcess
    answers: Connection

    @staticmethod
    def start(work: Any, *arguments: Any) -> _Job:
        answers, questions = _fork.Pipe(duplex=False)
        process = _fork.Process(target=_run_job, args=(questions, work, arguments), daemon=True)
        process.start()
        questions.close()
        return _Job(process, answers)

    @property
    def is_done(self) -> bool:
        return self.answers.poll() or not self.process.is_alive()

    def result(self) -> Any:
        """The result; None if it failed."""
        try:
            return self.answers.recv()
        except EOFError:
            return None
        finally:
            self.process.join()
            self.answers.close()


def _run_job(questions: Connection, work: Any, arguments: tuple[Any, ...]) -> None:
    try:
        questions.send(work(*arguments))
    except errors.RmqError as error:
        _log.warning("%s failed: %s", work.__name__, error)
    finally:
        questions.close()


def _write_rows(writer: RehearsedWriter, rows: list[str]) -> Any:
    values = [f"out-{name}" for name in rows]
    third = max(1, len(rows) // 3)
    batches = [
        pa.RecordBatch.from_pydict(
            {"value": pa.array(values[at : at + third]), "key": pa.array(rows[at : at + third])}
        )
        for at in range(0, len(rows), third)
    ]
    return writer.write(iter(batches))


def _commit(writer: RehearsedWriter, number: int, messages: list[Any]) -> bool:
    writer.commit(messages, number)
    return True


def _latest(consumer: SyncPullConsumer, topic: str, start: Place) -> Place:
    """End of the next batch; equal to `start` if there are no rows."""
    end, left = dict(start), ROWS_MAX
    for queue in consumer.queues(topic):
        name = str(queue.queue_id)
        begin = start.get(name, 0)
        taken = min(left, consumer.max_offset(queue) - begin)
        if taken > 0:
            end[name] = begin + taken
            left -= taken
    return end


def _rows(consumer: SyncPullConsumer, topic: str, start: Place, end: Place) -> Iterator[str]:
    for queue in consumer.queues(topic):
        name = str(queue.queue_id)
        offset, until = start.get(name, 0), end.get(name, 0)
        while offset < until:
            result = consumer.pull(queue, offset)
            for message in result.messages:
                if message.queue_offset < until:
                    yield message.body.decode()
            offset = max(result.next_offset, offset)


def _write(path: Path, value: object) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value))
    draft.rename(path)


def main(options: dict[str, str], source: str, target: str) -> int:
    """Run until `finish` exists and all rows are written."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    name_processes(folder, DRIVER, [os.getpid()])
    pause = threading.Event()
    is_last = False
    while True:
        query = Query(folder, options, source, target)
        try:
            while True:
                is_last = (folder / "finish").exists()
                if not query.run_batch():
                    if is_last:
                        return 0
                    pause.wait(_POLL_S)
        except (Stopped, errors.RmqError) as error:
            _log.warning("the query ended: %s", error)
            pause.wait(_POLL_S)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]))
