"""What is said about options of Kafka's connector."""

from __future__ import annotations

import pytest

from pyspark_rmq.kafka_options import INSTEAD, option_instead_of
from pyspark_rmq.options import KNOWN
from pyspark_rmq.sink.sink_options import SINK_OPTIONS


def test_only_options_that_exist_are_named_instead_of_those_of_kafka() -> None:
    known = {*KNOWN, *SINK_OPTIONS, "flushDiskType", "brokerRole"}
    for text in INSTEAD.values():
        words = {word.strip(",()").partition("=")[0] for word in text.split()}
        named = {word for word in words if "." in word or word != word.lower()}
        assert named <= {*known, "TLS"}, text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka.group.id", "give rmq.group instead"),
        ("KAFKA.GROUP.ID", "give rmq.group instead"),
        ("kafka.sasl.jaas.config", "give rmq.access.key and rmq.secret.key.file instead"),
        ("kafkaConsumer.pollTimeoutMs", "give rmqConsumer.pollTimeoutMs instead"),
        ("kafka.linger.ms", "there is nothing like it here: leave it out"),
        ("kafkas", None),
        ("subscribe", None),
    ],
)
def test_names(name: str, text: str | None) -> None:
    assert option_instead_of(name) == text
