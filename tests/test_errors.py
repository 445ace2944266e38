"""One class per response code, on both sides of the wire."""

from __future__ import annotations

import pytest

from broker_core import errors
from broker_core.errors import RemoteError
from broker_core.protocol_codes import ResponseCode

WITH_CLASS = [kind for kind in vars(errors).values() if isinstance(kind, type)]
REMOTE = [kind for kind in WITH_CLASS if issubclass(kind, RemoteError) and kind is not RemoteError]


@pytest.mark.parametrize("kind", REMOTE)
def test_a_code_becomes_the_class_that_stands_for_it(kind: type[RemoteError]) -> None:
    found = RemoteError.for_code(kind.response_code, "why")
    assert type(found) is kind
    assert (found.code, found.remark, str(found)) == (kind.response_code, "why", "why")


def test_no_two_classes_share_a_code() -> None:
    codes = [kind.response_code for kind in REMOTE]
    assert len(codes) == len(set(codes))


def test_a_code_without_a_class() -> None:
    found = RemoteError.for_code(9_999)
    assert type(found) is RemoteError
    assert (found.code, str(found)) == (9_999, "response code 9999")


def test_every_error_says_whether_a_retry_can_help() -> None:
    assert RemoteError.for_code(ResponseCode.SYSTEM_BUSY).retriable
    assert not RemoteError.for_code(ResponseCode.NO_PERMISSION).retriable
    ours = [kind for kind in WITH_CLASS if issubclass(kind, errors.RmqError)]
    assert all(isinstance(kind.retriable, bool) for kind in ours)
