"""`sinkWaitForDisk=false`: a kill loses nothing of a batch, a power cut loses all of it or
nothing."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.config import StoreConfig
from broker_core.errors import InvalidConfig
from broker_core.protocol_codes import FlushDiskType
from tests.broker.sink_store import SinkStore, identity

FAST: dict[str, Any] = {
    "flush_disk_type": FlushDiskType.ASYNC_FLUSH,
    "group_waits_for_disk": False,
}
T0: Any = ("T", 0)


def test_visible_and_known_before_the_disk_has_it() -> None:
    broker = SinkStore(**FAST)
    flushed = broker.store.flushed_position
    broker.write(identity(0), {T0: [b"a", b"b"]})
    assert broker.store.flushed_position == flushed
    assert broker.bodies() == [b"a", b"b"]
    assert broker.publish(identity(0)).is_repeat
    broker = broker.killed()
    assert broker.bodies() == [b"a", b"b"]
    assert broker.write(identity(0, "run-2"), {T0: [b"a", b"b"]}).is_repeat
    broker.write(identity(1, "run-2"), {T0: [b"c"]})
    assert broker.bodies() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("saves", [False, True])
def test_a_power_cut_takes_whole_batches(saves: bool) -> None:
    """The table may have a batch that the log has lost: the log decides."""
    broker = SinkStore(**FAST)
    for batch in range(3):
        broker.write(identity(batch), {T0: [b"%d-%d" % (batch, row) for row in range(20)]})
    if saves:
        broker.batches.save()
    expected = [b"%d-%d" % (batch, row) for batch in range(3) for row in range(20)]
    seen = set()
    for state in broker.disk.crash_states(30):
        after = broker.successor(broker.disk.reboot(state))
        found = after.bodies()
        assert found == expected[: len(found)]
        assert len(found) % 20 == 0
        assert after.batches.status("S").batch == len(found) // 20 - 1
        # A retry publishes each batch once.
        for batch in range(len(found) // 20, 3):
            rows = expected[20 * batch : 20 * batch + 20]
            assert not after.write(identity(batch, "run-2"), {T0: rows}).is_repeat
        assert after.bodies() == expected
        seen.add(len(found))
    assert len(seen) > 1


def test_sync_flush_always_waits() -> None:
    with pytest.raises(InvalidConfig, match="SYNC_FLUSH"):
        StoreConfig(group_waits_for_disk=False)
    settings = {"flushDiskType": "ASYNC_FLUSH", "sinkWaitForDisk": "false"}
    config, _ = StoreConfig.from_properties(settings)
    assert config.group_waits_for_disk is False
