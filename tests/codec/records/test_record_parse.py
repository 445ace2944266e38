"""`property_text` returns the same properties as `decode_record`, for every layout."""

from __future__ import annotations

from hypothesis import given, reject
from hypothesis import strategies as st

from broker_core.codec.records.message_properties import CRC32, decode_properties
from broker_core.codec.records.message_record import MessageRecord, decode_record, encode_record
from broker_core.codec.records.record_parse import property_text
from broker_core.errors import InvalidArgument
from tests.codec.records.test_message_record import MESSAGES


@given(MESSAGES, st.booleans(), st.binary(max_size=4))
def test_property_texts_of_every_layout(
    message: MessageRecord, append_crc: bool, beside: bytes
) -> None:
    try:
        record = encode_record(message, append_crc)
    except InvalidArgument:
        # Properties that would be taken for a damaged checksum are never stored.
        reject()
    start = len(beside)
    text = property_text(beside + record + beside, start, start + len(record))
    assert record.endswith(text)
    found = decode_properties(text)
    found.pop(CRC32, None)
    assert found == decode_record(record).properties
