"""Replication requests of administrators: status, and promotion of a slave.

907                 as RocketMQ's `haStatus` asks a master or a slave
REPLICATION_STATUS  the same and more, for our own tools
PROMOTE_BROKER      a slave becomes the master; answered before it does, because the change of role
                    closes every connection
EXPECT_EPOCH        a broker that is about to be promoted names the epoch that it begins
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import BrokerRole, RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

# Numbers above would leave no room for later promotions.
_EPOCH_MAX: Final = 1 << 62
_EPOCH: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_MASTER_ROLES = tuple(role.value for role in BrokerRole if role is not BrokerRole.SLAVE)


class ReplicationAdminProcessor:
    """`status()` is `ReplicationRole.status`; `promote(role)` begins the change and returns.

    `expect_epoch(epoch)` notes a coming epoch and returns the highest known one.
    `tables()` names the state of topics and groups, the same for a master and a slave that has it.
    """

    def __init__(
        self,
        *,
        broker_name: str,
        status: Callable[[], Mapping[str, Any]],
        tables: Callable[[], str],
        promote: Callable[[BrokerRole], object],
        expect_epoch: Callable[[int], int],
    ) -> None:
        self._broker_name = broker_name
        self._status = status
        self._tables = tables
        self._promote = promote
        self._expect_epoch = expect_epoch

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_BROKER_HA_STATUS: self._runtime_info,
            RequestCode.REPLICATION_STATUS: self._replication_status,
            RequestCode.PROMOTE_BROKER: self._promotion,
            RequestCode.EXPECT_EPOCH: self._expected,
        }

    def _replication_status(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        known = {"broker_name": self._broker_name, "tables": self._tables()}
        return command.reply(body=emit_json({**known, **self._status()}))

    def _runtime_info(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        status = self._status()
        is_master = status["role"] != BrokerRole.SLAVE.value
        slaves = status.get("slaves", [])
        end = status["log_end"]
        return command.reply(
            body=emit_json(
                {
                    "master": is_master,
                    "masterCommitLogMaxOffset": end if is_master else 0,
                    "inSyncSlaveNums": sum(1 for slave in slaves if slave["in_sync"]),
                    "haConnectionInfo": [
                        {
                            "addr": slave["address"],
                            "slaveAckOffset": slave["position"],
                            "diff": slave["lag_bytes"],
                            "inSync": slave["in_sync"],
                            "transferredByteInSecond": 0,
                            "transferFromWhere": slave["sent"],
                        }
                        for slave in slaves
                    ],
                    "haClientRuntimeInfo": {
                        "masterAddr": status.get("master", ""),
                        "transferredByteInSecond": 0,
                        "maxOffset": 0 if is_master else end,
                        "lastReadTimestamp": 0,
                        "lastWriteTimestamp": 0,
                        "masterFlushOffset": 0,
                        "isActivated": bool(status.get("is_copying")),
                    },
                }
            )
        )

    def _promotion(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        status = self._status()
        if status["role"] != BrokerRole.SLAVE.value:
            raise InvalidArgument(f"this broker is {status['role']} already")
        text = command.ext.get("brokerRole", BrokerRole.ASYNC_MASTER.value)
        if text not in _MASTER_ROLES:
            raise InvalidArgument(
                f"a slave cannot become {text[:40]!r}: give {' or '.join(_MASTER_ROLES)}"
            )
        self._promote(BrokerRole(text))
        return command.reply(ext={"logEnd": str(status["log_end"])})

    def _expected(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        name, text = command.ext.get("brokerName", ""), command.ext.get("epoch", "")
        if name != self._broker_name:
            raise InvalidArgument(f"this is broker {self._broker_name!r}, not {name!r:.100}")
        if not _EPOCH.fullmatch(text) or int(text) > _EPOCH_MAX:
            raise InvalidArgument(f"epoch={text[:40]!r} is not the number of an epoch")
        return command.reply(ext={"epoch": str(self._expect_epoch(int(text)))})
