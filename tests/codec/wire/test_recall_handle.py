"""Handles that recall timer messages."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.wire.recall_handle import RecallHandle, decode_handle
from broker_core.errors import InvalidArgument


def test_handles_are_those_of_the_java_client() -> None:
    """Printed by RecallMessageHandle of 5.5.0."""
    handle = RecallHandle("T", "broker-a", 123, "ID")
    assert handle.encode() == "djEgVCBicm9rZXItYSAxMjMgSUQ="
    assert decode_handle("djEgVCBicm9rZXItYSAxMjMgSUQ=") == handle
    assert decode_handle("djEgVCBicm9rZXItYSAxMjMgSUQ") == handle


@pytest.mark.parametrize(
    "text", ["", "xx", "djIgVCBi", "djEgVCBicm9rZXItYSBzb29uIElE", "€", "a" * 5_000, "/+/+"]
)
def test_what_is_no_handle(text: str) -> None:
    with pytest.raises(InvalidArgument, match="recall handle is invalid"):
        decode_handle(text)


@given(st.binary(max_size=60))
def test_any_text_is_a_handle_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidArgument):
        decode_handle(data.decode("latin-1"))
