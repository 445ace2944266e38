"""VIEW_BROKER_STATS_DATA: counts of the last minute, hour and day."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.broker.request_fields import required_text
from broker_core.broker.tables.broker_stats import BrokerStats, WindowStats
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler


class StatsViewProcessor:
    """Answers from `stats`."""

    def __init__(self, *, stats: BrokerStats) -> None:
        self._stats = stats

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.VIEW_BROKER_STATS_DATA: self._view}

    def _view(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        name = required_text(command.ext, "statsName")
        key = required_text(command.ext, "statsKey")
        windows = self._stats.window_stats(name, key)
        if windows is None:
            # Nothing was counted; this code means zero to the tools.
            return command.reply(
                ResponseCode.SYSTEM_ERROR, f"the stats <{name[:64]}> <{key[:255]}> not exist"
            )
        names = ("statsMinute", "statsHour", "statsDay")
        body = {name: _object(window) for name, window in zip(names, windows, strict=True)}
        return command.reply(body=emit_json(body))


def _object(window: WindowStats) -> dict[str, float]:
    return {"avgpt": window.per_call, "sum": window.total, "tps": window.per_second}
