"""Permission rules: what a request code needs, and whether an account has it.

A rule has the minimum role and, for ordinary accounts, every topic and group of the request. A code
without a rule is refused for every account.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from broker_core.access.accounts import PUB, SUB, Account
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    topic_name_problem,
)
from broker_core.errors import NoPermission
from broker_core.protocol_codes import ResponseCode

_NAMES: Final = {PUB: "PUB", SUB: "SUB", PUB | SUB: "PUB or SUB"}


class Role(enum.IntEnum):
    """Minimum role of an account."""

    ACCOUNT = 0
    BROKER = 1
    ADMIN = 2


class Need(NamedTuple):
    """One of the `permission` bits on one topic or group."""

    name: str
    permission: int
    is_group: bool = False


class Resources(Protocol):
    """Resolves topics and groups that requests name indirectly; implemented by the server."""

    def topic_at(self, position: int) -> str | None:
        """The topic of the message at a log position; None if readers find none there."""

    def transaction_topic_at(self, position: int) -> str | None:
        """The topic that the half message at a log position is for; None if there is none."""

    def sink_of(self, staging_id: str) -> str | None:
        """The sink that data is staged for; None if nothing is staged under the id."""

    def topics_of(self, staging_id: str) -> Iterable[str]:
        """The topics that data is staged for; none if nothing is staged under the id."""

    def is_system_topic(self, topic: str) -> bool:
        """Whether the topic belongs to the servers themselves."""

    def other_retry_owners(self, group: str, topic: str) -> Iterable[tuple[str, str]]:
        """Other owners of messages in the retries of what a group popped.

        Pairs of a group and the topic that it pops, or "".
        """

    def retry_owners(self, topic: str) -> Iterable[tuple[str, str]]:
        """All owners of messages in a retry topic, as such pairs; none for other topics."""

    def popped_by(self, position: int) -> Iterable[tuple[str, str]]:
        """The owners, as such pairs, of a retry of a popped message; none at other positions."""


Needs = Callable[[RemotingCommand, Resources], Iterable[Need]]


class Rule(NamedTuple):
    """The requirement of one request code."""

    role: Role
    needs: Needs | None = None


ANY_ACCOUNT: Final = Rule(Role.ACCOUNT)
BROKERS: Final = Rule(Role.BROKER)
ADMINS: Final = Rule(Role.ADMIN)


def role_of(account: Account) -> Role:
    """The highest role of the account."""
    if account.is_admin:
        return Role.ADMIN
    return Role.BROKER if account.is_broker else Role.ACCOUNT


def check_permission(
    account: Account, rule: Rule, command: RemotingCommand, resources: Resources
) -> None:
    """Raise `NoPermission` unless the account has the permissions that the rule requires."""
    role = role_of(account)
    if role is Role.ADMIN:
        return
    if role < rule.role:
        wanted = "an admin account" if rule.role is Role.ADMIN else "an account of a broker"
        raise refused(f"account {account.access_key} is not {wanted}, request {command.code}")
    if rule.needs is None:
        return
    for need in rule.needs(command, resources):
        if not _has(account, need, resources):
            kind = "group" if need.is_group else "topic"
            raise refused(
                f"account {account.access_key} has no {_NAMES[need.permission]} permission on "
                f"{kind} {need.name!r:.140}"
            )


def has_permission(account: Account, need: Need, resources: Resources) -> bool:
    """Whether the account has one permission; admins have all."""
    return account.is_admin or _has(account, need, resources)


def refused(reason: str) -> NoPermission:
    """The error for every refused request."""
    return NoPermission(ResponseCode.NO_PERMISSION, f"access denied: {reason}")


def _has(account: Account, need: Need, resources: Resources) -> bool:
    # Default permissions never cover an invalid name: a look-up may normalize it to another name
    # that has its own entry.
    if not need.name or need.name != need.name.strip():
        return False
    if need.is_group:
        return bool(account.group_permission(need.name) & need.permission)
    if topic_name_problem(need.name) is not None:
        return False
    is_system = resources.is_system_topic(need.name)
    return bool(account.topic_permission(need.name, is_system=is_system) & need.permission)


# Needs that many rules share


def topic_need(topic: str, permission: int) -> Need:
    """Permission on a topic; for retries and dead letters of a group, permission on the group."""
    for prefix in (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX):
        if topic.startswith(prefix):
            return Need(topic[len(prefix) :], SUB, is_group=True)
    return Need(topic, permission)


def group_need(group: str, permission: int = SUB) -> Need:
    """Permission on a consumer group, or on a sink."""
    return Need(group, permission, is_group=True)


def fields(*, topic: str = "", group: str = "", permission: int = SUB) -> Needs:
    """Needs on the topics or groups in these ext fields; an absent field is refused."""

    def needs(command: RemotingCommand, _: Resources) -> Iterable[Need]:
        if topic:
            yield topic_need(command.ext.get(topic, ""), permission)
        if group:
            yield group_need(command.ext.get(group, ""))

    return needs
