"""`rmq admin namesrv …` and `kv …`: settings of name servers and their key-value table."""

from __future__ import annotations

import argparse
from typing import Final

from broker_core.cli.admin.registry import AdminVerb
from broker_core.cli.admin.report import Facts, Note, Report, Table
from broker_core.cli.admin.session import AdminSession, topic_option
from broker_core.cli.setting_options import add_setting_options, given_settings
from broker_core.client.admin.names import (
    ORDER_TOPICS,
    change_name_servers,
    delete_kv,
    get_kv,
    list_kv,
    name_server_settings,
    put_kv,
)
from broker_core.errors import InvalidArgument


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """Only those that every command has."""


async def _config(session: AdminSession, _: argparse.Namespace) -> Report:
    found = await name_server_settings(session.admin)
    return [Facts(dict(sorted(values.items())), address) for address, values in found.items()]


CONFIG: Final = AdminVerb(_no_arguments, _config, "  rmq admin namesrv config")


def _set_arguments(parser: argparse.ArgumentParser) -> None:
    add_setting_options(parser)


async def _set(session: AdminSession, options: argparse.Namespace) -> Report:
    settings = given_settings(options)
    await change_name_servers(session.admin, settings)
    return [Note(f"changed on {', '.join(session.admin.client.name_servers.addresses)}")]


SET: Final = AdminVerb(_set_arguments, _set, "  rmq admin namesrv set orderMessageEnable=true")


def _kv_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--namespace", required=True, help="the namespace of the key")
    parser.add_argument("-k", "--key", required=True, help="the key")


def _put_arguments(parser: argparse.ArgumentParser) -> None:
    _kv_arguments(parser)
    parser.add_argument("-v", "--value", required=True, help="the value")


async def _put(session: AdminSession, options: argparse.Namespace) -> Report:
    await put_kv(session.admin, options.namespace, options.key, options.value)
    return [Note(f"{options.namespace}/{options.key} is set")]


async def _delete(session: AdminSession, options: argparse.Namespace) -> Report:
    await delete_kv(session.admin, options.namespace, options.key)
    return [Note(f"{options.namespace}/{options.key} is deleted")]


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--namespace", required=True, help="the namespace")


async def _list(session: AdminSession, options: argparse.Namespace) -> Report:
    found = await list_kv(session.admin, options.namespace)
    return [Table(("key", "value"), sorted(found.items()))]


KV_PUT: Final = AdminVerb(_put_arguments, _put, "  rmq admin kv put -s app -k region -v eu")
KV_DELETE: Final = AdminVerb(
    _kv_arguments,
    _delete,
    "  rmq admin kv delete -s app -k region",
    lambda options: f"delete {options.namespace}/{options.key}",
)
KV_LIST: Final = AdminVerb(_list_arguments, _list, "  rmq admin kv list -s ORDER_TOPIC_CONFIG")


def _order_arguments(parser: argparse.ArgumentParser) -> None:
    topic_option(parser)
    parser.add_argument(
        "-m", "--method", choices=("get", "put", "delete"), default="get", metavar="WHAT",
        help="get, put or delete (default: get)",
    )  # fmt: skip
    parser.add_argument("-v", "--value", metavar="TEXT", help="like broker-a:4;broker-b:4")


async def _order(session: AdminSession, options: argparse.Namespace) -> Report:
    if options.method == "put":
        if not options.value:
            raise InvalidArgument("put needs --value, like broker-a:4;broker-b:4")
        await put_kv(session.admin, ORDER_TOPICS, options.topic, options.value)
    elif options.method == "delete":
        await delete_kv(session.admin, ORDER_TOPICS, options.topic)
    value = await get_kv(session.admin, ORDER_TOPICS, options.topic)
    return [Table(("topic", "order"), [(options.topic, value)])]


ORDER: Final = AdminVerb(
    _order_arguments,
    _order,
    """\
  rmq admin topic order -t orders
  rmq admin updateOrderConf -t orders -m put -v broker-a:4""",
)
