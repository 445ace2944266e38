"""Lines of JSON as messages: what `rmq consume -J` prints, and what people write. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from broker_core.cli.exit_codes import CommandFailed
from broker_core.client.produce.outgoing_message import RESERVED_PROPERTIES, OutgoingMessage
from broker_core.codec.records.message_properties import SHARDING_KEY, TIMER_PROPERTIES

FIELDS: Final = (
    "body", "bodyEncoding", "keys", "tags", "properties", "shardingKey", "delayLevel", "delayMs",
    "deliverAt",
)  # fmt: skip
# Aliases of fields.
_ALIASES: Final[Mapping[str, str]] = {"key": "keys", "headers": "properties", "value": "body"}
# Printed by `consume -J`, and ignored here: the place of the original does not select the target.
_IGNORED: Final = frozenset(
    {"topic", "broker", "queue", "offset", "messageId", "storeTimestamp", "bornTimestamp"}
)
_SHOWN: Final = 60


def json_message(line: bytes, shared: OutgoingMessage) -> OutgoingMessage:
    """The message of one object; fields that it does not have are those of `shared`.

    Properties that RocketMQ sets itself are left out: `consume -J` prints them, too. Raises
    `CommandFailed`.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CommandFailed(f"{line[:_SHOWN]!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise CommandFailed(f"{line[:_SHOWN]!r} is not a JSON object")
    fields = {_ALIASES.get(str(name), str(name)): value for name, value in found.items()}
    unknown = sorted(fields.keys() - {*FIELDS} - _IGNORED)
    if unknown:
        text = f"no field {unknown[0]!r:.60}; there are {', '.join(FIELDS)}"
        raise CommandFailed(text)
    given = _properties(fields.get("properties"))
    kept = {
        name: value
        for name, value in given.items()
        if name not in RESERVED_PROPERTIES and name not in TIMER_PROPERTIES and value
    }
    return shared._replace(
        body=_body(fields),
        keys=_text(fields, "keys", shared.keys),
        tags=_text(fields, "tags", shared.tags),
        properties={**shared.properties, **kept},
        sharding_key=_text(fields, "shardingKey", given.get(SHARDING_KEY, "")) or None,
        delay_level=_number(fields, "delayLevel") or shared.delay_level,
        delay_ms=_number(fields, "delayMs"),
        deliver_at_ms=_number(fields, "deliverAt"),
    )


def _body(fields: Mapping[str, Any]) -> bytes:
    if "body" not in fields:
        raise CommandFailed("an object has no field body")
    body, encoding = fields["body"], fields.get("bodyEncoding", "utf-8")
    if not isinstance(body, str):
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    if encoding == "utf-8":
        return body.encode("utf-8", "surrogatepass")
    if encoding != "base64":
        raise CommandFailed(f"bodyEncoding {encoding!r:.40} is neither utf-8 nor base64")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise CommandFailed(f"body {body!r:.40} is not base64: {error}") from None


def _properties(found: object) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise CommandFailed(f"properties {found!r:.60} is not an object")
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in found.items()
    }


def _text(fields: Mapping[str, Any], name: str, default: str) -> str:
    found = fields.get(name)
    if found is None:
        return default
    if isinstance(found, list) and all(isinstance(word, str) for word in found):
        return " ".join(found)
    if not isinstance(found, str):
        raise CommandFailed(f"{name} {found!r:.60} is not a text")
    return found


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    found = fields.get(name)
    if found is None:
        return None
    if type(found) is int:
        if found < 0:
            raise CommandFailed(f"{name} {str(found)[:60]} is below 0")
        return found
    raise CommandFailed(f"{name} {found!r:.60} is not a whole number")
