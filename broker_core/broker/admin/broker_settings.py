"""Settings of the running broker: GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.broker.settings.broker_properties import FIXED_PROPERTIES
from broker_core.broker.settings.live_settings import CHANGED_KEY, LiveSettings
from broker_core.broker.settings.property_file import parse_properties, property_lines
from broker_core.codec.wire.bodies.topic_config import encode_data_version
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, InvalidConfig
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

# Three times the size of all settings.
BODY_SIZE_MAX: Final = 64 << 10


class BrokerSettingsProcessor:
    """Answers from `settings`."""

    def __init__(self, *, settings: LiveSettings) -> None:
        self._settings = settings

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_BROKER_CONFIG: self._get,
            RequestCode.UPDATE_BROKER_CONFIG: self._update,
        }

    def _get(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        # Fixed settings are included: tools of 4.9 fail when a key is missing.
        fixed = {key: value for key, (value, _) in FIXED_PROPERTIES.items()}
        shown = {**fixed, **self._settings.config.as_properties()}
        if self._settings.changed:
            shown[CHANGED_KEY] = ",".join(self._settings.changed)
        return command.reply(ext=self._version(), body=property_lines(shown).encode())

    def _update(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        if len(command.body) > BODY_SIZE_MAX:
            raise InvalidArgument(
                f"settings of {len(command.body)} bytes; give at most {BODY_SIZE_MAX}"
            )
        try:
            text = bytes(command.body).decode("utf-8")
            properties = parse_properties(text, "this request")
        except UnicodeDecodeError:
            raise InvalidArgument("settings must be lines key=value in UTF-8") from None
        except InvalidConfig as error:
            raise InvalidArgument(str(error)) from None
        self._settings.change(properties)
        return command.reply(ext=self._version())

    def _version(self) -> dict[str, str]:
        return {"version": encode_data_version(self._settings.version).decode()}
