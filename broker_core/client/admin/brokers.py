"""Administration of brokers: runtime figures, settings, clean-ups, statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.client.admin.admin import Admin
from broker_core.client.admin.answers import answer_object, read_answer
from broker_core.codec.wire.bodies.route_data import decode_kv_table
from broker_core.protocol_codes import RequestCode


async def runtime_info(admin: Admin, address: str) -> dict[str, str]:
    """Runtime figures of a broker: rates, totals, disk, positions."""
    answer = await admin.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return read_answer(address, decode_kv_table, answer.body)


async def broker_settings(admin: Admin, address: str) -> dict[str, str]:
    """The settings of a broker, as in its configuration file."""
    answer = await admin.ask(address, RequestCode.GET_BROKER_CONFIG)
    return read_settings(bytes(answer.body))


async def change_settings(admin: Admin, address: str, settings: Mapping[str, str]) -> None:
    """Change settings of a running broker; raises `NoPermission` for a read-only one."""
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    await admin.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=lines.encode())


async def clean(admin: Admin, address: str, code: int) -> None:
    """Run a clean-up: code 306, 316 or 329."""
    await admin.ask(address, code)


async def broker_stats(admin: Admin, address: str, name: str, key: str) -> Mapping[str, Any]:
    """A statistic of the last minute, hour and day."""
    ext = {"statsName": name, "statsKey": key}
    answer = await admin.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, ext)
    return answer_object(address, answer)


async def broker_backlog(admin: Admin, address: str, is_order: bool = False) -> Mapping[str, Any]:
    """GET_BROKER_CONSUME_STATS: the progress of every group of a broker."""
    ext = {"isOrder": "true" if is_order else "false"}
    answer = await admin.ask(address, RequestCode.GET_BROKER_CONSUME_STATS, ext)
    return answer_object(address, answer)


def read_settings(body: bytes) -> dict[str, str]:
    """`key=value` lines, as servers send their settings."""
    found = {}
    for line in body.decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip():
            found[key.strip()] = value.strip()
    return found
