"""Finds out whether a newer master has replaced this one, and which broker id is free then.

Before a promotion, tells the other members of the group that an epoch is about to begin.

The name servers know the master of a broker name; that broker is asked for its epoch. Only an
answer counts: a master steps down for no broker that it cannot reach.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Final, NamedTuple

from broker_core.broker.replication.capabilities import NEWER_MASTER
from broker_core.broker.replication.persisted_roles import stored_history
from broker_core.broker.security.broker_security import inner_client
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.codec.wire.bodies.route_data import decode_cluster_info
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RmqError
from broker_core.protocol_codes import MASTER_ID, RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from broker_core.replication.log_epochs import TERM, EpochHistory, LastRole

_log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 1_000
# A member that knows of a newer epoch raises the number; one more round tells all of them.
_ROUNDS_MAX: Final = 5


class NewerMaster(NamedTuple):
    """Its address, its epoch, and an id that this broker can use as its slave."""

    address: str
    epoch: int
    free_id: int


class Rival(NamedTuple):
    """Address of another master of the same log and term, which this one outranks."""

    address: str


def is_newer(epoch: int, history: EpochHistory) -> bool:
    """Whether a master with `epoch` has taken the place of one with this history."""
    if history.role is LastRole.STEPPED_DOWN:
        return epoch >= history.seen
    return epoch // TERM > history.seen // TERM


async def place_taken(config: BrokerConfig) -> NewerMaster | None:
    """Before a master starts: the newer master that its files or the name servers know, if any."""
    history = stored_history(config.store_root)
    newer = await find_newer_master(config, history)
    if isinstance(newer, Rival):
        # It is resolved once both run.
        newer = None
    if newer is not None:
        _log.warning("%s is the master of this name now: following it", newer.address)
    elif history.role is LastRole.STEPPED_DOWN:
        newer = NewerMaster("", history.seen, history.slave_id or 1)
        _log.warning(
            "this broker has stepped down for a newer master and stays a slave; promote it, or "
            "start it once with brokerRole=SLAVE, to make it a master again"
        )
    return newer


async def find_newer_master(
    config: BrokerConfig,
    history: EpochHistory,
    register: Callable[[], Awaitable[object]] | None = None,
    store_id: str = "",
) -> NewerMaster | Rival | None:
    """Ask every name server, then the master that they know if it is another broker.

    If that master is older, or outranks this one, `register` overwrites its registration, and it is
    notified. Masters of two groups that were given the same name do not have the same `store_id`:
    they do not replace each other.
    """
    client = inner_client(config)
    try:
        for name_server in config.name_servers:
            found = await _ask(client, name_server, config, history, register, store_id)
            if found is not None:
                return found
        return None
    finally:
        await client.close()


async def _ask(
    client: RemotingClient,
    name_server: str,
    config: BrokerConfig,
    history: EpochHistory,
    register: Callable[[], Awaitable[object]] | None,
    store_id: str,
) -> NewerMaster | Rival | None:
    members = await _members(client, name_server, config)
    address = members.get(MASTER_ID)
    if address is None or address == config.address:
        return None
    try:
        command = RemotingCommand(RequestCode.CAPABILITIES)
        answer = await client.request(address, command, _TIMEOUT_MS)
    except RmqError as error:
        _log.info("master %s of this broker's name did not answer: %s", address, error)
        return None
    text = answer.ext.get("replicationEpoch", "")
    if answer.code != ResponseCode.SUCCESS or not (text.isascii() and text.isdigit()):
        return None
    epoch = int(text)
    if not is_newer(epoch, history):
        is_same_term = epoch // TERM == history.seen // TERM
        is_same_log = bool(store_id) and answer.ext.get("storeId", "") == store_id
        if is_same_term and is_same_log:
            if history.outranks(epoch, answer.ext.get("replicationOwner", "")):
                return Rival(address)
            _log.warning(
                "%s is also a master of the name %s: it continues, and this broker will follow it",
                address,
                config.broker_name,
            )
        elif is_same_term:
            _log.error(
                "%s is also a master of the name %s, and neither was promoted after the other: "
                "stop one of them",
                address,
                config.broker_name,
            )
        if register is not None and (epoch < history.seen or (is_same_term and is_same_log)):
            await register()
            await _tell_older(client, address, history)
        return None
    taken = _ids_of_others(members, config)
    if history.slave_id and history.slave_id not in taken:
        # The id of its last run: a slave whose id looks free may only be away.
        return NewerMaster(address, epoch, history.slave_id)
    return NewerMaster(address, epoch, next(n for n in count(1) if n not in taken))


async def expected_epoch(config: BrokerConfig, history: EpochHistory) -> int:
    """Tell the other members that a promotion begins an epoch; returns its number.

    A slave that was told follows no older master, so an old master that returns cannot acknowledge
    anything with it. The number is above all that a member knows of.
    """
    members = await _all_members(config)
    addresses = sorted({address for known in members for address in _of_others(known, config)})
    client = inner_client(config)
    try:
        epoch = history.next_term
        for _ in range(_ROUNDS_MAX):
            told = await asyncio.gather(
                *(_tell_expected(client, address, config, epoch) for address in addresses)
            )
            highest = max((epoch, *told))
            if highest == epoch:
                break
            epoch = (highest // TERM + 1) * TERM
        return epoch
    finally:
        await client.close()


async def _tell_expected(
    client: RemotingClient, address: str, config: BrokerConfig, epoch: int
) -> int:
    """The highest epoch that a member has seen; 0 if it does not answer."""
    fields = {"brokerName": config.broker_name, "epoch": str(epoch)}
    try:
        command = RemotingCommand(RequestCode.EXPECT_EPOCH, fields)
        answer = await client.request(address, command, _TIMEOUT_MS)
    except RmqError as error:
        answer = RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=str(error))
    seen = answer.ext.get("epoch", "")
    if answer.code == ResponseCode.SUCCESS and seen.isascii() and seen.isdigit():
        return int(seen[:19])
    _log.warning(
        "%s was not told that epoch %d begins (%s): do not start an older master with it while "
        "this broker is down",
        address,
        epoch,
        answer.remark,
    )
    return 0


async def id_is_taken(config: BrokerConfig) -> bool:
    """Whether a name server knows another broker with the name and the id of this one."""
    members = await _all_members(config)
    return any(config.broker_id in _ids_of_others(known, config) for known in members)


async def next_free_id(config: BrokerConfig) -> int:
    """The next free id above this broker's, so that retries reach a free id eventually."""
    members = await _all_members(config)
    taken = {broker_id for known in members for broker_id in _ids_of_others(known, config)}
    return next(n for n in count(config.broker_id + 1) if n not in taken)


