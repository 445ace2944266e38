"""Strings by namespace and key, for administrators: PUT, GET, DELETE and list of one namespace.

Owns the table. Does no I/O: to persist the table, pass `save`, which gets the bytes of Apache's
`kvConfig.json` before a change is visible; if it fails, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker_core.codec.json.dialect import emit_json, parse_object
from broker_core.codec.json.fields import object_field, text_field
from broker_core.errors import InvalidArgument
from broker_core.nameserver.settings import RouteLimits

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
NAME_SIZE_MAX = 255

Namespaces = Mapping[str, Mapping[str, str]]


class KvConfig:
    """The table of one name server. `revision` grows with every change."""

    def __init__(
        self,
        limits: RouteLimits | None = None,
        *,
        saved: bytes = b"",
        save: Callable[[bytes], None] | None = None,
    ) -> None:
        self._limits = limits or RouteLimits()
        self._save = save
        self._namespaces: Namespaces = _parse_saved(saved) if saved else {}
        self.revision = 0

    def get(self, namespace: str, key: str) -> str | None:
        """The value, or None if there is none."""
        return self._namespaces.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str]:
        """All keys of a namespace; empty if it does not exist."""
        return self._namespaces.get(namespace, {})

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; refuses names and sizes outside the limits."""
        _check_name("namespace", namespace)
        _check_name("key", key)
        if len(value.encode("utf-8", "surrogatepass")) > self._limits.kv_value_size_max:
            raise InvalidArgument(f"value has more than {self._limits.kv_value_size_max} bytes")
        if self.get(namespace, key) == value:
            return
        count = sum(len(pairs) for pairs in self._namespaces.values())
        if self.get(namespace, key) is None and count >= self._limits.kv_entries_max:
            raise InvalidArgument(f"the KV table is full: {self._limits.kv_entries_max} entries")
        self._adopt(namespace, {**self.namespace(namespace), key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value if it exists."""
        pairs = self.namespace(namespace)
        if key in pairs:
            self._adopt(namespace, {name: pairs[name] for name in pairs if name != key})

    def _adopt(self, namespace: str, pairs: Mapping[str, str]) -> None:
        changed = {name: table for name, table in self._namespaces.items() if name != namespace}
        if pairs:
            changed[namespace] = pairs
        if self._save is not None:
            self._save(emit_json({"configTable": {n: dict(p) for n, p in changed.items()}}))
        self._namespaces = changed
        self.revision += 1


def _check_name(kind: str, name: str) -> None:
    if not 0 < len(name) <= NAME_SIZE_MAX or not name.isprintable():
        raise InvalidArgument(f"{kind} must be 1 to {NAME_SIZE_MAX} printable characters")


def _parse_saved(saved: bytes) -> dict[str, dict[str, str]]:
    found = parse_object(saved)
    table = object_field(found, "configTable")
    namespaces = {name: object_field(table, name) for name in table}
    return {name: {k: text_field(pairs, k) for k in pairs} for name, pairs in namespaces.items()}
