"""RocketMQ-compatible broker core: message store, broker, name server, client and command line.

A public name is imported when it is first used: a command that needs only the client, or only the
name server, does not wait for the store.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_core.codec.record_columns import codec_backend
    from broker_core.config import StoreConfig
    from broker_core.embedded.embedded_broker import EmbeddedBroker
    from broker_core.protocol_codes import BrokerRole, FlushDiskType, GetStatus, PutStatus
    from broker_core.store.message import Message
    from broker_core.store.message_store import MessageStore

__all__ = [
    "BrokerRole",
    "EmbeddedBroker",
    "FlushDiskType",
    "GetStatus",
    "Message",
    "MessageStore",
    "PutStatus",
    "StoreConfig",
    "codec_backend",
]

_HOMES = {
    "BrokerRole": "broker_core.protocol_codes",
    "EmbeddedBroker": "broker_core.embedded.embedded_broker",
    "FlushDiskType": "broker_core.protocol_codes",
    "GetStatus": "broker_core.protocol_codes",
    "Message": "broker_core.store.message",
    "MessageStore": "broker_core.store.message_store",
    "PutStatus": "broker_core.protocol_codes",
    "StoreConfig": "broker_core.config",
    "codec_backend": "broker_core.codec.record_columns",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
