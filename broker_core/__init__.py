"""RocketMQ-compatible broker core: message store, broker, name server, client and command line.

A public name is imported when it is first used: a command that needs only the client, or only the
name server, does not wait for the store.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_core import errors
    from broker_core.access.credentials import read_secret_file
    from broker_core.client import admin_groups, admin_topics
    from broker_core.client.admin import Admin
    from broker_core.client.bulk_producer import BulkProducer, SendWindow
    from broker_core.client.client_config import ClientConfig
    from broker_core.client.client_instance import ClientInstance
    from broker_core.client.local_range import ask_local_range
    from broker_core.client.loop_thread import LoopThread
    from broker_core.client.outgoing_message import OutgoingMessage
    from broker_core.client.producer import Producer
    from broker_core.client.pull_consumer import PullConsumer
    from broker_core.client.pull_stream import PullStream
    from broker_core.client.received_message import ReceivedMessage
    from broker_core.client.record_run import RecordRun
    from broker_core.client.send_result import SendStatus
    from broker_core.client.sink_client import SinkClient
    from broker_core.client.stage_writer import StagedAt
    from broker_core.client.sync_consumers import SyncPullConsumer
    from broker_core.client.sync_face import SyncAdmin, SyncProducer
    from broker_core.client.topic_ends import TopicEnds, ask_queue_remains, ask_topic_ends
    from broker_core.codec import column_names
    from broker_core.codec.arrow_columns import batch_from_arrow, to_arrow
    from broker_core.codec.column_batch import ColumnBatch
    from broker_core.codec.compression import compress_body, decompress_body
    from broker_core.codec.java_hash import java_hash
    from broker_core.codec.local_range import LocalRange
    from broker_core.codec.message_queue import MessageQueue
    from broker_core.codec.record_columns import codec_backend
    from broker_core.codec.row_digest import digest_rows
    from broker_core.codec.sink_messages import BatchIdentity
    from broker_core.codec.subscription_data import SubscriptionData, parse_tag_expression
    from broker_core.config import StoreConfig
    from broker_core.embedded.embedded_broker import EmbeddedBroker
    from broker_core.embedded.embedded_cluster import EmbeddedCluster
    from broker_core.protocol_codes import BrokerRole, FlushDiskType, GetStatus, PutStatus
    from broker_core.runtime.kept_memory import keep_freed_memory
    from broker_core.store.message import Message
    from broker_core.store.message_store import MessageStore
    from broker_core.store.read_only_store import ReadOnlyStore

__all__ = [
    "Admin",
    "BatchIdentity",
    "BrokerRole",
    "BulkProducer",
    "ClientConfig",
    "ClientInstance",
    "ColumnBatch",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "FlushDiskType",
    "GetStatus",
    "LocalRange",
    "LoopThread",
    "Message",
    "MessageQueue",
    "MessageStore",
    "OutgoingMessage",
    "Producer",
    "PullConsumer",
    "PullStream",
    "PutStatus",
    "ReadOnlyStore",
    "ReceivedMessage",
    "RecordRun",
    "SendStatus",
    "SendWindow",
    "SinkClient",
    "StagedAt",
    "StoreConfig",
    "SubscriptionData",
    "SyncAdmin",
    "SyncProducer",
    "SyncPullConsumer",
    "TopicEnds",
    "admin_groups",
    "admin_topics",
    "ask_local_range",
    "ask_queue_remains",
    "ask_topic_ends",
    "batch_from_arrow",
    "codec_backend",
    "column_names",
    "compress_body",
    "decompress_body",
    "digest_rows",
    "errors",
    "java_hash",
    "keep_freed_memory",
    "parse_tag_expression",
    "read_secret_file",
    "to_arrow",
]

_HOMES = {
    "Admin": "broker_core.client.admin",
    "BatchIdentity": "broker_core.codec.sink_messages",
    "BrokerRole": "broker_core.protocol_codes",
    "BulkProducer": "broker_core.client.bulk_producer",
    "ClientConfig": "broker_core.client.client_config",
    "ClientInstance": "broker_core.client.client_instance",
    "ColumnBatch": "broker_core.codec.column_batch",
    "EmbeddedBroker": "broker_core.embedded.embedded_broker",
    "EmbeddedCluster": "broker_core.embedded.embedded_cluster",
    "FlushDiskType": "broker_core.protocol_codes",
    "GetStatus": "broker_core.protocol_codes",
    "LocalRange": "broker_core.codec.local_range",
    "LoopThread": "broker_core.client.loop_thread",
    "Message": "broker_core.store.message",
    "MessageQueue": "broker_core.codec.message_queue",
    "MessageStore": "broker_core.store.message_store",
    "OutgoingMessage": "broker_core.client.outgoing_message",
    "Producer": "broker_core.client.producer",
    "PullConsumer": "broker_core.client.pull_consumer",
    "PullStream": "broker_core.client.pull_stream",
    "PutStatus": "broker_core.protocol_codes",
    "ReadOnlyStore": "broker_core.store.read_only_store",
    "ReceivedMessage": "broker_core.client.received_message",
    "RecordRun": "broker_core.client.record_run",
    "SendStatus": "broker_core.client.send_result",
    "SendWindow": "broker_core.client.bulk_producer",
    "SinkClient": "broker_core.client.sink_client",
    "StagedAt": "broker_core.client.stage_writer",
    "StoreConfig": "broker_core.config",
    "SubscriptionData": "broker_core.codec.subscription_data",
    "SyncAdmin": "broker_core.client.sync_face",
    "SyncProducer": "broker_core.client.sync_face",
    "SyncPullConsumer": "broker_core.client.sync_consumers",
    "TopicEnds": "broker_core.client.topic_ends",
    "ask_local_range": "broker_core.client.local_range",
    "ask_queue_remains": "broker_core.client.topic_ends",
    "ask_topic_ends": "broker_core.client.topic_ends",
    "batch_from_arrow": "broker_core.codec.arrow_columns",
    "codec_backend": "broker_core.codec.record_columns",
    "compress_body": "broker_core.codec.compression",
    "decompress_body": "broker_core.codec.compression",
    "digest_rows": "broker_core.codec.row_digest",
    "java_hash": "broker_core.codec.java_hash",
    "keep_freed_memory": "broker_core.runtime.kept_memory",
    "parse_tag_expression": "broker_core.codec.subscription_data",
    "read_secret_file": "broker_core.access.credentials",
    "to_arrow": "broker_core.codec.arrow_columns",
}
# Modules that are public as a whole.
_MODULES = {
    "admin_groups": "broker_core.client.admin_groups",
    "admin_topics": "broker_core.client.admin_topics",
    "column_names": "broker_core.codec.column_names",
    "errors": "broker_core.errors",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
