"""Identity of a broker: cluster, name, id and address, validated before any table sees them.

Clients connect to the addresses of a route, so an address must be one that a socket can use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.codec.json.fields import I64_MAX, whole_number
from broker_core.codec.wire.topic_name import broker_name_problem
from broker_core.errors import InvalidArgument

_ADDRESS_SIZE_MAX: Final = 255

_HOST = re.compile(r"[a-zA-Z0-9_.-]{1,253}|\[?[0-9a-fA-F:.]{2,45}(?:%[a-zA-Z0-9_.-]{1,32})?\]?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_WILDCARDS = frozenset({"0.0.0.0", "::", "[::]", "0:0:0:0:0:0:0:0", "[0:0:0:0:0:0:0:0]"})


class BrokerIdentity(NamedTuple):
    """One member of a broker name; id 0 is the master."""

    cluster: str
    name: str
    broker_id: int
    address: str


def read_identity(ext: Mapping[str, str], *, id_default: str | None = None) -> BrokerIdentity:
    """The identity in a request's fields; raises for missing or invalid fields."""
    for field in ("clusterName", "brokerName"):
        problem = broker_name_problem(required(ext, field))
        if problem is not None:
            raise InvalidArgument(f"{field} {problem}")
    problem = broker_address_problem(required(ext, "brokerAddr"))
    if problem is not None:
        raise InvalidArgument(f"brokerAddr {problem}")
    broker_id = ext.get("brokerId", id_default)
    if broker_id is None:
        broker_id = required(ext, "brokerId")
    return BrokerIdentity(
        ext["clusterName"],
        ext["brokerName"],
        whole_number(broker_id, "brokerId", 0, I64_MAX),
        ext["brokerAddr"],
    )


def required(ext: Mapping[str, str], field: str) -> str:
    """A field that a request must carry."""
    value = ext.get(field)
    if not value:
        raise InvalidArgument(f"field {field} is missing")
    return value


def broker_address_problem(address: str) -> str | None:
    """Why `address` cannot be the `host:port` of a broker, or None if it can."""
    host, _, port = address.rpartition(":")
    if len(address) > _ADDRESS_SIZE_MAX or _HOST.fullmatch(host) is None:
        return f"{address[:60]!r} is not host:port"
    if _PORT.fullmatch(port) is None or int(port) > 65_535:
        return f"{address[:60]!r} has no port from 1 to 65535"
    if host in _WILDCARDS:
        return f"{address[:60]!r} is a wildcard that no client can connect to"
    return None
