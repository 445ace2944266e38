"""R12 (RocketMQ #544, #7709, #8311): half messages that were forgotten without a verdict.

One was dropped when its age and its protection were the same millisecond; a commit was lost when
it could not be stored at that moment; and checks were used up while a half was still protected.
"""

from __future__ import annotations

import pytest

from broker_core.broker.transactions.check import TransactionCheck
from broker_core.broker.transactions.half_message import Half
from broker_core.broker.transactions.service import Transactions, Verdict
from broker_core.protocol_codes import PutStatus
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult
from tests.broker.half_store import CHECKS_MAX, INTERVAL_MS, TIMEOUT_MS, HalfStore, asked


def _in_one_millisecond() -> None:
    """The check looks at a half that was stored in the same millisecond, and at its exact time."""
    broker = HalfStore().start()
    producer = broker.producer()
    broker.advance(INTERVAL_MS - 1)
    now = broker.send(b"now")
    broker.advance(1)
    assert broker.open_offsets() == [now], "a half is gone"
    broker.advance(INTERVAL_MS - TIMEOUT_MS)
    exact = broker.send(b"exact")
    broker.advance(TIMEOUT_MS)
    assert broker.open_offsets() == [now, exact], "a half is gone"
    assert {message.body for _, message in asked(producer)} == {b"now", b"exact"}
    broker.stop()


def _commit_while_nothing_can_be_stored() -> None:
    """The store refuses every message for a while, and the process is killed soon after."""
    broker = HalfStore().start()
    offset = broker.send(b"x")
    store = MessageStore.append_text
    busy = PutResult(PutStatus.OS_PAGE_CACHE_BUSY, "busy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MessageStore, "append_text", lambda *_, **__: busy)
        assert not broker.end(offset).result.ok
        broker.advance(2_000)
    assert MessageStore.append_text is store
    broker.advance(2_000)
    assert broker.bodies() == [b"x"], "the commit is lost"
    later = broker.killed()
    assert later.bodies() == [b"x"]
    assert later.open_offsets() == []
    later.stop()


def _protected_for_longer_than_all_checks() -> None:
    broker = HalfStore().start()
    producer = broker.producer()
    rounds = CHECKS_MAX + 3
    seconds = rounds * INTERVAL_MS // 1_000
    offset = broker.send(b"x", CHECK_IMMUNITY_TIME_IN_SECONDS=str(seconds))
    for _ in range(rounds - 1):
        broker.next_round()
    assert broker.given_up() == [], "given up while it was protected"
    assert asked(producer) == []
    for number in range(CHECKS_MAX):
        broker.next_round()
        assert len(asked(producer)) == 1, f"question {number} was used up"
    assert broker.open_offsets() == [offset]
    assert broker.end(offset).verdict is Verdict.COMMIT
    assert broker.bodies() == [b"x"]
    broker.stop()


def test_stored_and_looked_at_in_one_millisecond() -> None:
    _in_one_millisecond()


def test_a_commit_that_cannot_be_stored_now() -> None:
    _commit_while_nothing_can_be_stored()


def test_protected_for_longer_than_all_checks() -> None:
    _protected_for_longer_than_all_checks()


# The scenarios with the bugs planted


def test_finds_a_check_that_drops_what_is_exactly_due(monkeypatch: pytest.MonkeyPatch) -> None:
    def dropping(self: TransactionCheck, half: Half) -> None:
        if self._transactions.age_ms(half) <= TIMEOUT_MS:
            self._transactions.window.close(half.record.queue_offset)

    monkeypatch.setattr(TransactionCheck, "_check", dropping)
    with pytest.raises(AssertionError, match="a half is gone"):
        _in_one_millisecond()


def test_finds_a_commit_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "_want", lambda *_: None)
    with pytest.raises(AssertionError, match="the commit is lost"):
        _commit_while_nothing_can_be_stored()


def test_finds_checks_that_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    check = TransactionCheck._check

    def counting(self: TransactionCheck, half: Half) -> None:
        window, offset = self._transactions.window, half.record.queue_offset
        if half.immunity_ms is not None and self._transactions.age_ms(half) < half.immunity_ms:
            window.set_checks(offset, window.checks(offset) + 1)
        check(self, half)

    monkeypatch.setattr(TransactionCheck, "_check", counting)
    with pytest.raises(AssertionError, match=r"given up while|used up"):
        _protected_for_longer_than_all_checks()
