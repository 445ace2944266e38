"""RocketMQ-compatible broker core: message store, broker, name server, client and command line.

`_PUBLIC` lists the public names by subject. A name is imported on first use, so that a command that
needs only the client does not load the store. Type checkers read `__init__.pyi`, which
`tools/write_public_stub.py` generates from `_PUBLIC`.
"""

from importlib import import_module
from typing import Any

_MODULE = ":module"
"""Ends the home of a name that stands for the whole module."""

# Name -> module that defines it.
_PUBLIC = {
    # Clients: what they share
    "ClientConfig": "broker_core.client.connection.config",
    "ClientInstance": "broker_core.client.connection.instance",
    "LoopThread": "broker_core.client.blocking.loop_thread",
    "MessageQueue": "broker_core.codec.wire.bodies.message_queue",
    "SubscriptionData": "broker_core.codec.wire.bodies.subscription_data",
    "errors": "broker_core.errors:module",
    "parse_tag_expression": "broker_core.codec.wire.bodies.subscription_data",
    "read_secret_file": "broker_core.access.credentials",
    # Produce
    "BulkProducer": "broker_core.client.produce.bulk_producer",
    "OutgoingMessage": "broker_core.client.produce.outgoing_message",
    "Producer": "broker_core.client.produce.producer",
    "SendResult": "broker_core.client.produce.result",
    "SendStatus": "broker_core.client.produce.result",
    "SendWindow": "broker_core.client.produce.bulk_producer",
    "SyncProducer": "broker_core.client.blocking.producers",
    # Transactions
    "SyncTransactionProducer": "broker_core.client.blocking.producers",
    "TransactionProducer": "broker_core.client.transactions.producer",
    "TransactionResult": "broker_core.client.transactions.producer",
    "TransactionState": "broker_core.client.transactions.producer",
    # Pull
    "PullConsumer": "broker_core.client.pull.consumer",
    "PullResult": "broker_core.client.pull.result",
    "PullStream": "broker_core.client.pull.stream",
    "ReceivedMessage": "broker_core.client.pull.received_message",
    "RecordRun": "broker_core.client.pull.record_run",
    "SyncPullConsumer": "broker_core.client.blocking.consumers",
    # Push
    "ConsumeContext": "broker_core.client.push.types",
    "ConsumeStatus": "broker_core.client.push.types",
    "PushConsumer": "broker_core.client.push.consumer",
    "PushSettings": "broker_core.client.push.types",
    "SyncPushConsumer": "broker_core.client.blocking.consumers",
    # Administration
    "Admin": "broker_core.client.admin.admin",
    "SyncAdmin": "broker_core.client.blocking.admin",
    "admin_groups": "broker_core.client.admin.groups:module",
    "admin_topics": "broker_core.client.admin.topics:module",
    # Dead letters
    "DeadLetter": "broker_core.client.dead_letters.letter",
    "DeadLetters": "broker_core.client.dead_letters.dead_letters",
    "DeadTopic": "broker_core.client.dead_letters.dead_letters",
    "Replayed": "broker_core.client.dead_letters.dead_letters",
    "SyncDeadLetters": "broker_core.client.blocking.dead_letters",
    # Brokers that a program starts or uses
    "Cluster": "broker_core.notebook.cluster",
    "EmbeddedBroker": "broker_core.embedded.embedded_broker",
    "EmbeddedCluster": "broker_core.embedded.embedded_cluster",
    "Topic": "broker_core.notebook.topic",
    # The store as a library
    "BrokerRole": "broker_core.protocol_codes",
    "ColumnBatch": "broker_core.codec.records.column_batch",
    "FlushDiskType": "broker_core.protocol_codes",
    "GetStatus": "broker_core.protocol_codes",
    "Message": "broker_core.store.writes.message",
    "MessageStore": "broker_core.store.message_store",
    "PutStatus": "broker_core.protocol_codes",
    "ReadOnlyStore": "broker_core.store.reads.read_only_store",
    "StoreConfig": "broker_core.config",
    "batch_from_arrow": "broker_core.codec.records.arrow_columns",
    "codec_backend": "broker_core.codec.native",
    "column_names": "broker_core.codec.records.column_names:module",
    "to_arrow": "broker_core.codec.records.arrow_columns",
    # For pyspark_rmq; they change with it
    "BadMessage": "broker_core.client.dead_letters.writer",
    "BatchIdentity": "broker_core.codec.wire.bodies.sink_messages",
    "DeadLetterWriter": "broker_core.client.dead_letters.writer",
    "LocalRange": "broker_core.codec.wire.bodies.local_range",
    "MASTER_ID": "broker_core.protocol_codes",
    "SinkClient": "broker_core.client.sink.client",
    "StagedPart": "broker_core.codec.records.staged_block",
    "TopicEnds": "broker_core.client.pull.reader_requests",
    "add_cluster_options": "broker_core.cli.cluster_options",
    "ask_local_range": "broker_core.client.pull.reader_requests",
    "ask_queue_remains": "broker_core.client.pull.reader_requests",
    "ask_topic_ends": "broker_core.client.pull.reader_requests",
    "compress_body": "broker_core.codec.records.compression",
    "decompress_body": "broker_core.codec.records.compression",
    "digest_rows": "broker_core.client.sink.batch_digest",
    "given_cluster": "broker_core.cli.cluster_options",
    "java_hash": "broker_core.codec.native",
    "keep_freed_memory": "broker_core.runtime.malloc_tuning",
    "named_broker": "broker_core.embedded.named_broker",
    "paint": "broker_core.cli.colours",
    "write_log_lines": "broker_core.client.blocking.log_lines",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("broker_core.version").installed_version()
    home = _PUBLIC.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home.endswith(_MODULE):
        value: Any = import_module(home.removesuffix(_MODULE))
    else:
        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
