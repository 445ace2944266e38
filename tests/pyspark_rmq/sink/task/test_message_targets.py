"""`shortCircuit` of the sink: who writes the staging files, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from broker_core import errors
from broker_core.client.sink import stage_writer
from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.sink.task.message_targets import LocalWriteImpossible
from tests.pyspark_rmq.sink.task.test_writer import Sink

ROWS = [f"row-{number}" for number in range(1_000)]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Staging ids of the files that writers of this process opened."""
    opened: list[str] = []
    real = stage_writer.open_staging_file

    def noted(root: str, staging_id: str, *rest: Any) -> Any:
        file = real(root, staging_id, *rest)
        if file is not None:
            opened.append(staging_id)
        return file

    monkeypatch.setattr(stage_writer, "open_staging_file", noted)
    return opened


@pytest.mark.parametrize(("way", "uses_file"), [("auto", True), ("on", True), ("off", False)])
def test_the_way_of_the_rows_changes_nothing_else(
    broker: EmbeddedBroker,
    new_topic: Callable[..., str],
    files: list[str],
    way: str,
    uses_file: bool,
) -> None:
    sink = Sink(broker, new_topic(4), shortCircuit=way)
    written = sink.write(0, ROWS)
    sink.commit(written)
    assert sink.values() == Counter(ROWS)
    [part] = written.parts
    assert files == ([part.staging_id] if uses_file else [])


def test_on_fails_where_the_files_cannot_be_written(
    broker: EmbeddedBroker, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a task on another host finds.
    monkeypatch.setattr(stage_writer, "open_staging_file", lambda *_: None)
    sink = Sink(broker, new_topic(4), shortCircuit="on")
    with pytest.raises(
        LocalWriteImpossible, match=r"broker-a cannot be written.*shortCircuit=auto"
    ):
        sink.write(0, ROWS)
    fallback = Sink(broker, sink.topic, shortCircuit="auto")
    fallback.commit(fallback.write(0, ROWS))
    assert fallback.values() == Counter(ROWS)


def test_on_is_refused_where_all_rows_are_sent(
    broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    sink = Sink(broker, new_topic(4), shortCircuit="on", deliveryGuarantee="at_least_once")
    with pytest.raises(errors.InvalidArgument, match="shortCircuit=on needs"):
        sink.write(0, ROWS)
