"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

from __future__ import annotations

import json
from typing import cast

import pytest

from broker_core.access.accounts import Account
from broker_core.access.asking_account import note_account
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.errors import (
    InvalidArgument,
    NoPermission,
)
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from tests.broker.broker_tables import (
    OpenConnection,
)
from tests.broker.clients.processor_desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


class TestLocks:
    LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ

    @pytest.fixture
    def desk(self) -> Desk:
        desk = Desk()
        desk.topics.put(TopicConfig("T1", 2, 4))
        desk.groups.put(GroupConfig("CG"))
        return desk

    def test_lock_and_unlock(self, desk: Desk) -> None:
        both = (
            b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"T1"},'
            b'{"brokerName":"broker-a","queueId":1,"topic":"T1"}]}'
        )
        assert desk.ask(self.LOCK, None, _lock_body("a", 0, 1)).body == both
        assert desk.ask(self.LOCK, None, _lock_body("b", 0, 1)).body == b'{"lockOKMQSet":[]}'
        assert desk.ask(self.UNLOCK, None, _lock_body("a", 0, 1)).code == 0
        assert desk.ask(self.LOCK, None, _lock_body("b", 0, 1)).body == both

    def test_a_lost_connection_keeps_its_locks_for_a_minute(self, desk: Desk) -> None:
        connection = OpenConnection()
        desk.beat(connection, "a")
        desk.ask(self.LOCK, connection, _lock_body("a", 0))
        connection.end()
        assert desk.ask(self.LOCK, None, _lock_body("b", 0)).body == b'{"lockOKMQSet":[]}'
        desk.disk.clock.advance(60_000)
        assert b'"queueId":0' in desk.ask(self.LOCK, None, _lock_body("b", 0)).body

    def test_the_client_id_of_another_account_locks_nothing(self, desk: Desk) -> None:
        """A client id is all that the owner of a lock shows."""
        owner, other = OpenConnection(), OpenConnection(50_001)
        for connection, key in ((owner, "one"), (other, "two")):
            note_account(cast(Connection, connection), Account(key))
        desk.beat(owner, "a")
        desk.ask(self.LOCK, owner, _lock_body("a", 0))
        for code in (self.LOCK, self.UNLOCK):
            with pytest.raises(NoPermission, match="in use by a client of another account"):
                desk.ask(code, other, _lock_body("a", 0))
        assert desk.ask(self.LOCK, other, _lock_body("b", 0)).body == b'{"lockOKMQSet":[]}'
        # Another connection of the same account is another link of the same client.
        again = OpenConnection(50_002)
        note_account(cast(Connection, again), Account("one"))
        assert desk.ask(self.UNLOCK, again, _lock_body("a", 0)).code == 0

    def test_a_group_may_lock_before_its_first_pull_makes_it(self, desk: Desk) -> None:
        body = _lock_body("a", 0, group="new")
        assert b'"queueId":0' in desk.ask(self.LOCK, None, body).body
        assert desk.groups.find("new") is None

    def test_what_does_not_exist_is_not_granted(self, desk: Desk) -> None:
        desk.groups.set_auto_create(False)
        bodies = (
            _lock_body("a", 4),
            _lock_body("a", 0, group="none"),
            _lock_body("a", 0, topic="../x"),
        )
        for body in bodies:
            assert desk.ask(self.LOCK, None, body).body == b'{"lockOKMQSet":[]}'
        assert len(desk.locks) == 0

    @pytest.mark.parametrize("client_id", ["", "x" * 256])
    def test_ids_are_bounded(self, desk: Desk, client_id: str) -> None:
        with pytest.raises(InvalidArgument, match="clientId"):
            desk.ask(self.LOCK, None, _lock_body(client_id, 0))


def _lock_body(client_id: str, *queues: int, group: str = "CG", topic: str = "T1") -> bytes:
    listed = [{"brokerName": "broker-a", "queueId": q, "topic": topic} for q in queues]
    return json.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": listed}).encode()