async def _all_members(config: BrokerConfig) -> list[dict[int, str]]:
    client = inner_client(config)
    try:
        return [await _members(client, address, config) for address in config.name_servers]
    finally:
        await client.close()


def _ids_of_others(members: Mapping[int, str], config: BrokerConfig) -> set[int]:
    return {broker_id for broker_id, address in members.items() if address != config.address}


def _of_others(members: Mapping[int, str], config: BrokerConfig) -> set[str]:
    return set(members.values()) - {config.address}


async def _tell_older(client: RemotingClient, address: str, history: EpochHistory) -> None:
    """Notify an older master, so that it asks the name servers again."""
    command = RemotingCommand(RequestCode.CAPABILITIES, {NEWER_MASTER: str(history.seen)})
    try:
        await client.request(address, command, _TIMEOUT_MS)
    except RmqError as error:
        _log.info("the older master %s was not notified: %s", address, error)


async def _members(
    client: RemotingClient, name_server: str, config: BrokerConfig
) -> dict[int, str]:
    """Ids and addresses of this broker's name; empty when the name server does not answer."""
    try:
        command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await client.request(name_server, command, _TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            return {}
        brokers = decode_cluster_info(answer.body).brokers
    except RmqError as error:
        _log.info("name server %s did not return the master: %s", name_server, error)
        return {}
    broker = brokers.get(config.broker_name)
    if broker is None or broker.cluster != config.cluster_name:
        return {}
    return dict(broker.addresses)
