"""What is said about options of Kafka's connector."""

from __future__ import annotations

import pytest

from broker_core.errors import InvalidArgument
from pyspark_rmq.kafka_options import FOR_READERS, INSTEAD, option_instead_of
from pyspark_rmq.options import KNOWN
from pyspark_rmq.sink.sink_options import SINK_OPTIONS, SinkOptions


def test_only_options_that_exist_are_named_instead_of_those_of_kafka() -> None:
    known = {*KNOWN, *SINK_OPTIONS, "flushDiskType", "brokerRole"}
    for text in [*INSTEAD.values(), *FOR_READERS.values()]:
        words = {word.strip(",().").partition("=")[0] for word in text.split()}
        named = {word for word in words if "." in word or word[1:] != word[1:].lower()}
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


@pytest.mark.parametrize("name", ["includeHeaders", "INCLUDEHEADERS"])
def test_include_headers_is_for_readers(name: str) -> None:
    """Kafka's writer ignores it, so a job that is moved may have it."""
    with pytest.raises(InvalidArgument) as caught:
        SinkOptions.parse({"rmq.namesrv.addr": "127.0.0.1:9876", name: "true"})
    assert str(caught.value).startswith(
        f"option {name!r} is for readers: leave it out. The sink writes the column headers with"
        " columnNames=kafka, else the column properties. docs/sink.md has all options"
    )
