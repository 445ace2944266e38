"""Replication status of a broker name, and promotion of a slave."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.client.admin.admin import Admin
from broker_core.client.admin.answers import answer_object
from broker_core.errors import BrokerNotExist, InvalidArgument, PromotionRefused, RmqError
from broker_core.protocol_codes import MASTER_ID, BrokerRole, RequestCode, ResponseCode
from broker_core.runtime.clock import sleep

PROMOTION_TIMEOUT_MS: Final = 30_000
_LOOK_S: Final = 0.05


class Member(NamedTuple):
    """One member and its replication status; `problem` if it did not answer."""

    broker_id: int
    address: str
    status: Mapping[str, Any]
    problem: str = ""

    @property
    def is_master(self) -> bool:
        """Whether it reports itself as a master."""
        return bool(self.status) and self.status.get("role") != BrokerRole.SLAVE.value

    @property
    def reach(self) -> tuple[int, int]:
        """Order of completeness: the last epoch first, then the log end."""
        return int(self.status.get("epoch", 0)), int(self.status.get("log_end", 0))


class Promotion(NamedTuple):
    """The result: the new master, its epoch, and the log position at which the epoch starts."""

    broker_name: str
    address: str
    epoch: int
    role: str
    log_end: int


async def replication_members(admin: Admin, broker_name: str) -> list[Member]:
    """The members of a broker name that the name servers know, each with its status.

    Raises `BrokerNotExist` when there is none.
    """
    found = [
        (number, address)
        for _, name, number, address in await admin.members()
        if name == broker_name
    ]
    if not found:
        raise BrokerNotExist(
            ResponseCode.BROKER_NOT_EXIST, f"the name servers know no broker {broker_name!r:.100}"
        )
    return list(await asyncio.gather(*(_member(admin, *member) for member in found)))


async def _member(admin: Admin, broker_id: int, address: str) -> Member:
    try:
        answer = await admin.ask(address, RequestCode.REPLICATION_STATUS)
        return Member(broker_id, address, answer_object(address, answer))
    except RmqError as error:
        return Member(broker_id, address, {}, str(error) or type(error).__name__)


def out_of_sync(members: list[Member], slaves_wanted: int) -> str:
    """Why fewer than `slaves_wanted` slaves have all that the master has; else empty. Pure."""
    masters = [member for member in members if member.is_master]
    silent = [f"{member.address}: {member.problem}" for member in members if member.problem]
    if len(masters) != 1:
        found = ", ".join(member.address for member in masters) or "none"
        return "; ".join([f"one master is expected, there is {found}", *silent])
    [master] = masters
    copies = master.status["slaves"]
    copied = sum(1 for slave in copies if slave["in_sync"] and slave["lag_bytes"] == 0)
    if copied < slaves_wanted:
        lags = [f"{slave['address']} lacks {slave['lag_bytes']} bytes" for slave in copies]
        links = [
            f"{member.address} {member.status.get('problem') or 'reports no problem'}"
            for member in members
            if member.status and not member.is_master
        ]
        connected = f"{copied} of {slaves_wanted} slaves have all of {master.address}"
        return "; ".join([connected, *lags, *links, *silent])
    # Topics and groups are copied separately, a moment later.
    tables = master.status["tables"]
    differing = [
        member.address
        for member in members
        if not member.is_master and member.status.get("tables") != tables
    ]
    if len(members) - 1 < slaves_wanted:
        return f"{len(members) - 1} of {slaves_wanted} slaves are registered"
    if len(members) - 1 - len(differing) < slaves_wanted:
        return "; ".join([f"topics and groups differ on {', '.join(differing)}", *silent])
    return ""


def chosen_slave(members: list[Member], wanted: int | None, force: bool) -> Member:
    """The slave to promote: the most complete one, or the one with id `wanted`. Pure.

    Raises `PromotionRefused` when a master answers, when another slave has more, or when a member
    that may have more does not answer; `force` accepts all of these.
    """
    masters = [member for member in members if member.is_master]
    silent = [member for member in members if not member.status and member.broker_id != MASTER_ID]
    slaves = [member for member in members if member.status and not member.is_master]
    if masters and not force:
        raise PromotionRefused(
            f"the master {masters[0].address} is there: stop it first, or it goes on taking "
            "messages until it sees the new one"
        )
    if not slaves:
        raise PromotionRefused("no slave answers")
    best = max(slaves, key=lambda member: member.reach)
    if wanted is None:
        chosen = best
    else:
        chosen = next((member for member in slaves if member.broker_id == wanted), None) or best
        if chosen.broker_id != wanted:
            raise InvalidArgument(f"no slave with id {wanted} answers")
    if force:
        return chosen
    if chosen.reach < best.reach:
        raise PromotionRefused(
            f"slave {best.broker_id} at {best.address} has more (log end {best.reach[1]}, this one "
            f"{chosen.reach[1]}): promote that one, or acknowledged messages may be lost"
        )
    if silent:
        raise PromotionRefused(
            f"slave {silent[0].broker_id} at {silent[0].address} does not answer and may have "
            f"more: {silent[0].problem}"
        )
    return chosen


async def promote(
    admin: Admin,
    broker_name: str,
    broker_id: int | None = None,
    *,
    role: BrokerRole = BrokerRole.ASYNC_MASTER,
    force: bool = False,
    timeout_ms: int = PROMOTION_TIMEOUT_MS,
) -> Promotion:
    """Promote a slave to master and wait until it serves as such.

    Without `broker_id` the slave with the longest log is taken. Raises `PromotionRefused` when that
    would not be safe (see `chosen_slave`), or when the slave did not become the master in time.
    """
    slave = chosen_slave(await replication_members(admin, broker_name), broker_id, force)
    ext = {"brokerRole": role.value}
    answer = await admin.ask(slave.address, RequestCode.PROMOTE_BROKER, ext)
    log_end = int(answer.ext.get("logEnd", "0") or "0")
    clock = admin.client.clock
    deadline = clock.monotonic() + timeout_ms / 1000
    while clock.monotonic() < deadline:
        member = await _member(admin, MASTER_ID, slave.address)
        if member.is_master and await _is_registered(admin, broker_name, slave.address):
            return Promotion(
                broker_name, slave.address, member.reach[0], str(member.status["role"]), log_end
            )
        await sleep(_LOOK_S)
    raise PromotionRefused(
        f"{slave.address} did not become the master of {broker_name} within {timeout_ms} ms: see "
        "its log"
    )


async def _is_registered(admin: Admin, broker_name: str, address: str) -> bool:
    try:
        members = await admin.members()
    except RmqError:
        return False
    return any(
        (name, number, at) == (broker_name, MASTER_ID, address) for _, name, number, at in members
    )
