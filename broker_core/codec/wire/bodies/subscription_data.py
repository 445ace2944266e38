"""Subscription of a group to one topic: everything, some tags, or a SQL92 expression.

Codes are always computed from the tags: Go hashes the wrong bytes, and a wrong code would hide
messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker_core.codec.json.fields import (
    flag_field,
    list_field,
    text_field,
    whole_field,
    whole_number,
)
from broker_core.codec.native import java_hash
from broker_core.errors import InvalidArgument, InvalidSubscription

TAG: Final = "TAG"
SQL92: Final = "SQL92"
ALL_MESSAGES: Final = "*"

# Every heartbeat of every member contains its expressions; these limits bound their cost.
EXPRESSION_SIZE_MAX: Final = 64 << 10
TAGS_MAX: Final = 1024

_SEPARATOR: Final = "||"
_NO_CODES: Final[frozenset[int]] = frozenset()


class SubscriptionData(NamedTuple):
    """One topic of one group. No tags and no expression means all messages."""

    topic: str
    sub_string: str = ALL_MESSAGES
    tags: tuple[str, ...] = ()
    codes: frozenset[int] = _NO_CODES
    version: int = 0
    expression_type: str = TAG
    class_filter: bool = False

    @property
    def is_by_tag(self) -> bool:
        """Whether it selects by tags; otherwise `sub_string` is an expression."""
        return self.expression_type == TAG

    @property
    def matches_all(self) -> bool:
        """Whether it selects every message of the topic."""
        return not self.tags and self.expression_type == TAG


def parse_tag_expression(topic: str, text: str | None, version: int = 0) -> SubscriptionData:
    """`A || B` selects tags; `*`, None or blanks select all. Raises `InvalidSubscription`."""
    if text is None or text.strip() in ("", ALL_MESSAGES):
        return SubscriptionData(topic, version=version)
    _check_size(text)
    tags = _distinct(part.strip() for part in text.split(_SEPARATOR))
    if not tags:
        raise InvalidSubscription(f"{text[:60]!r} contains no tag: give * or tags joined by ||")
    return SubscriptionData(topic, text, tags, _codes(tags), version)


def parse_subscription(found: object) -> SubscriptionData:
    """A subscription from a parsed object of any client."""
    if not isinstance(found, Mapping):
        raise InvalidArgument("a subscription is not an object")
    topic = text_field(found, "topic")
    text = text_field(found, "subString", ALL_MESSAGES)
    version = _version(found)
    class_filter = flag_field(found, "classFilterMode", False)
    expression_type = text_field(found, "expressionType", TAG) or TAG
    _check_size(text)
    if expression_type != TAG:
        if len(expression_type) > len(SQL92):
            raise InvalidSubscription(f"unknown expressionType {expression_type[:20]!r}")
        return SubscriptionData(
            topic, text, version=version, expression_type=expression_type, class_filter=class_filter
        )
    if class_filter:
        # The text is a class name; brokers without filter servers deliver every message.
        return SubscriptionData(topic, text, version=version, class_filter=True)
    listed = list_field(found, "tagsSet")
    if not listed:
        return parse_tag_expression(topic, text, version)
    tags = _distinct(_tag(tag) for tag in listed)
    return SubscriptionData(topic, text, tags, _codes(tags), version)


def subscription_object(subscription: SubscriptionData) -> dict[str, Any]:
    """The JSON object of a subscription, keys in RocketMQ's order."""
    return {
        "classFilterMode": subscription.class_filter,
        "codeSet": sorted(subscription.codes),
        "expressionType": subscription.expression_type,
        "subString": subscription.sub_string,
        "subVersion": subscription.version,
        "tagsSet": list(subscription.tags),
        "topic": subscription.topic,
    }


def _version(found: Mapping[str, Any]) -> int:
    """The version; the C++ client writes it as a string."""
    value = found.get("subVersion")
    if isinstance(value, str):
        return whole_number(value, "subVersion")
    return whole_field(found, "subVersion", 0)


def _tag(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument("tagsSet has an entry that is not a string")
    return value


def _distinct(tags: Iterable[str]) -> tuple[str, ...]:
    """Each tag once, in the order given, without empty ones."""
    found = tuple(dict.fromkeys(tag for tag in tags if tag))
    if len(found) > TAGS_MAX:
        raise InvalidSubscription(f"{len(found)} tags in one subscription, at most {TAGS_MAX}")
    return found


def _codes(tags: Iterable[str]) -> frozenset[int]:
    try:
        return frozenset(java_hash(tag.encode()) for tag in tags)
    except UnicodeEncodeError:
        raise InvalidSubscription("a tag has a lone surrogate, which UTF-8 cannot encode") from None


def _check_size(text: str) -> None:
    if len(text) > EXPRESSION_SIZE_MAX:
        raise InvalidSubscription(
            f"an expression of {len(text)} characters, at most {EXPRESSION_SIZE_MAX}"
        )
