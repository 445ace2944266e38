"""What Spark is given of an error: the message, and one frame."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from broker_core import ClientConfig, errors
from broker_core.client.connection.security import tls_context
from broker_core.protocol_codes import ResponseCode
from pyspark_rmq.data_source import RmqDataSource
from pyspark_rmq.short_errors import short_errors, short_row_errors


def test_no_frames_lead_to_the_message() -> None:
    source = RmqDataSource({"subscribe": "t", "kafka.bootstrap.servers": "h:1"})
    with pytest.raises(errors.InvalidArgument, match="one of Kafka's") as found:
        source.schema()
    shown = "".join(traceback.format_exception(found.value)).splitlines()
    assert [line for line in shown if "options.py" in line] == []
    assert "During handling" not in "".join(shown)


def test_silent_name_servers_are_explained() -> None:
    @short_errors
    def plan() -> None:
        raise errors.NameServersSilent("none of the name servers h:1 answered: no route")

    with pytest.raises(errors.ConnectionLost) as found:
        plan()
    assert str(found.value) == (
        "none of the name servers h:1 answered: no route. Set the option rmq.namesrv.addr to name"
        " servers that this machine can reach, or start the cluster\n"
        "See docs/errors.md#name-servers-not-reached"
    )


def test_name_servers_without_a_tls_connection_are_explained() -> None:
    @short_errors
    def plan() -> None:
        silent = errors.NameServersSilent("none of the name servers h:1 answered: no TLS")
        silent.tls_failed = True
        raise silent

    with pytest.raises(errors.NameServersSilent) as found:
        plan()
    assert str(found.value) == (
        "none of the name servers h:1 answered: no TLS. Compare the options rmq.tls.enable,"
        " rmq.tls.ca and rmq.tls.cert with the TLS settings of the server\n"
        "See docs/errors.md#tls-mismatch"
    )


def test_a_file_for_tls_is_called_as_the_option_is() -> None:
    @short_errors
    def connect() -> None:
        tls_context(ClientConfig(("h:1",), tls_enable=True, tls_ca="/gone.pem"))

    with pytest.raises(errors.InvalidConfig) as found:
        connect()
    assert str(found.value) == (
        "rmq.tls.ca='/gone.pem' cannot be used: a PEM file with certificates of authorities: No"
        " such file or directory"
    )


def test_a_broker_that_is_not_reached_is_explained() -> None:
    @short_errors
    def plan() -> None:
        raise errors.ConnectionLost("10.0.0.9:10911 could not be reached: no answer in time")

    with pytest.raises(errors.ConnectionLost) as found:
        plan()
    assert str(found.value) == (
        "10.0.0.9:10911 could not be reached: no answer in time. Start the broker or, if this"
        " machine reaches it at another address, set its brokerIP1, or the option"
        " rmq.broker.address.rewrite\n"
        "See docs/errors.md#broker-not-reached"
    )


def test_an_error_is_explained_once() -> None:
    @short_errors
    @short_errors
    def plan() -> None:
        raise errors.ConnectionLost("10.0.0.9:10911 could not be reached: no answer in time")

    with pytest.raises(errors.ConnectionLost) as found:
        plan()
    assert str(found.value).count("Start the broker") == 1


def test_a_refused_account_is_explained() -> None:
    @short_errors
    def plan(text: str) -> None:
        raise errors.NoPermission(ResponseCode.NO_PERMISSION, text)

    with pytest.raises(errors.NoPermission) as found:
        plan("topic T at broker-a: access denied: account a has no SUB permission on topic 'T'")
    assert str(found.value) == (
        "topic T at broker-a: access denied: account a has no SUB permission on topic 'T'. Compare"
        " the options rmq.access.key and rmq.secret.key.file with the accounts of the cluster\n"
        "See docs/errors.md#access-denied"
    )
    assert found.value.code == ResponseCode.NO_PERMISSION
    # Not about an account.
    with pytest.raises(errors.NoPermission, match=r"^topic T cannot be read$"):
        plan("topic T cannot be read")


def test_other_errors_and_results_stay() -> None:
    @short_errors
    def halved(number: int) -> float:
        return 1 / number

    assert halved(2) == 0.5
    with pytest.raises(ZeroDivisionError) as found:
        halved(0)
    assert len(traceback.extract_tb(found.value.__traceback__)) == 3


def test_rows_are_passed_on_and_errors_cut() -> None:
    @short_row_errors
    def read(count: int) -> Iterator[int]:
        yield from range(count)
        if count > 2:
            raise errors.InvalidArgument("three are too many")
        if count < 1:
            raise ValueError("none")

    assert list(read(2)) == [0, 1]
    rows = read(3)
    assert [next(rows) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(errors.InvalidArgument, match="too many") as found:
        next(rows)
    assert len(traceback.extract_tb(found.value.__traceback__)) == 2
    assert found.value.__suppress_context__
    with pytest.raises(ValueError, match="none"):
        list(read(0))


def test_a_closed_iterator_closes_the_rows() -> None:
    closed = []

    @short_row_errors
    def read() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    rows = read()
    assert next(rows) == 1
    rows.close()  # type: ignore[attr-defined]  # a generator
    assert closed == [True]


@pytest.mark.parametrize(
    "options",
    [
        {"rmq.namesrv.addr": "h:1", "subscribe": "t", "where": "offset > 3"},
        {"rmq.namesrv.addr": "rmq://h:1", "subscribe": "t"},
    ],
)
def test_a_refused_stream_is_an_error_of_the_reader(options: dict[str, str]) -> None:
    """Spark's runner fails on a name of its own if `streamReader` raises."""
    reader = RmqDataSource(options).streamReader(StructType())
    for use in (
        reader.initialOffset,
        lambda: reader.latestOffset({}, None),
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(errors.RmqError, match=r"docs/errors\.md#") as found:
            use()
        shown = "".join(traceback.format_exception(found.value))
        assert "options.py" not in shown
    assert reader.reportLatestOffset() is None
    reader.stop()
