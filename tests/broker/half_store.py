"""A store with half messages, their ends and their checks, on a simulated disk and manual clock."""

from __future__ import annotations

from typing import Any

from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.transactions.check import TransactionCheck
from broker_core.broker.transactions.half_message import (
    HALF_QUEUE,
    Half,
    ended_offsets,
    half_changes,
)
from broker_core.broker.transactions.progress import TRANSACTION_PROGRESS_FILE
from broker_core.broker.transactions.service import Ended, Transactions, Verdict
from broker_core.codec.records.message_properties import change_properties
from broker_core.codec.records.message_record import MessageRecord, decode_record
from broker_core.codec.wire.bodies.heartbeat_data import HeartbeatData
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import (
    TRANSACTION_GIVEN_UP_TOPIC,
    TRANSACTION_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)
from broker_core.runtime.worker import InlineWorker
from broker_core.storage.files.json_table import JsonTable
from tests.broker.broker_tables import OpenConnection, offset_table, topic_table
from tests.broker.service_store import ServiceStore
from tests.fakes.simulated_disk import SimulatedDisk

GROUP = "PG"
TIMEOUT_MS = 6_000
INTERVAL_MS = 30_000
CHECKS_MAX = 3
AGE_MAX_MS = 2 * 3_600_000


class HalfStore(ServiceStore):
    """One broker's transactions; `restart`, `killed` and `successor` give the next one's."""

    def __init__(
        self, disk: SimulatedDisk | None = None, *, checks_max: int = CHECKS_MAX, **settings: Any
    ) -> None:
        super().__init__(disk, {"checks_max": checks_max}, settings)
        clock = self.clock
        self.topics = topic_table(self.disk)
        self.offsets = offset_table(self.disk, end_offset=lambda t, q: self.store.offsets(t, q)[1])
        self.clients = ClientTable(clock, 1e12, lambda _connection, _group: None)
        self.table = JsonTable(self.disk, TRANSACTION_PROGRESS_FILE)
        self.transactions = Transactions(
            store=self.store,
            offsets=self.offsets,
            topics=self.topics,
            table=self.table,
            clock=clock,
            delay_level_max=18,
            stats=BrokerStats(clock),
            timers=self.timers,
            worker=InlineWorker(),
        )
        self.check = TransactionCheck(
            transactions=self.transactions,
            clients=self.clients,
            broker_name="broker-a",
            timeout_ms=TIMEOUT_MS,
            interval_ms=INTERVAL_MS,
            checks_max=checks_max,
            age_max_ms=AGE_MAX_MS,
        )

    def start(self) -> HalfStore:
        self.transactions.start()
        self.check.start(self.timers)
        return self

    # Doing

    def send(
        self, body: bytes, topic: str = "T", queue_id: int = 0, group: str = GROUP, **more: str
    ) -> int:
        """Open a transaction; its offset. It is durable when this returns."""
        pairs = {"TRAN_MSG": "true", "UNIQ_KEY": f"key-{body.decode()}", **more}
        if self.store.log_range[1] == 0:
            self.transactions._append_op(10**17)
        text = change_properties(b"", pairs | half_changes(pairs, group, topic, queue_id, "id"))
        result = self.store.append_text(
            TRANSACTION_HALF_TOPIC, HALF_QUEUE, body, text,
            born_timestamp=self.clock.wall_ms(), born_host=self.store.store_host,
        )  # fmt: skip
        assert result.ok, result
        self.store.flush()
        return result.queue_offset

    def half(self, offset: int) -> Half:
        found = self.transactions.half(offset)
        assert found is not None
        return found

    def end(self, offset: int, verdict: Verdict = Verdict.COMMIT) -> Ended:
        """What END_TRANSACTION does, without waiting for the disk."""
        return self.transactions.end(self.half(offset), verdict)

    def commit(self, offset: int) -> Ended:
        """Durably."""
        ended = self.end(offset)
        self.store.flush()
        return ended

    def producer(self, group: str = GROUP, port: int = 50_000) -> OpenConnection:
        """A producer that remembers what it is asked."""
        connection: Any = OpenConnection(port)
        self.clients.heartbeat(connection, HeartbeatData(f"c{port}", (group,), ()), 0, 409)
        return connection  # type: ignore[no-any-return]

    def next_round(self) -> None:
        self.advance(INTERVAL_MS + 1_000)

    # Seeing

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        self.store.flush()
        return super().bodies(topic, queue_id)

    def given_up(self) -> list[bytes]:
        return self.bodies(TRANSACTION_GIVEN_UP_TOPIC)

    def halves(self) -> list[MessageRecord]:
        return self.records(TRANSACTION_HALF_TOPIC)

    def open_offsets(self) -> list[int]:
        window = self.transactions.window
        return [offset for number in window.blocks() for offset in window.open_in(number)]

    def saved_offset(self, topic: str) -> int:
        return self.offsets.query(TRANSACTION_GROUP, topic, HALF_QUEUE) or 0

    def open_for_apache(self) -> list[int]:
        """The halves that another broker would ask about: by offsets and op records alone."""
        start = self.saved_offset(TRANSACTION_OP_TOPIC)
        ops = [r for r in self.records(TRANSACTION_OP_TOPIC) if r.queue_offset >= start]
        ended = {offset for record in ops for offset in ended_offsets(record)}
        low = self.saved_offset(TRANSACTION_HALF_TOPIC)
        found = [record.queue_offset for record in self.halves() if record.queue_offset >= low]
        return [offset for offset in found if offset not in ended]

    # Ending

    def stop(self) -> None:
        """Clean stop, as the broker does it."""
        self.check.stop()
        self.transactions.stop()
        self.offsets.save()
        self.store.close()


def asked(connection: OpenConnection) -> list[tuple[RemotingCommand, MessageRecord]]:
    """Take the checks that a producer got."""
    assert all(command.code == 39 for command in connection.sent)
    found = [(command, decode_record(command.body)) for command in connection.sent]
    connection.sent.clear()
    return found
