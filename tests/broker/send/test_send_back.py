"""A consumer sends messages back: retries with growing delays, then dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_core.broker.send.send_back import SendBackProcessor
from broker_core.broker.tables.group_table import GROUPS_FILE, GroupTable
from broker_core.broker.tables.topic_table import TOPICS_FILE, TopicTable
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import CorruptRecord, InvalidArgument, NoPermission, RmqError
from broker_core.protocol_codes import FlushDiskType, RequestCode, ResponseCode
from broker_core.storage.files.file_system import DiskUsage
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.writes.message import Message
from tests.broker.delay_store import DelayStore

LEVELS = "1s 2s 3s 4s 5s"


class GivingBack:
    """A broker's parts around the processor."""

    def __init__(self, *, auto_create_group: bool = True, **settings: Any) -> None:
        self.delays = DelayStore(levels=LEVELS, **settings).start()
        disk, clock = self.delays.disk, self.delays.clock
        self.topics = TopicTable(JsonTable(disk, TOPICS_FILE), clock)
        self.groups = GroupTable(JsonTable(disk, GROUPS_FILE), clock, auto_create=auto_create_group)
        self.groups.put(GroupConfig("g"))
        self.processor = self.make()

    def make(self, **changes: Any) -> SendBackProcessor:
        parts: dict[str, Any] = {
            "store": self.delays.store,
            "topics": self.topics,
            "groups": self.groups,
            "level_count": 5,
            "stats": self.delays.stats,
            "choose_queue": lambda count: count - 1,
        }
        return SendBackProcessor(**{**parts, **changes})

    async def give_back(self, position: int, **ext: object) -> RemotingCommand:
        """One request; the answer, or the error that becomes one."""
        fields = {"offset": position, "group": "g", "delayLevel": 0, **ext}
        texts = {name: str(value) for name, value in fields.items() if value is not None}
        command = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, texts, opaque=9)
        handler = self.processor.handlers()[RequestCode.CONSUMER_SEND_MSG_BACK]
        answer = await handler(None, command)  # type: ignore[arg-type, misc]
        assert isinstance(answer, RemotingCommand)
        assert (answer.is_response, answer.opaque) == (True, 9)
        return answer

    def put(self, body: bytes = b"body", **fields: Any) -> int:
        """A message to give back; its position."""
        return self.delays.store.put_now(Message("T", body, **fields)).position

    def retries(self, queue_id: int = 0) -> list[MessageRecord]:
        return self.delays.records("%RETRY%g", queue_id)

    def dead_letters(self) -> list[MessageRecord]:
        return self.delays.records("%DLQ%g")


@pytest.fixture(params=list(FlushDiskType), ids=lambda mode: mode.value)
def broker(request: pytest.FixtureRequest) -> GivingBack:
    return GivingBack(flush_disk_type=request.param)


def test_the_first_retry_is_the_message_again(
    broker: GivingBack, run_async: Callable[..., Any]
) -> None:
    host = ("10.9.8.7", 1_234)
    position = broker.put(
        b"body", queue_id=2, tags="A", keys="k", properties={"UNIQ_KEY": "U1", "WAIT": "true"},
        flag=5, sys_flag=1, born_timestamp=77, born_host=host,
    )  # fmt: skip
    first = broker.delays.records("T", 2)[0]
    answer = run_async(broker.give_back(position))
    assert (answer.code, answer.ext, len(answer.body)) == (ResponseCode.SUCCESS, {}, 0)
    broker.delays.advance(2_999)
    assert broker.retries() == []
    broker.delays.advance(1)
    (retry,) = broker.retries()
    assert (retry.body, retry.flag, retry.sys_flag) == (b"body", 5, 1)
    assert (retry.born_timestamp, retry.born_host, retry.reconsume_times) == (77, host, 1)
    properties = retry.properties
    assert {name: properties[name] for name in ("TAGS", "KEYS", "UNIQ_KEY")} == {
        "TAGS": "A", "KEYS": "k", "UNIQ_KEY": "U1",
    }  # fmt: skip
    assert properties["RETRY_TOPIC"] == "T"
    assert properties["ORIGIN_MESSAGE_ID"] == first.message_id
    assert (properties["WAIT"], properties["DELAY"]) == ("false", "3")
    topic = broker.topics.find("%RETRY%g")
    assert topic is not None
    assert (topic.read_queue_count, topic.write_queue_count, topic.perm) == (1, 1, 6)


