"""Addresses in records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records.host_address import decode_host, encode_host
from broker_core.codec.wire.message_id import decode_message_id, encode_message_id
from broker_core.errors import InvalidArgument

HOSTS = st.tuples(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535)
)


@given(HOSTS, st.integers(0, (1 << 63) - 1))
def test_hosts_and_message_ids_round_trip(host: tuple[str, int], position: int) -> None:
    assert decode_host(encode_host(host)) == host
    assert decode_message_id(encode_message_id(host, position)) == (host, position)


def test_bad_host_fields_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        decode_host(b"1234567")
