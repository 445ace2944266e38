"""The result of a put."""

from __future__ import annotations

from broker_core.codec.records.host_address import encode_host
from broker_core.codec.wire.message_id import decode_message_id
from broker_core.protocol_codes import PutStatus
from broker_core.store.writes.put_result import PutResult


def test_a_stored_message_has_an_id() -> None:
    host = ("127.0.0.1", 10911)
    result = PutResult(PutStatus.PUT_OK, position=4096, store_host=encode_host(host))
    assert result.ok
    assert decode_message_id(result.message_id) == (host, 4096)


def test_a_refused_one_has_none() -> None:
    result = PutResult(PutStatus.MESSAGE_ILLEGAL, "too long")
    assert not result.ok
    assert result.message_id == ""
