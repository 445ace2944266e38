"""Ready-made reply heads are the bytes of the general encoder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.wire.hot_replies import pulled_reply, sent_reply
from broker_core.codec.wire.remoting_command import RemotingCommand, encode_command

I32S = st.integers(-(2**31), 2**31 - 1)
I64S = st.integers(-(2**63), 2**63 - 1)
IDS = st.text("0123456789ABCDEF", max_size=56)


@given(I32S, IDS, I32S, I64S, IDS)
def test_sent(opaque: int, message_id: str, queue_id: int, offset: int, unique: str) -> None:
    request = RemotingCommand(310, opaque=opaque)
    ext = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": message_id,
           "queueId": str(queue_id), "queueOffset": str(offset)}  # fmt: skip
    if unique:
        ext["transactionId"] = unique
    constants = b'"MSG_REGION":"DefaultRegion","TRACE_ON":"true",'
    made = sent_reply(opaque, constants, message_id.encode(), queue_id, offset, unique.encode())
    assert made == encode_command(request.reply(ext=ext))


@given(I32S, st.integers(0, 3000), I64S, I64S, I64S, st.integers(0, 2), st.binary(max_size=9))
def test_pulled(
    opaque: int, code: int, following: int, low: int, high: int, broker: int, body: bytes
) -> None:
    ext = {"nextBeginOffset": str(following), "minOffset": str(low), "maxOffset": str(high),
           "suggestWhichBrokerId": str(broker)}  # fmt: skip
    general = RemotingCommand(11, opaque=opaque).reply(code, ext=ext, body=body)
    made = pulled_reply(opaque, code, following, (low, high), broker, len(body))
    assert made == encode_command(general)
