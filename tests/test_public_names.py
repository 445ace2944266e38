"""The door of the package: adding or removing a public name is a decision, not an accident."""

from __future__ import annotations

import broker_core


def test_public_names() -> None:
    assert sorted(broker_core.__all__) == [
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
    assert broker_core.__all__ == sorted(broker_core.__all__)
    for name in broker_core.__all__:
        assert getattr(broker_core, name) is not None


def test_the_codec_in_use_has_a_name() -> None:
    assert broker_core.codec_backend() in ("native", "python")
