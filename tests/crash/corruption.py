"""Examines a damaged copy of a sample store: was anything served that is wrong, or hidden?

    correct    every answer is right (derived files were rebuilt)
    reported   reads of damaged records raised `CorruptStore`; every other answer is right
    refused    the store did not open and names the file and the place

Anything else is a `Violation`: a wrong or missing answer, another exception, durable bytes of the
log that changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

from broker_core.errors import CorruptStore, StagingRefused, StoreUnusable
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR
from broker_core.storage.state.store_state import STATE_FILE
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.crash.sample_store import (
    CONFIG,
    OLD_TABLE,
    Question,
    Sample,
    Tree,
    ask,
    is_range,
    one_by_one,
    open_store,
)
from tests.fakes.simulated_disk import SimulatedDisk

CORRECT, REPORTED, REFUSED = "correct", "reported", "refused"
LATE_BODY = b"put after the damage"

MayReport = Callable[[Question], bool]
NAMED_PLACES = ("commitlog", "consumequeue", "index", "config", "store_state", "staging")


class Violation(AssertionError):
    """The store served damage, hid it, cut it away, or failed with an untyped error."""


class Described:
    """Adds the damage to the message of any error inside the `with` block."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            raise Violation(f"{self._text}: {type(error).__name__}: {error}") from error


def nothing(_: Question) -> bool:
    """No read may raise."""
    return False


def anything(_: Question) -> bool:
    """Every read may raise a named error; none may be wrong."""
    return True


def examine(sample: Sample, tree: Tree, may_report: MayReport = nothing) -> str:
    """Open the damaged copy, ask everything, close it."""
    disk = sample.disk(tree)
    try:
        store = open_store(disk)
    except (CorruptStore, StoreUnusable) as error:
        _check_named(error)
        _check_log_kept(sample, tree, disk)
        return REFUSED
    reports = ask_everything(sample, disk, store, may_report)
    _check_log_kept(sample, tree, disk)
    store.close()
    return REPORTED if reports else CORRECT


def examine_longer(sample: Sample, tree: Tree, may_report: MayReport = nothing) -> str:
    """`examine`; then a put into the damaged store, a close, and every question once more."""
    outcome = examine(sample, tree, may_report)
    if outcome == REFUSED:
        return outcome
    disk = sample.disk(tree)
    store = open_store(disk)
    result = store.put_now(Message("later", LATE_BODY))
    if not result.ok:
        raise Violation(f"a put after the damage answered {result}")
    store.close()
    again = open_store(disk)
    ask_everything(sample, disk, again, may_report, grown=True)
    if [message.body for message in again.get("later", 0, 0).messages()] != [LATE_BODY]:
        raise Violation("a message put after the damage is gone")
    again.close()
    return outcome


def ask_everything(
    sample: Sample,
    disk: SimulatedDisk,
    store: MessageStore,
    may_report: MayReport,
    *,
    grown: bool = False,
) -> int:
    """How many questions raised a named error; a wrong answer is a `Violation`."""
    reports = 0
    for question, right in sample.answers.items():
        if grown and question[0] == "queues":
            continue
        if question[0] in ("get", "columns") and not is_range(question):
            continue
        reported = _ask_one(sample, disk, store, question, right, may_report)
        reports += reported
        if reported and is_range(question):
            for single in one_by_one(question):
                _ask_one(sample, disk, store, single, sample.answers[single], may_report)
    return reports


def _ask_one(
    sample: Sample,
    disk: SimulatedDisk,
    store: MessageStore,
    question: Question,
    right: object,
    may_report: MayReport,
) -> bool:
    try:
        answer = ask(store, disk, sample.staged, question)
    except (CorruptStore, StagingRefused) as error:
        if not may_report(question):
            raise Violation(f"{question} was refused: {error}") from error
        if isinstance(error, CorruptStore):
            _check_named(error)
        return True
    if answer != right and not (may_report(question) and _is_honest(question, answer, right)):
        raise Violation(f"{question} answered {answer!r:.300}, right is {right!r:.300}")
    return False


def _is_honest(question: Question, answer: Any, right: Any) -> bool:
    """Other answers that damage allows: an older table or none, an identity never seen before."""
    if question == ("table",):
        return answer is None or answer == OLD_TABLE
    return bool(question == ("identity",) and (answer[0] != right[0] or answer[1] > right[1]))


def blamed_record(sample: Sample, position: int) -> MayReport:
    """Which questions may raise when the byte of the log at `position` is damaged."""
    record = sample.record_at(position)
    if record is None:
        return nothing
    start, _ = record
    described = sample.answers["at", start]
    queue = (described.topic, described.queue_id)

    def may_report(question: Question) -> bool:
        kind = question[0]
        if kind in ("get", "columns"):
            low, high = question[3:5]
            return bool(question[1:3] == queue and low <= described.queue_offset < high)
        if kind == "time":
            # A search by time looks at several records of the queue.
            return bool(question[1:3] == queue)
        if kind == "query":
            return any(found.physical_offset == start for found in sample.answers[question])
        return bool(kind == "at" and question[1] == start)

    return may_report


def blamed_file(sample: Sample, path: str, start: int, end: int) -> MayReport:
    """The same for bytes `[start, end)` of any file."""
    if path.startswith(f"{COMMIT_LOG_DIR}/"):
        base = int(path.rpartition("/")[2])
        hit = [(a, b) for a, b in sample.records if a < base + end and base + start < b]
        blamed = [blamed_record(sample, a) for a, _ in hit]
        return lambda question: any(may(question) for may in blamed)
    if path.startswith("staging/"):
        return lambda question: question == ("staged",)
    if path.startswith("config/"):
        return lambda question: question == ("table",)
    if path == STATE_FILE and end - start > 1:
        return lambda question: question == ("identity",)
    return nothing


def tally(counts: Counter[str]) -> str:
    """`correct 10, reported 2, refused 1`."""
    return ", ".join(f"{kind} {counts[kind]}" for kind in (CORRECT, REPORTED, REFUSED))


def _check_named(error: CorruptStore | StoreUnusable) -> None:
    if isinstance(error, CorruptStore):
        named = error.path.startswith(NAMED_PLACES) and error.position >= 0
    else:
        named = any(place in str(error) for place in NAMED_PLACES)
    if not named:
        raise Violation(f"the error names no place: {error!r}")


def _check_log_kept(sample: Sample, tree: Tree, disk: SimulatedDisk) -> None:
    """Durable bytes of the log are what they were, damage included."""
    for path, before in tree.items():
        if not path.startswith(f"{COMMIT_LOG_DIR}/"):
            continue
        name = path.rpartition("/")[2]
        if not name.isdigit() or not disk.exists(path):
            durable = sample.log_end - int(name) if name.isdigit() else 1
            if durable > 0:
                raise Violation(f"{path} was removed")
            continue
        durable = min(max(sample.log_end - int(name), 0), CONFIG.commit_log_file_size)
        if disk.content(path)[:durable] != before[:durable]:
            raise Violation(f"durable bytes of {path} were changed")
