"""Codes of the wire."""

from __future__ import annotations

from pathlib import Path

from broker_core.protocol_codes import PutStatus, RequestCode, ResponseCode


def test_put_statuses_are_apart_though_codes_are_shared() -> None:
    assert len({status.value for status in PutStatus}) == len(PutStatus)
    assert PutStatus.UNKNOWN_ERROR.response_code == ResponseCode.SYSTEM_ERROR
    assert PutStatus.CREATE_MAPPED_FILE_FAILED is not PutStatus.UNKNOWN_ERROR


def test_a_status_tells_whether_the_message_is_stored() -> None:
    stored = {status for status in PutStatus if status.stored}
    assert stored == {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }


def test_some_numbers_of_rocketmq() -> None:
    assert (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE) == (310, 11)
    assert (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST) == (0, 17)


def test_the_page_on_formats_lists_our_own_requests() -> None:
    page = (Path(__file__).parent.parent / "docs/formats.md").read_text(encoding="utf-8")
    own = [code for code in RequestCode if 29_900 <= code < 30_000]
    assert own
    assert not [code.name for code in own if f"| {code.value} | {code.name} |" not in page]
