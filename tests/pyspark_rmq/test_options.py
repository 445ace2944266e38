"""Options: strict, case-insensitive, with hints; errors show no secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_core import errors
from pyspark_rmq.options import KNOWN, SourceOptions
from pyspark_rmq.source.offsets.start_position import EARLIEST, LATEST, Anchor, Position

BASE = {"rmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "orders"}


def parse(**given: Any) -> SourceOptions:
    return SourceOptions.parse({**BASE, **{k.replace("__", "."): v for k, v in given.items()}})


def test_defaults() -> None:
    options = SourceOptions.parse(BASE)
    assert options.topics == ("orders",)
    assert options.connection.name_servers == "127.0.0.1:9876"
    assert options.fails_on_data_loss
    assert not options.commits_offsets
    assert options.rows_per_trigger_max is None
    assert options.partitions_min == 1
    assert options.reader_group == "spark-rmq-source"
    assert options.for_stream().starting is not None
    assert options.for_stream().starting.default == LATEST  # type: ignore[union-attr]
    assert options.for_batch().starting.default == EARLIEST  # type: ignore[union-attr]


def test_option_names_are_case_insensitive() -> None:
    given = {"RMQ.NAMESRV.ADDR": "h:1", "Subscribe": "a, b", "MAXOFFSETSPERTRIGGER": "7"}
    options = SourceOptions.parse(given)
    assert options.topics == ("a", "b")
    assert options.rows_per_trigger_max == 7


@pytest.mark.parametrize("alias", ["topic", "path", "subscribe"])
def test_topics_go_by_several_names(alias: str) -> None:
    assert SourceOptions.parse({"nameServer": "h:1", alias: "t"}).topics == ("t",)


def test_two_names_of_one_option_must_agree() -> None:
    assert parse(topic="orders").topics == ("orders",)
    with pytest.raises(errors.InvalidArgument, match="subscribe and topic"):
        parse(topic="other")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("startingOffset", "startingOffsets"),
        ("failondataloos", "failOnDataLoss"),
        ("rmq.namesrv.address", "rmq.namesrv.addr"),
        ("subscribePatern", "subscribePattern"),
    ],
)
def test_an_unknown_option_names_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"did you mean {right}"):
        SourceOptions.parse({**BASE, wrong: "1"})


def test_an_option_like_no_other_gets_no_hint() -> None:
    with pytest.raises(errors.InvalidArgument) as failure:
        SourceOptions.parse({**BASE, "zzzzqqq": "1"})
    assert "did you mean" not in str(failure.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "many"),
        ("maxBytesPerTrigger", "-1"),
        ("minOffsetsPerTrigger", "1.5"),
        ("maxTriggerDelay", "soon"),
        ("minPartitions", "0"),
        ("maxRecordsPerPartition", "99999999999999999999"),
        ("latestOffsetWaitMs", "60000"),
        ("includeProperties", "yes"),
        ("includeSystemProperties", "1"),
        ("columnNames", "pulsar"),
        ("commitOffsetsToBroker", "perhaps"),
        ("failOnDataLoss", ""),
        ("waitForTopicMs", "-5"),
        ("readFromSlave", "never"),
        ("rmqConsumer.pollTimeoutMs", "0"),
        ("fetchOffset.numRetries", "-1"),
        ("fetchOffset.retryIntervalMs", "x"),
        ("partition.metadata.cache.ttl.ms", "-2"),
        ("rmq.connect.timeout.ms", "0"),
        ("startingOffsets", "yesterday"),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestamp", "{}"),
        ("startingOffsetsByTimestampStrategy", "guess"),
        ("endingOffsets", "earliest"),
        ("endingTimestamp", "-1"),
        ("endingOffsetsByTimestamp", '{"t":"x"}'),
        ("rmq.broker.address.rewrite", "nonsense"),
    ],
)
def test_a_value_that_cannot_be_used_names_the_option(name: str, value: str) -> None:
    with pytest.raises(errors.InvalidConfig) as failure:
        SourceOptions.parse({**BASE, name: value})
    assert str(failure.value).startswith(f"{name}=")


def test_every_option_has_a_line_in_the_docs() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "source.md"
    text = page.read_text(encoding="utf-8")
    for name, known in KNOWN.items():
        for spelling in (name, *known.aliases):
            assert f"`{spelling}`" in text, spelling


@pytest.mark.parametrize("name", [name for name, known in KNOWN.items() if known.is_secret])
def test_secrets_are_never_shown(name: str) -> None:
    for value in ("s3cret-canary", "  "):
        with pytest.raises(errors.RmqError) as failure:
            SourceOptions.parse({**BASE, name: value})
        assert "canary" not in str(failure.value)


def test_a_mistyped_secret_is_not_shown_either() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"rmq\.secret\.key") as failure:
        SourceOptions.parse({**BASE, "rmq.secretkey": "s3cret-canary"})
    assert "canary" not in str(failure.value)


def test_access_and_encryption_reach_the_client() -> None:
    options = SourceOptions.parse(
        {
            **BASE,
            "rmq.access.key": "key",
            "rmq.secret.key": "s3cret-canary",
            "rmq.security.token": "t0ken-canary",
            "rmq.tls.enable": "true",
            "rmq.tls.ca": "ca.pem",
            "rmq.tls.cert": "cert.pem",
            "rmq.tls.key": "key.pem",
            "rmq.tls.verify": "false",
        }
    )
    config = options.connection.client_config()
    assert (config.access_key, config.secret_key) == ("key", "s3cret-canary")
    assert config.security_token == "t0ken-canary"
    assert (config.tls_enable, config.tls_verify) == (True, False)
    assert (config.tls_ca, config.tls_cert, config.tls_key) == ("ca.pem", "cert.pem", "key.pem")
    for shown in (repr(options), str(options), repr(config), repr(options.connection)):
        assert "canary" not in shown


def test_a_secret_from_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret-canary\nnot this\n")
    file.chmod(0o600)
    given = {**BASE, "rmq.access.key": "key", "rmq.secret.key.file": str(file)}
    options = SourceOptions.parse(given)
    assert options.connection.client_config().secret_key == "s3cret-canary"
    with pytest.raises(errors.InvalidArgument, match="exclude each other") as failure:
        SourceOptions.parse({**given, "rmq.secret.key": "other-canary"})
    assert "canary" not in str(failure.value)
    file.chmod(0o644)
    with pytest.raises(errors.InvalidConfig, match=r"rmq\.secret\.key\.file.*chmod 600"):
        SourceOptions.parse(given)
    file.unlink()
    with pytest.raises(errors.InvalidConfig, match=r"rmq\.secret\.key\.file"):
        SourceOptions.parse(given)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"rmq.access.key": "key"}, r"rmq\.secret\.key"),
        ({"rmq.tls.cert": "x", "rmq.tls.enable": "true"}, r"rmq\.tls\.key"),
        ({"rmq.tls.ca": "x"}, r"rmq\.tls\.ca"),
    ],
)
def test_halves_are_refused(given: dict[str, str], name: str) -> None:
    with pytest.raises(errors.InvalidConfig, match=name):
        SourceOptions.parse({**BASE, **given})


def test_exactly_one_subscription() -> None:
    servers = {"rmq.namesrv.addr": "h:1"}
    with pytest.raises(errors.InvalidArgument, match="there is none"):
        SourceOptions.parse(servers)
    with pytest.raises(errors.InvalidArgument, match="subscribe and subscribePattern"):
        SourceOptions.parse({**servers, "subscribe": "a", "subscribePattern": "b"})
    assert SourceOptions.parse({**servers, "subscribePattern": "a.*"}).topic_pattern == "a.*"
    with pytest.raises(errors.InvalidConfig, match="subscribePattern"):
        SourceOptions.parse({**servers, "subscribePattern": "("})


def test_assign() -> None:
    servers = {"rmq.namesrv.addr": "h:1"}
    options = SourceOptions.parse({**servers, "assign": '{"a":{"broker-a":[1,0]},"b":[3]}'})
    assert options.assigned == {"a": {"broker-a": (0, 1)}, "b": {"": (3,)}}
    for wrong in ("[]", "{}", '{"a":[]}', '{"a":{"b":["0"]}}', '{"a":[-1]}', '{"a":1}', "{"):
        with pytest.raises(errors.InvalidConfig, match="assign"):
            SourceOptions.parse({**servers, "assign": wrong})


def test_name_servers_are_required_and_checked() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"rmq\.namesrv\.addr is missing"):
        SourceOptions.parse({"subscribe": "a"})
    with pytest.raises(errors.InvalidConfig, match=r"^nameServer=.nowhere. cannot be used"):
        SourceOptions.parse({"subscribe": "a", "nameServer": "nowhere"})


def test_group_progress_is_sent_by_default() -> None:
    assert parse(rmq__group="g").commits_offsets
    assert parse(rmq__group="g").reader_group == "g"
    assert not parse(rmq__group="g", commitOffsetsToBroker="false").commits_offsets
    with pytest.raises(errors.InvalidArgument, match="needs a group"):
        parse(commitOffsetsToBroker="true")
    with pytest.raises(errors.InvalidArgument, match="needs a group"):
        parse(startingOffsets="committed")
    with pytest.raises(errors.InvalidArgument, match="needs a group"):
        parse(startingOffsets='{"orders":"committed"}')


def test_a_stream_has_no_end() -> None:
    assert parse(endingOffsets="latest").for_batch()
    with pytest.raises(errors.InvalidArgument, match="endingOffsets"):
        parse(endingOffsets="latest").for_stream()


def test_times_beat_offsets() -> None:
    both = {"startingOffsets": "earliest", "startingTimestamp": "1000"}
    options = SourceOptions.parse({**BASE, **both})
    assert options.starting is not None
    assert options.starting.default == Position(Anchor.TIME, 1000)
    assert options.starting.strict_times
    lax = parse(startingTimestamp="1000", startingOffsetsByTimestampStrategy="latest")
    assert lax.starting is not None
    assert not lax.starting.strict_times


def test_filters_exclude_each_other() -> None:
    with pytest.raises(errors.InvalidArgument, match="exclude"):
        parse(tags="A", filterSql="a > 1")
    with pytest.raises(errors.InvalidArgument):
        parse(tags="||")


def test_limits_must_leave_room() -> None:
    with pytest.raises(errors.InvalidArgument, match="minOffsetsPerTrigger=5"):
        parse(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")
