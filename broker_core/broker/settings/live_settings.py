"""Settings that may change while the broker runs, and the notification of features.

`LIVE_PROPERTIES` is the allow-list. All other settings are identity, paths, access control or
limits: a client that reaches the port must not be able to change them.

Changes are stored in a file of the store, each with the configured value at that time:

    {"settings": {"brokerPermission": {"value": "4", "configured": "6"}}}

The last change wins, as if `broker.conf` had been rewritten: at a start a stored value is valid as
long as the configured value is unchanged. An invalid one is deleted, so that it cannot come back
with a later configuration. Setting an empty value, or the configured one, also deletes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.settings.broker_properties import (
    BROKER_PROPERTIES,
    FIXED_PROPERTIES,
    STORE_PATHS,
)
from broker_core.codec.wire.bodies.topic_config import DataVersion
from broker_core.config import PROPERTY_NAMES
from broker_core.errors import InvalidArgument, InvalidConfig, NoPermission, RmqError
from broker_core.protocol_codes import ResponseCode
from broker_core.runtime.clock import Clock
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors

_log = logging.getLogger(__name__)

LIVE_SETTINGS_FILE: Final = "config/liveSettings.json"
# Shown among the settings: names of those that differ from the configuration.
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
        # Key -> value of settings that differ from the configuration.
        self._changed: dict[str, str] = {}
        self.version = DataVersion(timestamp_ms=clock.wall_ms())
        """Data version; changes with every change."""

    @property
    def changed(self) -> Mapping[str, str]:
        """The settings that differ from the configuration."""
        return self._changed

    def check_with(self, check: Callable[[BrokerConfig], str | None]) -> None:
        """Call `check(new config)` before every change; a returned text rejects the change."""
        self._checks.append(check)

    def on_change(self, listener: Listener) -> None:
        """Call `listener(new config)` right after every change."""
        self._listeners.append(listener)

    def resume(self) -> None:
        """Apply the stored changes of earlier runs."""
        stored = self._table.load()
        found = (stored or {}).get("settings", {})
        kept = {}
        for key, entry in _entries(found):
            if key not in LIVE_PROPERTIES:
                _log.warning(
                    "%s: %.80r cannot be changed at run time: ignored", LIVE_SETTINGS_FILE, key
                )
            elif entry["configured"] != self._configured[key]:
                _log.warning(
                    "setting %s is %s as configured now, no longer %.80s as changed before",
                    key,
                    self._configured[key],
                    entry["value"],
                )
            else:
                kept[key] = entry["value"]
        config = self.config
        try:
            config = self._with(kept)
        except InvalidConfig as error:
            _log.warning("%s is ignored as a whole: %s", LIVE_SETTINGS_FILE, error)
            kept = {}
        if stored is not None and kept.keys() != set(found or ()):
            try:
                self._keep(kept)
            except RmqError as error:
                # Applied anyway; the next start tries to write again.
                _log.warning("%s was not written: %s", LIVE_SETTINGS_FILE, error)
        if not kept:
            return
        for key, value in sorted(kept.items()):
            _log.warning("setting %s is %.80s, changed before this start", key, value)
        self._become(config, kept)

    def change(self, properties: Mapping[str, str]) -> None:
        """Change all, or none when one is rejected or cannot be stored.

        A stored change is valid: if a listener raises, the others are still called, and the first
        error is raised at the end. An unknown key is accepted and logged, as in RocketMQ, whose
        tools set keys of other releases.
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
        # Normalized, so that one value has one text.
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
        # Tools send the whole configuration back with one key changed.
        if value == known:
            return
        raise NoPermission(
            ResponseCode.NO_PERMISSION,
            f"{key} cannot be changed while the broker runs: set it in broker.conf and start the "
            f"broker again. These can: {', '.join(sorted(LIVE_PROPERTIES))}",
        )


def _entries(found: Any) -> list[tuple[str, dict[str, str]]]:
    """The well-formed entries of the file."""
    entries = []
    for key, entry in found.items() if isinstance(found, dict) else ():
        texts = entry if isinstance(entry, dict) else {}
        if all(isinstance(texts.get(name), str) for name in ("value", "configured")):
            entries.append((key, texts))
        else:
            _log.warning("%s: %.80r has no value: ignored", LIVE_SETTINGS_FILE, key)
    return entries
