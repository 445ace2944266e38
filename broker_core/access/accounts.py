"""Accounts and their permissions, from JSON in the shape of RocketMQ's plain_acl.yml.

    {"globalWhiteRemoteAddresses": ["10.10.15.*"],
     "accounts": [{"accessKey": "reader", "secretKey": "…", "whiteRemoteAddress": "",
                   "admin": false, "defaultTopicPerm": "DENY", "defaultGroupPerm": "SUB",
                   "topicPerms": ["orders=SUB"], "groupPerms": ["billing=SUB"],
                   "broker": false, "brokerName": ""}]}

`broker` and `brokerName` are ours: such an account may register one broker and copy its tables for
a slave; the name `*` stands for every broker. An unknown or repeated key or a value of another type
rejects the whole file, because the previous accounts are safer than half of the new ones. Secrets
are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker_core.access.credentials import KEY_SIZE_MAX, SECRET_SIZE_MIN
from broker_core.access.remote_addresses import Matches, any_pattern
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.json.fields import flag_field, list_field, text_field
from broker_core.errors import InvalidArgument

PUB: Final = 1
SUB: Final = 2
DENY: Final = 0

# `brokerName` of an account that may act for every broker.
ANY_BROKER: Final = "*"

ACCOUNTS_MAX: Final = 10_000
PERMISSIONS_MAX: Final = 10_000
_DEPTH_MAX: Final = 6
_PERMISSIONS: Final[Mapping[str, int]] = {
    "DENY": DENY,
    "PUB": PUB,
    "SUB": SUB,
    "PUB|SUB": PUB | SUB,
    "SUB|PUB": PUB | SUB,
    "ANY": PUB | SUB,
}
_TOP_KEYS: Final = frozenset({"globalWhiteRemoteAddresses", "accounts"})
_ACCOUNT_KEYS: Final = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "broker",
        "brokerName",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    }
)


class Account(NamedTuple):
    """One access key. Its `repr` has no secret."""

    access_key: str
    secret: bytes = b""
    is_admin: bool = False
    is_broker: bool = False
    default_topic: int = DENY
    default_group: int = DENY
    topics: Mapping[str, int] = {}
    groups: Mapping[str, int] = {}
    is_trusted: Matches = any_pattern(())
    """Whether a peer at this address needs no signature for this account."""
    broker_name: str = ""
    """The only broker that a broker account may act for; `ANY_BROKER` for all, empty for the first
    that it uses."""

    def __repr__(self) -> str:
        return f"<account {self.access_key}>"

    def topic_permission(self, topic: str, *, is_system: bool) -> int:
        """Permission on a topic; the broker's own topics only if the account names them."""
        return self.topics.get(topic, DENY if is_system else self.default_topic)

    def group_permission(self, group: str) -> int:
        """Permission on a consumer group, or on a sink of that name."""
        return self.groups.get(group, self.default_group)


# Peers on the global white list.
TRUSTED_PEER: Final = Account("(white list)", is_admin=True)


class AccountTable(NamedTuple):
    """The content of an account file."""

    accounts: Mapping[str, Account] = {}
    is_trusted: Matches = any_pattern(())

    def __repr__(self) -> str:
        return f"<{len(self.accounts)} accounts>"


def parse_accounts(data: bytes) -> AccountTable:
    """Parse an account file. Raises `InvalidArgument` or `MalformedJson` without quoting values."""
    found = parse_json(data, size_max=8 << 20, depth_max=_DEPTH_MAX, unique_keys=True)
    if not isinstance(found, dict):
        raise InvalidArgument("it is not a JSON object")
    _check_keys(found, _TOP_KEYS, "the file")
    items = list_field(found, "accounts")
    if len(items) > ACCOUNTS_MAX:
        raise InvalidArgument(f"{len(items)} accounts, at most {ACCOUNTS_MAX}")
    accounts: dict[str, Account] = {}
    for number, item in enumerate(items, 1):
        account = _placed(f"account {number}", lambda item=item: _account(item))  # type: ignore[misc]
        if account.access_key in accounts:
            raise InvalidArgument(f"account {number}: another account has the same accessKey")
        accounts[account.access_key] = account
    white = _placed("globalWhiteRemoteAddresses", lambda: _white_list(found))
    return AccountTable(accounts, white)


def _placed(where: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None


def _account(item: object) -> Account:
    if not isinstance(item, dict):
        raise InvalidArgument("it is not an object")
    _check_keys(item, _ACCOUNT_KEYS, "it")
    key = text_field(item, "accessKey")
    if not 1 <= len(key) <= KEY_SIZE_MAX or not key.isprintable():
        raise InvalidArgument(f"accessKey needs 1 to {KEY_SIZE_MAX} printable characters")
    secret = item.get("secretKey")
    # Not read with `text_field`, whose error would quote it.
    if not isinstance(secret, str) or not SECRET_SIZE_MIN <= len(secret) <= KEY_SIZE_MAX:
        sizes = f"{SECRET_SIZE_MIN} to {KEY_SIZE_MAX}"
        raise InvalidArgument(f"secretKey needs a string of {sizes} characters")
    is_broker, broker_name = flag_field(item, "broker", False), text_field(item, "brokerName", "")
    if broker_name and not is_broker:
        raise InvalidArgument("brokerName is for accounts with broker=true")
    return Account(
        key,
        secret.encode(),
        flag_field(item, "admin", False),
        is_broker,
        _permission("defaultTopicPerm", text_field(item, "defaultTopicPerm", "DENY")),
        _permission("defaultGroupPerm", text_field(item, "defaultGroupPerm", "DENY")),
        _permissions(item, "topicPerms"),
        _permissions(item, "groupPerms"),
        any_pattern([text_field(item, "whiteRemoteAddress", "")]),
        broker_name,
    )


def _white_list(found: Mapping[str, Any]) -> Matches:
    texts = list_field(found, "globalWhiteRemoteAddresses")
    if not all(isinstance(text, str) for text in texts) or len(texts) > PERMISSIONS_MAX:
        raise InvalidArgument(f"give at most {PERMISSIONS_MAX} strings")
    return any_pattern(texts)


def _permissions(item: Mapping[str, Any], name: str) -> Mapping[str, int]:
    entries = list_field(item, name)
    if len(entries) > PERMISSIONS_MAX:
        raise InvalidArgument(f"{len(entries)} entries in {name}, at most {PERMISSIONS_MAX}")
    permissions: dict[str, int] = {}
    for entry in entries:
        resource, equals, text = str(entry).rpartition("=")
        if not equals or not resource.strip():
            raise InvalidArgument(f"{name} needs entries like name=SUB")
        if resource.strip() in permissions:
            raise InvalidArgument(f"{name} has {resource.strip()!r:.100} twice")
        permissions[resource.strip()] = _permission(name, text)
    return permissions


def _permission(name: str, text: str) -> int:
    found = _PERMISSIONS.get(text.strip().upper())
    if found is None:
        raise InvalidArgument(f"{name} needs one of {', '.join(_PERMISSIONS)}")
    return found


def _check_keys(found: Mapping[Any, Any], known: Iterable[str], what: str) -> None:
    unknown = [key for key in found if key not in frozenset(known)]
    if unknown:
        raise InvalidArgument(f"{what} has an unknown key: {str(unknown[0])[:60]!r}")
