"""QUERY_CONSUMER_OFFSET and UPDATE_CONSUMER_OFFSET."""

from __future__ import annotations

import pytest

from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from broker_core.errors import (
    GroupNotExist,
    InvalidArgument,
    RemoteError,
    TopicNotExist,
)
from broker_core.protocol_codes import LanguageCode, RequestCode
from tests.broker.broker_tables import (
    OpenConnection,
)
from tests.broker.clients.processor_desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


QUEUE = {"consumerGroup": "CG", "topic": "T1", "queueId": "0"}


QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


class TestOffsets:
    @pytest.fixture
    def desk(self) -> Desk:
        desk = Desk()
        desk.topics.put(TopicConfig("T1", 4, 4))
        desk.groups.put(GroupConfig("CG"))
        desk.ranges["T1", 0] = (0, 100)
        return desk

    def test_what_was_committed_is_answered(self, desk: Desk) -> None:
        assert desk.ask(UPDATE, **QUEUE, commitOffset="7").code == 0
        answer = desk.ask(QUERY, **QUEUE)
        assert (answer.code, answer.ext) == (0, {"offset": "7"})

    def test_a_new_group_on_a_young_queue_starts_at_0(self, desk: Desk) -> None:
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "0"}
        assert desk.ask(QUERY, **QUEUE, setZeroIfNotFound="true").ext == {"offset": "0"}
        assert desk.ask(QUERY, **{**QUEUE, "queueId": "3"}).ext == {"offset": "0"}, "empty queue"

    def test_a_new_group_has_no_offset_if_it_forbids_0_or_messages_are_gone(
        self, desk: Desk
    ) -> None:
        answer = desk.ask(QUERY, **QUEUE, setZeroIfNotFound="false")
        assert (answer.code, answer.ext) == (22, {})
        desk.ranges["T1", 0] = (50, 100)
        assert desk.ask(QUERY, **QUEUE).code == 22
        desk.ask(UPDATE, **QUEUE, commitOffset="60")
        assert desk.ask(QUERY, **QUEUE, setZeroIfNotFound="false").ext == {"offset": "60"}

    def test_commits_of_members_never_go_back(self, desk: Desk) -> None:
        desk.beat(OpenConnection())
        desk.ask(UPDATE, flag=ONEWAY_FLAG, **QUEUE, commitOffset="7")
        desk.ask(UPDATE, flag=ONEWAY_FLAG, **QUEUE, commitOffset="3")
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "7"}

    def test_a_commit_in_flight_when_the_group_went_does_not_go_back(self, desk: Desk) -> None:
        desk.ask(UPDATE, flag=ONEWAY_FLAG, **QUEUE, commitOffset="7")
        desk.ask(UPDATE, flag=ONEWAY_FLAG, **QUEUE, commitOffset="3")
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "7"}

    def test_a_tool_resets_an_idle_group(self, desk: Desk) -> None:
        connection = OpenConnection()
        desk.beat(connection)
        desk.ask(UPDATE, **QUEUE, commitOffset="7")
        desk.ask(UPDATE, **QUEUE, commitOffset="7")
        with pytest.raises(RemoteError, match="online") as refused:
            desk.ask(UPDATE, **QUEUE, commitOffset="3")
        assert refused.value.response_code == 604
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "7"}
        connection.end()
        assert desk.ask(UPDATE, **QUEUE, commitOffset="3").code == 0
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "3"}

    def test_a_java_tool_moves_a_group_with_members(self, desk: Desk) -> None:
        """`resetOffsetByTime -q -o` does, and asks for a reset with notification next."""
        member = OpenConnection()
        desk.beat(member)
        desk.ask(UPDATE, **QUEUE, commitOffset="7")
        back = RemotingCommand(UPDATE, {**QUEUE, "commitOffset": "3"}, language=LanguageCode.JAVA)
        with pytest.raises(RemoteError, match="online"):
            desk.handlers[UPDATE](member, back)
        assert desk.handlers[UPDATE](OpenConnection(), back).code == 0
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "3"}
        desk.ask(UPDATE, member, flag=ONEWAY_FLAG, **QUEUE, commitOffset="8")
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "8"}

    def test_a_commit_during_a_reset_is_not_answered_with_success(self, desk: Desk) -> None:
        desk.beat(OpenConnection())
        desk.ask(UPDATE, **QUEUE, commitOffset="7")
        desk.offsets.reset("CG", "T1", 0, 2, until_pulled=True)
        with pytest.raises(RemoteError):
            desk.ask(UPDATE, **QUEUE, commitOffset="9")
        assert desk.offsets.query("CG", "T1", 0) == 2

    def test_what_is_unknown_is_named(self, desk: Desk) -> None:
        with pytest.raises(GroupNotExist):
            desk.ask(UPDATE, **{**QUEUE, "consumerGroup": "none"}, commitOffset="1")
        with pytest.raises(TopicNotExist):
            desk.ask(UPDATE, **{**QUEUE, "topic": "none"}, commitOffset="1")

    @pytest.mark.parametrize(
        "fields",
        [
            {"commitOffset": "101"},
            {"commitOffset": "-1"},
            {"commitOffset": "9223372036854775808"},
            {"commitOffset": ""},
            {"commitOffset": "1.5"},
            {"commitOffset": "1", "queueId": "4"},
            {"commitOffset": "1", "queueId": "-1"},
            {"commitOffset": "1", "queueId": "x"},
            {"commitOffset": "1", "consumerGroup": ""},
            {"commitOffset": "1", "topic": ""},
        ],
    )
    def test_what_cannot_be_is_refused(self, desk: Desk, fields: dict[str, str]) -> None:
        with pytest.raises(InvalidArgument):
            desk.ask(UPDATE, **{**QUEUE, **fields})
        assert len(desk.offsets) == 0
