"""The synchronous sink client."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker_core import EmbeddedBroker
from broker_core.client.blocking.sink import SyncSinkClient
from broker_core.codec.records.column_batch import ColumnBatch
from tests.broker.sink_store import identity
from tests.codec.codec_backends import column
from tests.embedded.one_topic import bodies as read_bodies

NAME = "broker-a"


def rows(bodies: Sequence[bytes], topic: bytes = b"T", queue_id: int = 0) -> ColumnBatch:
    return ColumnBatch(len(bodies), ((topic, queue_id),), None, column(*bodies))


def test_a_sink_is_used_without_an_event_loop() -> None:
    with EmbeddedBroker(topics={"T": 2}) as broker, SyncSinkClient(broker.name_server) as sink:
        assert sink.is_supported(NAME)
        assert sink.coordinator("S", [NAME]) == NAME
        with sink.stage(identity(0), NAME) as writer:
            writer.append(rows([b"a", b"b"]))
            assert writer.record_count == 2
            part = writer.seal()
        with pytest.raises(ZeroDivisionError), sink.stage(identity(0), NAME) as writer:
            writer.append(rows([b"never"]))
            raise ZeroDivisionError
        assert sink.publish(identity(0), [part]).offsets == {NAME: {"T": {0: (0, 2)}}}
        assert sink.status("S", NAME).batch == 0
        assert sink.abort([part]) == 0
        assert read_bodies(broker.name_server, "T") == [b"a", b"b"]
