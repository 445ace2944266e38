"""Administration of name servers: KV settings, configuration, write permission of brokers."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.client.admin.admin import Admin
from broker_core.client.admin.answers import read_answer
from broker_core.client.admin.brokers import read_settings
from broker_core.codec.json.fields import whole_number
from broker_core.codec.wire.bodies.route_data import decode_kv_table
from broker_core.errors import QueryNotFound
from broker_core.protocol_codes import RequestCode

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""Namespace with the queues of ordered topics."""


async def put_kv(admin: Admin, namespace: str, key: str, value: str) -> None:
    """Set a key on every name server."""
    ext = {"namespace": namespace, "key": key, "value": value}
    await _tell_all(admin, RequestCode.PUT_KV_CONFIG, ext)


async def delete_kv(admin: Admin, namespace: str, key: str) -> None:
    """Remove a key on every name server."""
    await _tell_all(admin, RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key})


async def get_kv(admin: Admin, namespace: str, key: str) -> str | None:
    """The value of a key at one name server; None if it is not set."""
    ext = {"namespace": namespace, "key": key}
    try:
        answer = await admin.client.name_servers.ask(RequestCode.GET_KV_CONFIG, ext)
    except QueryNotFound:
        return None
    return answer.ext.get("value")


async def list_kv(admin: Admin, namespace: str) -> dict[str, str]:
    """Every key of a namespace at one name server."""
    name_servers = admin.client.name_servers
    try:
        answer = await name_servers.ask(
            RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace}
        )
    except QueryNotFound:
        return {}
    return read_answer("the name server", decode_kv_table, answer.body)


async def name_server_settings(admin: Admin) -> dict[str, dict[str, str]]:
    """The settings of every name server by address."""
    found = {}
    for address in admin.client.name_servers.addresses:
        answer = await admin.ask(address, RequestCode.GET_NAMESRV_CONFIG)
        found[address] = read_settings(bytes(answer.body))
    return found


async def change_name_servers(admin: Admin, settings: Mapping[str, str]) -> None:
    """Change settings of every name server."""
    body = "".join(f"{key}={value}\n" for key, value in settings.items()).encode()
    for address in admin.client.name_servers.addresses:
        await admin.ask(address, RequestCode.UPDATE_NAMESRV_CONFIG, body=body)


async def wipe_write_permission(admin: Admin, broker: str) -> dict[str, int]:
    """Remove a broker from the routes of producers. Returns changed topics by name server."""
    return await _permission(admin, RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker, "wipeTopicCount")


async def add_write_permission(admin: Admin, broker: str) -> dict[str, int]:
    """Undo `wipe_write_permission`. Returns changed topics by name server."""
    return await _permission(admin, RequestCode.ADD_WRITE_PERM_OF_BROKER, broker, "addTopicCount")


async def _permission(admin: Admin, code: int, broker: str, field: str) -> dict[str, int]:
    counts = {}
    for address in admin.client.name_servers.addresses:
        answer = await admin.ask(address, code, {"brokerName": broker})
        text = answer.ext.get(field, "0")
        counts[address] = read_answer(address, whole_number, text, field, 0)
    return counts


async def _tell_all(admin: Admin, code: int, ext: dict[str, str]) -> None:
    for address in admin.client.name_servers.addresses:
        await admin.ask(address, code, ext)
