"""Records of transactions."""

from __future__ import annotations

import pytest

from broker_core.broker.transactions.half_message import ended_offsets, is_half, read_half
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.topic_name import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from broker_core.errors import MalformedRecord


@pytest.mark.parametrize("topic", ["", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "a/b"])
def test_no_commit_reaches_a_topic_of_the_broker(topic: str) -> None:
    text = f"REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02".encode()
    with pytest.raises(MalformedRecord):
        read_half(MessageRecord(TRANSACTION_HALF_TOPIC, 0, b"x", text))


def test_what_opens_a_transaction() -> None:
    assert is_half({"TRAN_MSG": "TRUE"}, "T", 0, 0)
    assert is_half({"TRAN_MSG": "true"}, "T", 0, 3)
    assert not is_half({"TRAN_MSG": "false"}, "T", 0, 0)
    # A consumer that sends a committed message to its retry topic.
    assert not is_half({"TRAN_MSG": "true"}, "%RETRY%g", 1, 3)
    assert not is_half({"TRAN_MSG": "true"}, "%DLQ%g", 17, 0)


def test_offsets_in_op_records() -> None:
    def op(body: bytes, tags: bytes = b"TAGS\x01d\x02") -> list[int]:
        return ended_offsets(MessageRecord(TRANSACTION_OP_TOPIC, 0, body, tags))

    assert op(b"12") == [12]
    assert op(b"1,2,33,") == [1, 2, 33]
    assert op(b"-1") == op(b"x") == op(b"\xff\xff") == op(b"9" * 40) == []
    assert op(b"1", b"") == []
