"""Names and addresses that a broker may register."""

from __future__ import annotations

import pytest

from broker_core.codec.wire.topic_name import broker_name_problem
from broker_core.errors import InvalidArgument
from broker_core.nameserver.broker_identity import (
    BrokerIdentity,
    broker_address_problem,
    read_identity,
)

FIELDS = {
    "clusterName": "C",
    "brokerName": "broker-a",
    "brokerId": "1",
    "brokerAddr": "10.0.0.1:10911",
}


def test_the_fields_of_a_request() -> None:
    assert read_identity(FIELDS) == BrokerIdentity("C", "broker-a", 1, "10.0.0.1:10911")


def test_the_id_may_have_a_default() -> None:
    fields = {name: value for name, value in FIELDS.items() if name != "brokerId"}
    assert read_identity(fields, id_default="0").broker_id == 0
    with pytest.raises(InvalidArgument, match="field brokerId is missing"):
        read_identity(fields)


@pytest.mark.parametrize("field", ["clusterName", "brokerName", "brokerAddr"])
@pytest.mark.parametrize("value", ["", "a b", "x" * 300])
def test_fields_that_are_refused(field: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=field):
        read_identity({**FIELDS, field: value})


@pytest.mark.parametrize("identifier", ["-1", "x", str(1 << 63)])
def test_ids_that_are_refused(identifier: str) -> None:
    with pytest.raises(InvalidArgument, match="brokerId"):
        read_identity({**FIELDS, "brokerId": identifier})


@pytest.mark.parametrize("address", ["h:1", "[::1]:65535", "my-host.example:10911"])
def test_addresses(address: str) -> None:
    assert broker_address_problem(address) is None


@pytest.mark.parametrize(
    "address", ["h", "h:0", "h:65536", "h:01", ":1", "a b:1", "0.0.0.0:1", "[::]:1", "h:1\n"]
)
def test_addresses_that_no_client_can_use(address: str) -> None:
    assert broker_address_problem(address) is not None


def test_a_name_of_dots_is_none() -> None:
    assert broker_name_problem("host.example") is None
    assert broker_name_problem("..") is not None
