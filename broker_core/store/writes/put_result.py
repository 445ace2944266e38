"""The result of a put."""

from __future__ import annotations

from typing import NamedTuple

from broker_core.codec.records.host_address import decode_host
from broker_core.codec.wire.message_id import encode_message_id
from broker_core.protocol_codes import PutStatus

# Looked up once: access to enum members is slow.
_PUT_OK = PutStatus.PUT_OK


class PutResult(NamedTuple):
    """Outcome of one put. The numbers are -1 when nothing was stored."""

    status: PutStatus
    remark: str = ""
    position: int = -1
    end_position: int = -1
    queue_offset: int = -1
    message_count: int = 0
    store_timestamp: int = -1
    store_host: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether all requested guarantees are met."""
        return self.status is _PUT_OK

    @property
    def message_id(self) -> str:
        """Offset message id of the first record; empty when nothing was stored."""
        if self.position < 0:
            return ""
        return encode_message_id(decode_host(self.store_host), self.position)
