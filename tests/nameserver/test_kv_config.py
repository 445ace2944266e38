"""The KV table: values by namespace, limits, and saving before a change shows."""

from __future__ import annotations

import pytest

from broker_core.errors import InvalidArgument, RmqError
from broker_core.nameserver.kv_config import KvConfig
from broker_core.nameserver.settings import RouteLimits


def test_values_come_and_go() -> None:
    kv = KvConfig()
    assert kv.get("ns", "k") is None
    kv.put("ns", "k", "v1")
    kv.put("ns", "k", "v2")
    kv.put("ns", "other", "é")
    assert kv.get("ns", "k") == "v2"
    assert kv.namespace("ns") == {"k": "v2", "other": "é"}
    assert kv.namespace("unknown") == {}
    kv.delete("ns", "k")
    kv.delete("ns", "k")
    kv.delete("unknown", "k")
    assert kv.namespace("ns") == {"other": "é"}


def test_the_revision_grows_with_changes_only() -> None:
    kv = KvConfig()
    kv.put("ns", "k", "v")
    assert kv.revision == 1
    kv.put("ns", "k", "v")
    kv.delete("ns", "unknown")
    assert kv.revision == 1
    kv.delete("ns", "k")
    assert kv.revision == 2


def test_the_table_is_saved_in_apaches_shape_and_read_back() -> None:
    saved: list[bytes] = []
    kv = KvConfig(save=saved.append)
    kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    assert saved == [b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}']
    assert KvConfig(saved=saved[0]).get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4"
    kv.delete("ORDER_TOPIC_CONFIG", "T")
    assert saved[1] == b'{"configTable":{}}'


def test_a_change_that_cannot_be_saved_is_not_made() -> None:
    def refuse(_: bytes) -> None:
        raise OSError("no space")

    kv = KvConfig(save=refuse)
    with pytest.raises(OSError, match="no space"):
        kv.put("ns", "k", "v")
    assert kv.get("ns", "k") is None
    assert kv.revision == 0


@pytest.mark.parametrize("saved", [b"{", b"[]", b'{"configTable":[]}', b'{"configTable":{"n":1}}'])
def test_a_damaged_table_is_refused(saved: bytes) -> None:
    with pytest.raises(RmqError):
        KvConfig(saved=saved)


def test_the_limits_hold() -> None:
    kv = KvConfig(RouteLimits(kv_entries_max=2, kv_value_size_max=4))
    kv.put("n1", "k", "v")
    kv.put("n2", "k", "v")
    kv.put("n2", "k", "w")
    with pytest.raises(InvalidArgument, match="full"):
        kv.put("n3", "k", "v")
    with pytest.raises(InvalidArgument, match="4 bytes"):
        kv.put("n2", "k", "ééé")
    for name in ("", "x" * 256, "a\nb", "a\0"):
        with pytest.raises(InvalidArgument):
            kv.put(name, "k", "v")
        with pytest.raises(InvalidArgument):
            kv.put("n1", name, "v")
