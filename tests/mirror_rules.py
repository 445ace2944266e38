"""Every module has a test file at the mirrored path, or is listed here with the reason.

    broker_core/broker/pop/ledger.py    tests/broker/pop/test_ledger.py
    pyspark_rmq/columns.py              tests/pyspark_rmq/test_columns.py

A new module needs a test file of its own. The list names modules that have none because one test
covers several of them; it must not grow without a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple

# File name -> why no module of this name has a test file.
EXEMPT_NAMES: Final[Mapping[str, str]] = {
    "__init__.py": "package marker, or names that tests/test_public_names.py compares",
    "__main__.py": "starts the command that tests run as a process",
    "feature.py": "wiring; tests/broker/test_feature.py checks the order of features",
}


class TestedTogether(NamedTuple):
    """Modules of one folder that share tests."""

    __test__ = False

    modules: str
    """Names without `.py`, separated by spaces."""
    tests: str
    """The file or folder that tests them."""
    why: str


_HANDLERS = "request handlers and what they share, tested with requests over a socket"
_PROCESS = "commands, tested as processes through their output and exit code"
_SPARK = "thin shells around Spark's interfaces, tested in Spark"
_STEPS = "steps of one algorithm, tested through its entry point"

TESTED_TOGETHER: Final[Mapping[str, tuple[TestedTogether, ...]]] = {
    "broker_core/access": (
        TestedTogether(
            "access_gate name_server_rules",
            "tests/access/test_broker_rules.py",
            "every request code is sent by every kind of account, to brokers and name servers",
        ),
    ),
    "broker_core/fault_injection": (
        TestedTogether(
            "disk network requests",
            "tests/embedded/test_faults.py",
            "each fault is caused in a broker process and felt by a client",
        ),
    ),
    "broker_core/broker": (
        TestedTogether("context upkeep", "tests/broker/test_broker.py", _STEPS),
    ),
    "broker_core/broker/admin": (
        TestedTogether(
            "broker_settings cleanup stats_view subscription_queries",
            "tests/broker/admin",
            _HANDLERS,
        ),
    ),
    "broker_core/broker/metrics": (
        TestedTogether("observability", "tests/broker/metrics/test_broker_metrics.py", _STEPS),
    ),
    "broker_core/broker/pop": (TestedTogether("reads retries", "tests/broker/pop", _STEPS),),
    "broker_core/broker/replication": (
        TestedTogether(
            "master_discovery role",
            "tests/replication",
            "roles and epochs, tested with brokers that copy, stop and are promoted",
        ),
        TestedTogether("registration", "tests/broker/replication", _HANDLERS),
    ),
    "broker_core/broker/scheduled": (
        TestedTogether("timer_intake", "tests/broker/scheduled", _STEPS),
    ),
    "broker_core/broker/send": (
        TestedTogether("reply", "tests/broker/send/test_processor.py", _HANDLERS),
    ),
    "broker_core/cli": (
        TestedTogether(
            "client_session event_loop exit_codes setting_options",
            "tests/cli/test_command_parser.py",
            _PROCESS,
        ),
        TestedTogether("cluster_options", "tests/cli/profiles/test_command.py", _STEPS),
    ),
    "broker_core/cli/admin": (
        TestedTogether(
            "brokers clusters groups ha messages name_servers offsets session topics",
            "tests/cli/admin/test_command.py",
            _PROCESS,
        ),
    ),
    "broker_core/cli/messages": (
        TestedTogether(
            "consume group_reader line_sender outlet topic_reader",
            "tests/cli/messages/test_produce.py",
            _PROCESS,
        ),
    ),
    "broker_core/cli/servers": (
        TestedTogether(
            "cluster namesrv standalone", "tests/cli/servers/test_process_life.py", _PROCESS
        ),
    ),
    "broker_core/client/admin": (
        TestedTogether(
            "brokers groups message_lookup messages names offsets topics",
            "tests/cli/admin/test_command.py",
            "functions around one request each, called by the commands on real brokers",
        ),
    ),
    "broker_core/client/blocking": (
        TestedTogether(
            "admin consumers dead_letters",
            "tests/client/blocking/test_face.py",
            "made by one generic wrapper, whose test compares all of them with their originals",
        ),
    ),
    "broker_core/client/connection": (
        TestedTogether("heartbeats", "tests/client/connection/test_instance.py", _STEPS),
    ),
    "broker_core/client/produce": (
        TestedTogether("result", "tests/client/produce/test_engine.py", _STEPS),
    ),
    "broker_core/client/pull": (
        TestedTogether(
            "consumer",
            "tests/interop/test_our_consumers.py",
            "the consumer, tested against Apache's broker and ours",
        ),
        TestedTogether(
            "reader_requests", "tests/pyspark_rmq/source/offsets/test_offset_lookup.py", _STEPS
        ),
    ),
    "broker_core/client/push": (
        TestedTogether(
            "broker_callbacks fetching rebalance", "tests/client/push/test_consumer.py", _STEPS
        ),
    ),
    "broker_core/codec/records": (
        TestedTogether(
            "column_names",
            "tests/codec/records/test_golden_vectors.py",
            "layouts, compared with the worked examples of the format",
        ),
    ),
    "broker_core/codec/reference": (
        TestedTogether(
            "plain_send",
            "tests/codec/wire/test_plain_send.py",
            "each test runs with the native function and its twin",
        ),
    ),
    "broker_core/embedded": (
        TestedTogether(
            "broker_process directory_removal", "tests/embedded/test_embedded_broker.py", _STEPS
        ),
        TestedTogether("cluster_node", "tests/embedded/test_embedded_cluster.py", _STEPS),
    ),
    "broker_core/remoting/tls": (
        TestedTogether("certificate_watch listener", "tests/remoting/tls/test_context.py", _STEPS),
    ),
    "broker_core/notebook": (
        TestedTogether(
            "cluster display figures operations sending topic",
            "tests/notebook/test_actions.py",
            "what a broker and a topic show and return, tested with a broker",
        ),
    ),
    "broker_core/replication": (
        TestedTogether("replicated_log", "tests/replication/test_read_ahead.py", _STEPS),
    ),
    "broker_core/store": (
        TestedTogether(
            "store_status upkeep",
            "tests/store",
            "internal parts of MessageStore, tested through its public calls",
        ),
    ),
    "broker_core/store/opening": (
        TestedTogether(
            "derived_opening opening",
            "tests/crash",
            "recovery, tested with crashes and damage at every operation",
        ),
    ),
    "pyspark_rmq": (
        TestedTogether("connections", "tests/pyspark_rmq", _STEPS),
        TestedTogether("data_source", "tests/spark", _SPARK),
    ),
    "pyspark_rmq/testing": (
        TestedTogether("stream_test", "tests/spark/test_stream_test.py", _SPARK),
    ),
    "pyspark_rmq/prove": (
        TestedTogether(
            "brokers driver killing_sink rehearsal",
            "tests/spark/test_sink_kills.py",
            "run only around a Spark job that is killed",
        ),
    ),
    "pyspark_rmq/sink": (TestedTogether("batch_writer stream_writer", "tests/spark", _SPARK),),
    "pyspark_rmq/source": (
        TestedTogether("batch_reader stream_reader", "tests/spark", _SPARK),
        TestedTogether(
            "compacted_topics filter_check", "tests/pyspark_rmq/source/test_batch_plan.py", _STEPS
        ),
    ),
    "pyspark_rmq/source/offsets": (
        TestedTogether("topic_discovery", "tests/pyspark_rmq/source/test_source_scale.py", _STEPS),
    ),
}


def missing_tests(
    paths: Collection[str],
    listed: Mapping[str, tuple[TestedTogether, ...]] = TESTED_TOGETHER,
) -> Iterator[str]:
    """Modules without a test, and entries of the list that are wrong. `paths` are all files."""
    known = set(paths)
    folders = {parent.as_posix() for path in known for parent in PurePosixPath(path).parents}
    unused = {(folder, name) for folder, rows in listed.items() for name in _names(rows)}
    for folder, rows in listed.items():
        for row in rows:
            if row.tests not in known | folders:
                yield f"{folder}:1: {row.tests} is not there"
    for path in sorted(known):
        if not path.startswith(("broker_core/", "pyspark_rmq/")) or not path.endswith(".py"):
            continue
        module = PurePosixPath(path)
        place = module.parent.as_posix(), module.stem
        if mirrored(path) in known:
            if place in unused:
                yield f"{path}:1: is listed in tests/mirror_rules.py, but has {mirrored(path)}"
        elif module.name not in EXEMPT_NAMES and place not in unused:
            yield f"{path}:1: has no test; expected {mirrored(path)}"
        unused.discard(place)
    for folder, name in sorted(unused):
        yield f"{folder}:1: {name}.py is listed in tests/mirror_rules.py, but is not there"


def mirrored(path: str) -> str:
    """Where the test file of a module belongs."""
    module = PurePosixPath(path.removeprefix("broker_core/"))
    return PurePosixPath("tests", module.with_name(f"test_{module.name}")).as_posix()


def _names(rows: tuple[TestedTogether, ...]) -> Iterator[str]:
    for row in rows:
        yield from row.modules.split()
