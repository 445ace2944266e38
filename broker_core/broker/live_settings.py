"""The settings of a running broker: which may change while it runs, and who is told.

`LIVE_PROPERTIES` is the allow-list. Everything else of ours decides who the broker is, where its
files are, who may connect, or how far tables may grow: whoever reaches the port must not be able
to change that.

Changes are kept in a file of the store, each with the value that the configuration had:

    {"settings": {"brokerPermission": {"value": "4", "configured": "6"}}}

The last change wins, as if `broker.conf` itself had been rewritten: at a start a kept value counts
as long as the configuration still says what it said then. One that does not count any more is
forgotten, so that it cannot come back with a later configuration. An empty value, or the configured
one, ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.broker_properties import BROKER_PROPERTIES, FIXED_PROPERTIES, STORE_PATHS
from broker_core.codec.topic_config import DataVersion
from broker_core.config import PROPERTY_NAMES
from broker_core.errors import InvalidArgument, InvalidConfig, NoPermission, RmqError
from broker_core.protocol_codes import ResponseCode
from broker_core.runtime.clock import Clock
from broker_core.storage.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors

_log = logging.getLogger(__name__)

LIVE_SETTINGS_FILE: Final = "config/liveSettings.json"
# Shown among the settings: which of them are not as configured.
CHANGED_KEY: Final = "liveSettings"

LIVE_PROPERTIES: Final = frozenset(
    {
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "brokerPermission",
        "deleteWhen",
        "fileReservedTime",
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

    def __init__(self, config: BrokerConfig, clock: Clock, table: JsonTable) -> None:
        self.config = config
        self._configured = config.as_properties()
        self._clock = clock
        self._table = table
        self._listeners: list[Listener] = []
        self._checks: list[Callable[[BrokerConfig], str | None]] = []
        # Key -> value; what is as configured is not here.
        self._changed: dict[str, str] = {}
        self.version = DataVersion(timestamp_ms=clock.wall_ms())
        """Which state of the settings this is; changes with every change."""

    @property
    def changed(self) -> Mapping[str, str]:
        """The settings that are not as configured."""
        return self._changed

    def check_with(self, check: Callable[[BrokerConfig], str | None]) -> None:
        """Ask `check(new config)` before every change; a text that it returns refuses it."""
        self._checks.append(check)

    def on_change(self, listener: Listener) -> None:
        """Call `listener(new config)` right after every change."""
        self._listeners.append(listener)

    def resume(self) -> None:
        """Take up what was changed before the broker was started again."""
        stored = self._table.load()
        found = (stored or {}).get("settings", {})
        kept = {}
        for key, entry in _entries(found):
            if key not in LIVE_PROPERTIES:
                _log.warning("%s: %.80r cannot be changed live: left out", LIVE_SETTINGS_FILE, key)
            elif entry["configured"] != self._configured[key]:
                _log.warning(
                    "setting %s is %s as configured now, no longer %.80s as changed before",
                    key, self._configured[key], entry["value"],
                )  # fmt: skip
            else:
                kept[key] = entry["value"]
        config = self.config
        try:
            config = self._with(kept)
        except InvalidConfig as error:
            _log.warning("%s is left out as a whole: %s", LIVE_SETTINGS_FILE, error)
            kept = {}
        if stored is not None and kept.keys() != set(found or ()):
            try:
                self._keep(kept)
            except RmqError as error:
                # It counts all the same; the next start tries again.
                _log.warning("%s was not written: %s", LIVE_SETTINGS_FILE, error)
        if not kept:
            return
        for key, value in sorted(kept.items()):
            _log.warning("setting %s is %.80s, changed before this start", key, value)
        self._become(config, kept)

    def change(self, properties: Mapping[str, str]) -> None:
        """Change all of them or, when one is refused or cannot be kept, none.

        What is kept counts: whoever cannot follow says so, and the others follow all the same.

        A key that this broker does not know is taken and logged, as RocketMQ does: its tools set
        keys of releases that the broker is not.
        """
        current = self.config.as_properties()
        wanted = {}
        for key, value in properties.items():
            if key in LIVE_PROPERTIES:
                wanted[key] = value.strip() or self._configured[key]
            elif key in _FIXED or key in STORE_PATHS:
                self._refuse_unless_same(key, value.strip(), current)
            elif key != CHANGED_KEY:
                _log.warning("setting %.80r is not one of this broker: nothing changed", key)
        try:
            config = self._with({**current, **wanted})
        except InvalidConfig as error:
            raise InvalidArgument(str(error)) from None
        # As the broker writes them, so that one value has one text.
        now = config.as_properties()
        if now == current:
            return
        for check in self._checks:
            problem = check(config)
            if problem is not None:
                raise InvalidArgument(problem)
        changed = {k: now[k] for k in sorted(LIVE_PROPERTIES) if now[k] != self._configured[k]}
        self._keep(changed)
        for key in sorted(wanted):
            if current[key] != now[key]:
                _log.warning("setting %s was %s and is %.80s now", key, current[key], now[key])
        self._become(config, changed)

    @names_disk_errors
    def _keep(self, changed: Mapping[str, str]) -> None:
        self._table.save(
            {
                "settings": {
                    key: {"value": value, "configured": self._configured[key]}
                    for key, value in changed.items()
                }
            }
        )

    def _with(self, changed: Mapping[str, str]) -> BrokerConfig:
        properties = {**self._configured, **changed}
        config, _ = BrokerConfig.from_properties(properties, "this request")
        return config

    def _become(self, config: BrokerConfig, changed: dict[str, str]) -> None:
        self.config = config
        self._changed = changed
        self.version = DataVersion(self.version.counter + 1, 0, self._clock.wall_ms())
        failures: list[RmqError] = []
        for listener in self._listeners:
            try:
                listener(config)
            except RmqError as error:
                failures.append(error)
        if failures:
            raise failures[0]

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


def _entries(found: Any) -> list[tuple[str, dict[str, str]]]:
    """What the file says, without what is not in its shape."""
    entries = []
    for key, entry in found.items() if isinstance(found, dict) else ():
        texts = entry if isinstance(entry, dict) else {}
        if all(isinstance(texts.get(name), str) for name in ("value", "configured")):
            entries.append((key, texts))
        else:
            _log.warning("%s: %.80r has no value: left out", LIVE_SETTINGS_FILE, key)
    return entries
