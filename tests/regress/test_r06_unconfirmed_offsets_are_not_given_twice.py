"""R06 (RocketMQ #7689): a master that restarted gave the offsets of unconfirmed messages again.

It went on at the position that slaves had confirmed, while the messages behind that were still in
its log: two messages with one queue offset.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from broker_core.protocol_codes import FlushDiskType
from broker_core.store.replication.store_replication import StoreReplication
from broker_core.store.writes.appender import Appender
from tests.regress.replica_nodes import Group
from tests.replication.simulated_node import TOPIC


def _scenario(flush: FlushDiskType, *, power: bool) -> None:
    group = Group(2, flush)
    a, b = group.nodes
    group.send(a, b"1", b"2", b"3")
    group.copy(a, b)
    assert a.store is not None
    group.cut_off(b)
    group.send(a, b"4", b"5")
    assert group.acked == [b"1", b"2", b"3"]
    for body in (b"6", b"7"):
        group.kill(a, power=power)
        a.start([])
        assert a.store is not None
        # Readers see what slaves have; what follows is numbered behind all that there is.
        if not power:
            assert a.store.offsets(TOPIC, 0)[1] == 3
        group.send(a, body)
    assert a.bodies() == [b"1", b"2", b"3"][: len(a.bodies())]
    group.copy(a, b)
    for node in group.nodes:
        assert node.store is not None
        assert node.bodies() == [b"%d" % n for n in range(1, 8)], "offsets were given twice"
        records = node.store.get(TOPIC, 0, 0).messages()
        assert [record.queue_offset for record in records] == list(range(7))
    group.check(a)


@pytest.mark.parametrize("flush", FlushDiskType)
def test_after_a_kill(flush: FlushDiskType) -> None:
    _scenario(flush, power=False)


def test_after_a_power_cut() -> None:
    _scenario(FlushDiskType.SYNC_FLUSH, power=True)


def test_the_scenario_finds_a_master_that_numbers_from_the_confirmed_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = StoreReplication.hide_tail
    writes: dict[int, Appender] = {}
    build = Appender.__init__

    def noted(self: Appender, *arguments: Any) -> None:
        build(self, *arguments)
        writes[id(self.acks)] = self

    def as_it_was(
        self: StoreReplication, position: int, shown_topics: Collection[str] = ()
    ) -> None:
        honest(self, position, shown_topics)
        held = self._visibility.unreplicated_tail
        if held is not None:
            for queue, end in held.ends.items():
                writes[id(self._acks)]._counters.next[queue] = end

    monkeypatch.setattr(Appender, "__init__", noted)
    monkeypatch.setattr(StoreReplication, "hide_tail", as_it_was)
    with pytest.raises(Exception, match=r"given twice|queue offset|offset"):
        _scenario(FlushDiskType.ASYNC_FLUSH, power=False)
