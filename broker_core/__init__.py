"""RocketMQ-compatible broker core: the message store and, later, the broker, client and CLI."""

from broker_core.codec.record_columns import codec_backend
from broker_core.config import StoreConfig
from broker_core.protocol_codes import BrokerRole, FlushDiskType, GetStatus, PutStatus
from broker_core.store.message import Message
from broker_core.store.message_store import MessageStore

__all__ = [
    "BrokerRole",
    "FlushDiskType",
    "GetStatus",
    "Message",
    "MessageStore",
    "PutStatus",
    "StoreConfig",
    "codec_backend",
]
