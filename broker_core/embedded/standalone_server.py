"""Name server and broker on one event loop, in one process.

Files are small, so that a store takes megabytes and not gigabytes. All other settings are a
broker's defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.broker.broker import Broker
from broker_core.broker.security.broker_security import server_tls
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.errors import InvalidArgument, InvalidConfig
from broker_core.fault_injection.control import FaultControl
from broker_core.nameserver.name_server import NameServer

HOST: Final = "127.0.0.1"

# File sizes are fixed when a store is created and must be the same later.
SMALL_FILES: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(60_000 * 20),
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
}
# One broker behind its own name server, without slaves; the VIP port is for clients of old brokers.
STANDALONE_PROPERTIES: Final[Mapping[str, str]] = {
    **SMALL_FILES,
    "autoCreateTopicEnable": "true",
    "vipPortEnable": "false",
    "haListenPort": "-1",
}


class StandaloneSettings(NamedTuple):
    """`config` has all settings of the broker but its name server. A port of 0 is any free one."""

    config: BrokerConfig
    name_server_port: int = 0
    topics: Mapping[str, int] = {}
    """Topics to make at the start, with their number of queues."""


class StandaloneServer:
    """`start` and `stop` it on one event loop. `control` of a test begins and ends faults."""

    def __init__(self, settings: StandaloneSettings, control: FaultControl | None = None) -> None:
        self._settings = settings
        self._control = control
        config = settings.config
        _check_protected(config)
        self._name_server = NameServer(
            tls=server_tls(config),
            access_file=config.access_file,
            strict_signatures=config.acl_strict_signature,
        )
        self._broker: Broker | None = None
        self.name_server = ""
        """`host:port` that clients are configured with, once started."""
        self.broker_address = ""
        """`host:port` of the broker, once started."""

    async def start(self) -> None:
        """Serve; when this returns, clients find the broker and the topics."""
        port = await self._name_server.start(HOST, self._settings.name_server_port)
        self.name_server = f"{HOST}:{port}"
        config = dataclasses.replace(self._settings.config, name_servers=(self.name_server,))
        self._broker = Broker(config) if self._control is None else self._control.broker(config)
        await self._broker.start()
        self.broker_address = self._broker.address
        self._make_topics(self._broker)
        await self._broker.registration.announced()
        if self._control is not None:
            self._control.begin(self._name_server)

    def _make_topics(self, broker: Broker) -> None:
        """With one write of the table."""
        topics = broker.context.topics
        wanted: dict[str, TopicConfig | None] = {}
        for name, queue_count in self._settings.topics.items():
            # A restart keeps changes that an administrator has made to a topic.
            if topics.find(name) is None:
                wanted[name] = TopicConfig(name, queue_count, queue_count)
        try:
            topics.change(wanted)
        except InvalidArgument as error:
            raise InvalidArgument(f"topics: {error}") from None

    async def stop(self) -> None:
        """Close both, the broker first. Safe to call twice."""
        if self._broker is not None:
            await self._broker.stop()
        await self._name_server.stop()


def _check_protected(config: BrokerConfig) -> None:
    """The name server has the broker's accounts and TLS, so the broker needs both to register."""
    if config.acl_enable and not config.inner_access_key:
        accepted = "an account with broker or admin: the name server has the same accounts"
        raise InvalidConfig("innerAccessKey", "", accepted)
    if config.tls_server_mode == "enforcing" and not config.tls_client_enable:
        accepted = "true: the name server speaks only TLS, too"
        raise InvalidConfig("tls.enable", "false", accepted)