def test_retries_until_the_dead_letters(broker: GivingBack, run_async: Callable[..., Any]) -> None:
    broker.groups.put(GroupConfig("g", retry_times_max=3))
    position = broker.put()
    origin = broker.delays.records()[0].message_id
    for times, level in ((1, 3), (2, 4), (3, 5)):
        run_async(broker.give_back(position))
        broker.delays.advance(level * 1_000 - 1)
        assert len(broker.retries()) == times - 1
        broker.delays.advance(1)
        retry = broker.retries()[-1]
        assert (retry.reconsume_times, retry.properties["DELAY"]) == (times, str(level))
        assert retry.properties["RETRY_TOPIC"] == "T"
        assert retry.properties["ORIGIN_MESSAGE_ID"] == origin
        position = retry.physical_offset
    run_async(broker.give_back(position))
    (dead,) = broker.dead_letters()
    assert (dead.body, dead.reconsume_times) == (b"body", 4)
    assert "DELAY" not in dead.properties
    assert dead.properties["RETRY_TOPIC"] == dead.properties["DLQ_ORIGIN_TOPIC"] == "T"
    assert dead.properties["ORIGIN_MESSAGE_ID"] == origin
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == origin
    topic = broker.topics.find("%DLQ%g")
    assert topic is not None
    assert (topic.read_queue_count, topic.write_queue_count, topic.perm) == (1, 1, 6)
    stats = broker.delays.stats.stats()
    assert (stats["send_back"], stats["dlq"]) == ({"T@g": 4}, {"T@g": 1})


@pytest.mark.parametrize(
    ("ext", "level"),
    [
        ({"delayLevel": 1}, 1), ({"delayLevel": 5}, 5), ({"delayLevel": 99}, 5),
        ({"maxReconsumeTimes": 1}, 3), ({"maxReconsumeTimes": -1}, 3),
        ({"delayLevel": -1}, None), ({"maxReconsumeTimes": 0}, None),
        ({"delayLevel": 2, "maxReconsumeTimes": 0}, None),
    ],
)  # fmt: skip
def test_what_the_consumer_asks_for(
    ext: dict[str, object], level: int | None, run_async: Callable[..., Any]
) -> None:
    broker = GivingBack()
    run_async(broker.give_back(broker.put(), **ext))
    broker.delays.advance(10_000)
    if level is None:
        assert len(broker.dead_letters()) == 1
        assert broker.retries() == []
    else:
        (retry,) = broker.retries()
        assert retry.properties["DELAY"] == str(level)
        assert broker.dead_letters() == []


def test_the_retry_queue_is_chosen_among_those_of_the_group(run_async: Callable[..., Any]) -> None:
    broker = GivingBack()
    broker.groups.put(GroupConfig("g", retry_queue_count=3))
    run_async(broker.give_back(broker.put(), delayLevel=1))
    broker.delays.advance(1_000)
    assert len(broker.retries(2)) == 1


def test_a_retry_topic_with_fewer_queues_than_the_group_asks_for(
    run_async: Callable[..., Any],
) -> None:
    broker = GivingBack()
    broker.topics.create_retry("g", 1)
    broker.groups.put(GroupConfig("g", retry_queue_count=3))
    run_async(broker.give_back(broker.put(), delayLevel=1))
    broker.delays.advance(1_000)
    assert len(broker.retries(0)) == 1


