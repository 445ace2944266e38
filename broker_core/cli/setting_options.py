"""Settings on a command line: `KEY=VALUE`, or mqadmin's `-k` and `-v`."""

from __future__ import annotations

import argparse

from broker_core.cli.command_parser import key_and_value
from broker_core.errors import InvalidArgument


def add_setting_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of both forms."""
    parser.add_argument(
        "settings", type=key_and_value, nargs="*", metavar="KEY=VALUE", help="setting to change"
    )
    parser.add_argument("-k", "--key", metavar="KEY", help="mqadmin's form: the key; with -v")
    parser.add_argument("-v", "--value", metavar="VALUE", help="mqadmin's form: the value; with -k")


def given_settings(options: argparse.Namespace) -> dict[str, str]:
    """The given settings; raises `InvalidArgument` if there are none or one is incomplete."""
    settings = dict(options.settings)
    if (options.key is None) != (options.value is None):
        raise InvalidArgument("-k and -v go together; or give KEY=VALUE")
    if options.key is not None:
        settings[options.key] = options.value
    if not settings:
        raise InvalidArgument("nothing to change: give KEY=VALUE")
    return settings
