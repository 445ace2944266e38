"""Permission rules of a broker, by request code.

The rules are RocketMQ's own, and stricter where RocketMQ only requires a signature: requests that
show or change more than the topics and groups of an account need an admin. Tables that slaves copy
need a broker account. Codes that this broker does not serve have rules, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from broker_core.access.accounts import PUB, SUB
from broker_core.access.permissions import (
    ADMINS,
    ANY_ACCOUNT,
    BROKERS,
    Need,
    Resources,
    Role,
    Rule,
    fields,
    group_need,
    refused,
    topic_need,
)
from broker_core.codec.json.dialect import parse_object
from broker_core.codec.json.fields import text_field, whole_number
from broker_core.codec.wire.bodies.heartbeat_data import parse_heartbeat
from broker_core.codec.wire.bodies.message_queue import parse_lock_request
from broker_core.codec.wire.bodies.sink_messages import (
    parse_block,
    parse_ids,
    parse_publication,
)
from broker_core.codec.wire.pop_handle import batch_ack_names
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import REPLY_TOPIC_SUFFIX, RETRY_TOPIC_PREFIX, TOOLS_GROUP
from broker_core.protocol_codes import RequestCode as Code


def _account(needs: Any) -> Rule:
    return Rule(Role.ACCOUNT, needs)


def _send(topic_field: str) -> Rule:
    return _account(fields(topic=topic_field, permission=PUB))


def _offset_of(command: RemotingCommand, name: str) -> int:
    return whole_number(command.ext.get(name, ""), name, 0)


def _sent_back(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    """Copies a message into the group's retry topic: needs the group and the message's topic."""
    yield group_need(command.ext.get("group", ""))
    yield from _viewed(command, resources)


def _viewed(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    position = _offset_of(command, "offset")
    topic = resources.topic_at(position)
    if topic is not None:
        # The name of a retry topic does not say whose message this is.
        owners = list(resources.popped_by(position))
        yield from _owned(owners)
        if not owners:
            yield topic_need(topic, SUB)


def _owned(owners: Iterable[tuple[str, str]]) -> Iterable[Need]:
    """Needs on groups, and on the topics that they popped."""
    for owner, popped in owners:
        yield group_need(owner)
        if popped:
            yield topic_need(popped, SUB)


def _transaction(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    topic = resources.transaction_topic_at(_offset_of(command, "commitLogOffset"))
    if topic is not None:
        yield topic_need(topic, PUB)


def _topic_of(group: str, topic: str) -> Need:
    """Permission on the topic; for retries of the group, `%RETRY%group_topic`, on the original."""
    for sign in "_+":
        prefix = f"{RETRY_TOPIC_PREFIX}{group}{sign}"
        if group and topic.startswith(prefix):
            return topic_need(topic[len(prefix) :], SUB)
    return topic_need(topic, SUB)


def _progress(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    """Progress of a group in a topic. Shows no message."""
    group = command.ext.get("consumerGroup", "")
    yield group_need(group)
    yield _topic_of(group, command.ext.get("topic", ""))


def _consumed(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    """Several pairs of group and topic may share the name of a retry topic. All must be allowed.

    The topic may hold messages of each.
    """
    yield from _progress(command, resources)
    ext = command.ext
    yield from _shared_retries(ext.get("consumerGroup", ""), ext.get("topic", ""), resources)


def _shared_retries(group: str, topic: str, resources: Resources) -> Iterable[Need]:
    """The other owners of a retry topic. A pull shows a group only its own messages of a topic
    that has its name or begins with it.
    """
    if group and topic.startswith(f"{RETRY_TOPIC_PREFIX}{group}_"):
        yield from _owned(resources.other_retry_owners(group, topic))
    elif topic != f"{RETRY_TOPIC_PREFIX}{group}":
        yield from _owned(resources.retry_owners(topic))


def _popped(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    """Pops of a retry topic itself show the messages of all of its owners."""
    yield from _consumed(command, resources)
    yield from _all_owners(command, resources)


def _all_owners(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    group, topic = command.ext.get("consumerGroup", ""), command.ext.get("topic", "")
    if topic == f"{RETRY_TOPIC_PREFIX}{group}":
        yield from _owned(resources.retry_owners(topic))


def _read(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    """Messages of a topic, of all owners; with a group, also what it subscribes to."""
    topic, group = command.ext.get("topic", ""), command.ext.get("consumerGroup", "")
    yield topic_need(topic, SUB)
    yield from _owned(resources.retry_owners(topic))
    if group:
        yield group_need(group)


def _reply(command: RemotingCommand, resources: Resources, topic_field: str) -> Iterable[Need]:
    """A reply goes to a client, not to its topic: permission on the reply topic is required."""
    topic = command.ext.get(topic_field, "")
    if not topic.endswith(REPLY_TOPIC_SUFFIX) or not resources.is_system_topic(topic):
        raise refused(f"{topic!r:.140} is not the reply topic of this cluster")
    yield topic_need(topic, PUB)


def _all_acknowledged(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    # An empty list is checked as an unnamed group and topic, which only admins may use.
    for group, topic in batch_ack_names(command.body) or {("", "")}:
        yield group_need(group)
        yield _topic_of(group, topic)


def _heartbeat(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    for consumer in parse_heartbeat(command.body).consumers:
        yield group_need(consumer.group)
        for subscription in consumer.subscriptions:
            yield _topic_of(consumer.group, subscription.topic)


def _unregistered(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    group = command.ext.get("consumerGroup", "")
    return (group_need(group),) if group else ()


def _locks(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    request = parse_lock_request(command.body)
    yield group_need(request.group)
    for topic in {queue.topic for queue in request.queues}:
        yield topic_need(topic, SUB)


def _checked_config(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    found = parse_object(command.body)
    subscription = found.get("subscriptionData")
    if isinstance(subscription, dict):
        yield topic_need(text_field(subscription, "topic", ""), SUB)
    else:
        yield group_need(text_field(found, "group", ""))


def _assignment(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    found = parse_object(command.body)
    group = text_field(found, "consumerGroup", "")
    yield group_need(group)
    yield _topic_of(group, text_field(found, "topic", ""))


def _cloned(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    ext = command.ext
    yield group_need(ext.get("srcGroup", ""))
    yield group_need(ext.get("destGroup", ""))
    yield topic_need(ext.get("topic", ""), SUB)


def _ends(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    yield topic_need(command.ext.get("topic", ""), SUB)
    yield group_need(command.ext.get("consumerGroup") or TOOLS_GROUP)


def _bulk_pull(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    yield from _ends(command, resources)
    group = command.ext.get("consumerGroup") or TOOLS_GROUP
    yield from _shared_retries(group, command.ext.get("topic", ""), resources)


def _local_range(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    """A reader of the files sees the messages of all owners of a retry topic."""
    yield from _bulk_pull(command, resources)
    yield from _all_owners(command, resources)


def _staged(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    """Needs of a staging request. The handler refuses an unknown id."""
    sink = resources.sink_of(command.ext.get("stagingId", ""))
    if sink is not None:
        yield group_need(sink, PUB)


def _sealed(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    yield from _staged(command, resources)
    for topic in resources.topics_of(command.ext.get("stagingId", "")):
        yield topic_need(topic, PUB)


def _stage_append(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    yield from _staged(command, resources)
    queues, _ = parse_block(command.body)
    for topic in {topic.decode("latin-1") for topic, _ in queues}:
        yield topic_need(topic, PUB)


def _stage_drop(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    for sink in {resources.sink_of(staging_id) for staging_id in parse_ids(command.body)}:
        if sink is not None:
            yield group_need(sink, PUB)


def _published(command: RemotingCommand, resources: Resources) -> Iterable[Need]:
    publication = parse_publication(command.body)
    yield group_need(publication.identity.sink, PUB)
    for part in publication.parts:
        for topic in resources.topics_of(part.staging_id):
            yield topic_need(topic, PUB)


def _sink(command: RemotingCommand, _: Resources) -> Iterable[Need]:
    yield group_need(command.ext.get("sinkId", ""), PUB)


_CONSUME: Final = _account(_consumed)
_POP: Final = _account(_popped)
_PROGRESS: Final = _account(_progress)
_EITHER: Final = _account(fields(topic="topic", permission=PUB | SUB))
_READ_TOPIC: Final = _account(fields(topic="topic"))
_GROUP: Final = _account(fields(group="consumerGroup"))

BROKER_RULES: Final[Mapping[int, Rule]] = {
    Code.SEND_MESSAGE: _send("topic"),
    Code.SEND_MESSAGE_V2: _send("b"),
    Code.SEND_BATCH_MESSAGE: _send("b"),
    Code.SEND_ONCE: _send("b"),
    Code.SEND_REPLY_MESSAGE: _account(partial(_reply, topic_field="topic")),
    Code.SEND_REPLY_MESSAGE_V2: _account(partial(_reply, topic_field="b")),
    Code.CONSUMER_SEND_MSG_BACK: _account(_sent_back),
    Code.END_TRANSACTION: _account(_transaction),
    Code.RECALL_MESSAGE: _send("topic"),
    Code.PULL_MESSAGE: _CONSUME,
    Code.LITE_PULL_MESSAGE: _CONSUME,
    Code.POP_MESSAGE: _POP,
    Code.PEEK_MESSAGE: _POP,
    Code.NOTIFICATION: _POP,
    Code.POLLING_INFO: _POP,
    Code.ACK_MESSAGE: _PROGRESS,
    Code.BATCH_ACK_MESSAGE: _account(_all_acknowledged),
    Code.CHANGE_MESSAGE_INVISIBLETIME: _PROGRESS,
    Code.QUERY_CONSUMER_OFFSET: _PROGRESS,
    Code.UPDATE_CONSUMER_OFFSET: _PROGRESS,
    Code.QUERY_MESSAGE: _account(_read),
    Code.QUERY_CONSUME_QUEUE: _account(_read),
    Code.VIEW_MESSAGE_BY_ID: _account(_viewed),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _EITHER,
    Code.GET_MAX_OFFSET: _EITHER,
    Code.GET_MIN_OFFSET: _EITHER,
    Code.GET_EARLIEST_MSG_STORETIME: _EITHER,
    Code.GET_TOPIC_STATS_INFO: _EITHER,
    Code.GET_TOPIC_CONFIG: _EITHER,
    Code.HEART_BEAT: _account(_heartbeat),
    Code.UNREGISTER_CLIENT: _account(_unregistered),
    Code.GET_CONSUMER_LIST_BY_GROUP: _GROUP,
    Code.GET_CONSUMER_CONNECTION_LIST: _GROUP,
    Code.GET_CONSUME_STATS: _GROUP,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _account(fields(group="group")),
    Code.QUERY_TOPICS_BY_CONSUMER: _account(fields(group="group")),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _account(fields(topic="topic", group="group")),
    Code.QUERY_CONSUME_TIME_SPAN: _account(fields(topic="topic", group="group")),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _READ_TOPIC,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _account(fields(topic="topic", group="group")),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _account(fields(topic="topic", group="group")),
    Code.CLONE_GROUP_OFFSET: _account(_cloned),
    Code.LOCK_BATCH_MQ: _account(_locks),
    Code.UNLOCK_BATCH_MQ: _account(_locks),
    Code.CHECK_CLIENT_CONFIG: _account(_checked_config),
    Code.QUERY_ASSIGNMENT: _account(_assignment),
    # Ours
    Code.CAPABILITIES: ANY_ACCOUNT,
    Code.BULK_PULL: _account(_bulk_pull),
    Code.LOCAL_RANGE: _account(_local_range),
    Code.TOPIC_ENDS: _account(_ends),
    Code.BULK_SEND: _account(fields(topic="topic", permission=PUB)),
    Code.STAGE_BEGIN: _account(_sink),
    Code.STAGE_APPEND: _account(_stage_append),
    Code.STAGE_SEAL: _account(_sealed),
    Code.STAGE_DROP: _account(_stage_drop),
    Code.SINK_PUBLISH: _account(_published),
    Code.SINK_STATUS: _account(_sink),
    Code.STAGE_RENEW: _account(_sink),
    # Tables that slaves copy
    Code.GET_ALL_TOPIC_CONFIG: BROKERS,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: BROKERS,
    Code.GET_ALL_CONSUMER_OFFSET: BROKERS,
    Code.GET_ALL_DELAY_OFFSET: BROKERS,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: BROKERS,
    Code.GET_TIMER_CHECK_POINT: BROKERS,
    Code.GET_TIMER_METRICS: BROKERS,
    Code.METADATA_CHANGES: BROKERS,
    Code.EXPECT_EPOCH: BROKERS,
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: BROKERS,
    Code.EXCHANGE_BROKER_HA_INFO: BROKERS,
    # Administration
    Code.UPDATE_AND_CREATE_TOPIC: ADMINS,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: ADMINS,
    Code.DELETE_TOPIC_IN_BROKER: ADMINS,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ADMINS,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ADMINS,
    Code.DELETE_SUBSCRIPTIONGROUP: ADMINS,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: ADMINS,
    Code.UPDATE_BROKER_CONFIG: ADMINS,
    Code.GET_BROKER_CONFIG: ADMINS,
    Code.GET_BROKER_RUNTIME_INFO: ADMINS,
    Code.GET_BROKER_HA_STATUS: ADMINS,
    Code.REPLICATION_STATUS: ADMINS,
    Code.PROMOTE_BROKER: ADMINS,
    Code.GET_BROKER_CONSUME_STATS: ADMINS,
    Code.VIEW_BROKER_STATS_DATA: ADMINS,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: ADMINS,
    Code.GET_PRODUCER_CONNECTION_LIST: ADMINS,
    Code.GET_ALL_PRODUCER_INFO: ADMINS,
    Code.GET_CONSUMER_RUNNING_INFO: ADMINS,
    Code.CONSUME_MESSAGE_DIRECTLY: ADMINS,
    Code.QUERY_CORRECTION_OFFSET: ADMINS,
    Code.RESUME_CHECK_HALF_MESSAGE: ADMINS,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: ADMINS,
    Code.CLEAN_UNUSED_TOPIC: ADMINS,
    Code.DELETE_EXPIRED_COMMITLOG: ADMINS,
    Code.SET_MESSAGE_REQUEST_MODE: ADMINS,
    **dict.fromkeys(
        (
            Code.UPDATE_AND_CREATE_ACL_CONFIG,
            Code.DELETE_ACL_CONFIG,
            Code.GET_BROKER_CLUSTER_ACL_INFO,
            Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            *range(Code.AUTH_CREATE_USER, Code.AUTH_LIST_ACL + 1),
        ),
        ADMINS,
    ),
}