def test_a_group_without_retry_queues_drops_the_message(run_async: Callable[..., Any]) -> None:
    broker = GivingBack()
    broker.groups.put(GroupConfig("g", retry_queue_count=0))
    position = broker.put()
    end = broker.delays.store.log_range[1]
    assert run_async(broker.give_back(position)).code == ResponseCode.SUCCESS
    assert broker.delays.store.log_range[1] == end


def _refused(broker: GivingBack, run_async: Callable[..., Any], *args: Any, **ext: Any) -> RmqError:
    end = broker.delays.store.log_range[1]
    with pytest.raises(RmqError) as caught:
        run_async(broker.give_back(*args, **ext))
    assert broker.delays.store.log_range[1] == end
    return caught.value


def test_an_unknown_group(run_async: Callable[..., Any]) -> None:
    broker = GivingBack(auto_create_group=False)
    error = _refused(broker, run_async, broker.put(), group="who")
    assert error.response_code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "who" in str(error)


def test_an_unknown_group_is_made_where_that_is_allowed(run_async: Callable[..., Any]) -> None:
    broker = GivingBack()
    assert run_async(broker.give_back(broker.put(), group="who")).code == 0
    assert broker.groups.find("who") is not None


def test_a_message_that_is_not_there(run_async: Callable[..., Any]) -> None:
    broker = GivingBack()
    position = broker.put()
    far = _refused(broker, run_async, 1 << 40)
    assert far.response_code == ResponseCode.SYSTEM_ERROR
    inside = _refused(broker, run_async, position + 5)
    assert isinstance(inside, CorruptRecord)
    assert inside.response_code == ResponseCode.SYSTEM_ERROR


def test_permissions(run_async: Callable[..., Any]) -> None:
    broker = GivingBack()
    position = broker.put()
    broker.processor = broker.make(broker_permission=4)
    assert isinstance(_refused(broker, run_async, position), NoPermission)
    broker.processor = broker.make()
    broker.topics.put(TopicConfig("%RETRY%g", 1, 1, 4))
    assert isinstance(_refused(broker, run_async, position), NoPermission)
    broker.topics.put(TopicConfig("%DLQ%g", 1, 1, 4))
    assert isinstance(_refused(broker, run_async, position, delayLevel=-1), NoPermission)


@pytest.mark.parametrize(
    "ext",
    [
        {"group": None}, {"group": "a b"}, {"delayLevel": None}, {"delayLevel": "x"},
        {"delayLevel": 1 << 40}, {"offset": -1}, {"offset": "1" * 50}, {"offset": None},
        {"maxReconsumeTimes": "many"}, {"unitMode": "perhaps"},
    ],
)  # fmt: skip
def test_bad_fields(ext: dict[str, object], run_async: Callable[..., Any]) -> None:
    broker = GivingBack()
    error = _refused(broker, run_async, broker.put(), **ext)
    assert isinstance(error, InvalidArgument)


def test_a_store_that_takes_no_messages(run_async: Callable[..., Any]) -> None:
    broker = GivingBack()
    position = broker.put()
    broker.topics.create_retry("g")
    broker.delays.disk.reported_usage = DiskUsage(95, 5)
    broker.delays.store.clean()
    error = _refused(broker, run_async, position)
    assert error.response_code == ResponseCode.SYSTEM_ERROR
    assert "SERVICE_NOT_AVAILABLE" in str(error)
    assert broker.delays.stats.stats()["send_back"] == {}


def test_answered_only_when_durable(run_async: Callable[..., Any]) -> None:
    """WAIT=false is what RocketMQ stores; the consumer moves on after the answer nevertheless."""
    broker = GivingBack(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    run_async(broker.give_back(broker.put()))
    assert broker.delays.store.flushed_position == broker.delays.store.log_range[1]


def test_unit_mode_marks_the_retry_topic(run_async: Callable[..., Any]) -> None:
    broker = GivingBack()
    run_async(broker.give_back(broker.put(), unitMode="true"))
    topic = broker.topics.find("%RETRY%g")
    assert topic is not None
    assert topic.sys_flag == 2
