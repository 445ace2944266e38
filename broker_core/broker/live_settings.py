"""The settings of a running broker: which may change while it runs, and who is told.

`LIVE_PROPERTIES` is the allow-list. Everything else of ours decides who the broker is, where its
files are, who may connect, or how far tables may grow: whoever reaches the port must not be able
to change that. Changes last until the broker stops; what is to stay belongs into `broker.conf`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.broker_properties import BROKER_PROPERTIES, FIXED_PROPERTIES, STORE_PATHS
from broker_core.codec.topic_config import DataVersion
from broker_core.config import PROPERTY_NAMES
from broker_core.errors import InvalidArgument, InvalidConfig, NoPermission
from broker_core.protocol_codes import ResponseCode
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)

LIVE_PROPERTIES: Final = frozenset(
    {
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "brokerPermission",
        "longPollingEnable",
        "shortPollingTimeMills",
        "rejectTransactionMessage",
        "transactionTimeOut",
        "transactionCheckInterval",
        "transactionCheckMax",
    }
)

_FIXED: Final = BROKER_PROPERTIES.keys() | PROPERTY_NAMES.keys() | FIXED_PROPERTIES.keys()

Listener = Callable[[BrokerConfig], object]


class LiveSettings:
    """The configuration as it is now. Owned by the event loop."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self._listeners: list[Listener] = []
        self.version = DataVersion(timestamp_ms=clock.wall_ms())
        """Which state of the settings this is; changes with every change."""

    def on_change(self, listener: Listener) -> None:
        """Call `listener(new config)` right after every change."""
        self._listeners.append(listener)

    def change(self, properties: Mapping[str, str]) -> None:
        """Change all of them or, when one is refused, none.

        A key that this broker does not know is taken and logged, as RocketMQ does: its tools set
        keys of releases that the broker is not.
        """
        current = self.config.as_properties()
        wanted = {}
        for key, value in properties.items():
            if key in LIVE_PROPERTIES:
                wanted[key] = value.strip()
            elif key in _FIXED or key in STORE_PATHS:
                self._refuse_unless_same(key, value.strip(), current)
            else:
                _log.warning("setting %.80r is not one of this broker: nothing changed", key)
        if all(current[key] == value for key, value in wanted.items()):
            return
        try:
            config, _ = BrokerConfig.from_properties({**current, **wanted}, "this request")
        except InvalidConfig as error:
            raise InvalidArgument(str(error)) from None
        self.config = config
        self.version = DataVersion(self.version.counter + 1, 0, self._clock.wall_ms())
        for key, value in sorted(wanted.items()):
            _log.warning("setting %s was %s and is %.80s now", key, current[key], value)
        for listener in self._listeners:
            listener(config)

    def _refuse_unless_same(self, key: str, value: str, current: Mapping[str, str]) -> None:
        known = FIXED_PROPERTIES[key][0] if key in FIXED_PROPERTIES else current.get(key)
        # Tools that send a whole configuration back change one key of it.
        if value == known:
            return
        raise NoPermission(
            ResponseCode.NO_PERMISSION,
            f"{key} cannot be changed while the broker runs: set it in broker.conf and start the "
            f"broker again. These can: {', '.join(sorted(LIVE_PROPERTIES))}",
        )
