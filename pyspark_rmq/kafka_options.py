"""The option of this connector for each option of Spark's Kafka connector. Only for error texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ACCOUNT: Final = "rmq.access.key and rmq.secret.key.file"
_TLS: Final = "rmq.tls.enable, rmq.tls.ca, rmq.tls.cert and rmq.tls.key"

# Lower case. A name that ends with a dot stands for all that begin with it.
INSTEAD: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "rmq.namesrv.addr, with the addresses of the name servers (usually"
    " port 9876)",
    "kafka.group.id": "rmq.group",
    "kafka.auto.offset.reset": "startingOffsets",
    "kafka.max.poll.records": "maxOffsetsPerTrigger",
    "kafka.request.timeout.ms": "rmq.connect.timeout.ms",
    "kafka.acks": "deliveryGuarantee (and the broker's flushDiskType and brokerRole)",
    "kafka.enable.idempotence": "deliveryGuarantee=exactly_once",
    "kafka.transactional.id": "deliveryGuarantee=exactly_once",
    "kafka.compression.type": "compression",
    "kafka.max.request.size": "maxMessageSize",
    "kafka.retries": "send.retries",
    "kafka.delivery.timeout.ms": "rmq.retry.timeout.ms",
    "kafka.max.in.flight.requests.per.connection": "send.inFlight",
    "kafka.partitioner.class": "queueSelector",
    "kafka.sasl.": _ACCOUNT,
    "kafka.security.protocol": f"{_ACCOUNT} for accounts, rmq.tls.enable for TLS",
    "kafka.ssl.": _TLS,
    "kafkaconsumer.polltimeoutms": "rmqConsumer.pollTimeoutMs",
}


# Options that only the source has, lower case -> what the sink says.
FOR_READERS: Final[Mapping[str, str]] = {
    "includeheaders": "leave it out. The sink writes the column headers with columnNames=kafka,"
    " else the column properties",
}


def option_instead_of(kafka_option: str) -> str | None:
    """What to say about an option of the Kafka connector; None for any other name."""
    name = kafka_option.lower()
    if not name.startswith(("kafka.", "kafkaconsumer.")):
        return None
    found = INSTEAD.get(name) or next(
        (text for start, text in INSTEAD.items() if start.endswith(".") and name.startswith(start)),
        None,
    )
    return f"give {found} instead" if found else "there is nothing like it here: leave it out"
