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
_PLAIN = "constants and plain records, part of every test of the folder"
_PROCESS = "commands, tested as processes through their output and exit code"
_SPARK = "thin shells around Spark's interfaces, tested in Spark"
_STEPS = "steps of one algorithm, tested through its entry point"

TESTED_TOGETHER: Final[Mapping[str, tuple[TestedTogether, ...]]] = {
    "broker_core": (TestedTogether("errors protocol_codes", "tests/remoting", _PLAIN),),
    "broker_core/access": (
        TestedTogether(
            "access_gate asking_account name_server_rules permissions",
            "tests/access/test_broker_rules.py",
            "every request code is sent by every kind of account, to brokers and name servers",
        ),
        TestedTogether("credentials", "tests/access/test_account_file.py", _STEPS),
        TestedTogether("remote_addresses", "tests/access/test_accounts.py", _STEPS),
    ),
    "broker_core/broker": (
        TestedTogether("context request_router upkeep", "tests/broker/test_broker.py", _STEPS),
        TestedTogether("retry_owners viewed_record", "tests/broker/pull", _HANDLERS),
        TestedTogether("redelivery timed_service", "tests/broker/scheduled", _STEPS),
    ),
    "broker_core/broker/admin": (
        TestedTogether(
            "broker_settings cleanup stats_view subscription_queries",
            "tests/broker/admin",
            _HANDLERS,
        ),
    ),
    "broker_core/broker/clients": (
        TestedTogether("locks offsets", "tests/broker/clients/test_heartbeat.py", _HANDLERS),
    ),
    "broker_core/broker/metrics": (
        TestedTogether(
            "endpoint observability text", "tests/broker/metrics/test_broker_metrics.py", _STEPS
        ),
    ),
    "broker_core/broker/pop": (
        TestedTogether("pending", "tests/broker/pull/test_pending.py", "with the held pulls"),
        TestedTogether("reads retries", "tests/broker/pop", _STEPS),
    ),
    "broker_core/broker/pull": (
        TestedTogether("local_range", "tests/broker/pull/test_topic_ends.py", _HANDLERS),
    ),
    "broker_core/broker/replication": (
        TestedTogether(
            "master_discovery persisted_roles role",
            "tests/replication",
            "roles and epochs, tested with brokers that copy, stop and are promoted",
        ),
        TestedTogether(
            "metadata_requests registration slave_refusals", "tests/broker/replication", _HANDLERS
        ),
    ),
    "broker_core/broker/scheduled": (
        TestedTogether("timer_intake timer_runs", "tests/broker/scheduled", _STEPS),
    ),
    "broker_core/broker/send": (
        TestedTogether("hooks plan reply", "tests/broker/send/test_processor.py", _HANDLERS),
    ),
    "broker_core/broker/settings": (
        TestedTogether(
            "broker_properties security_settings",
            "tests/broker/settings/test_broker_config.py",
            "parts of the configuration",
        ),
    ),
    "broker_core/broker/tables": (
        TestedTogether("config_attributes named_table", "tests/broker/tables", _STEPS),
        TestedTogether("request_modes", "tests/broker/pop/test_assignment.py", _HANDLERS),
        TestedTogether("system_topics", "tests/broker/tables/test_topic_table.py", _PLAIN),
    ),
    "broker_core/broker/transactions": (
        TestedTogether(
            "half_message open_transactions progress",
            "tests/broker/transactions/test_service.py",
            _STEPS,
        ),
    ),
    "broker_core/cli": (
        TestedTogether(
            "client_session event_loop exit_codes setting_options",
            "tests/cli/test_command_parser.py",
            _PROCESS,
        ),
    ),
    "broker_core/cli/admin": (
        TestedTogether(
            "brokers clusters groups ha messages name_servers offsets registry report "
            "session topics",
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
            "answers brokers groups message_lookup messages names offsets topics",
            "tests/cli/admin/test_command.py",
            "functions around one request each, called by the commands on real brokers",
        ),
    ),
    "broker_core/client/blocking": (
        TestedTogether(
            "admin consumers dead_letters loop_thread sink",
            "tests/client/blocking/test_face.py",
            "made by one generic wrapper, whose test compares all of them with their originals",
        ),
    ),
    "broker_core/client/connection": (
        TestedTogether(
            "broker_requests capabilities group_registry heartbeats lifecycle "
            "name_server_client security",
            "tests/client/connection/test_instance.py",
            _STEPS,
        ),
        TestedTogether("backoff", "tests/client/pull/test_stream.py", _STEPS),
    ),
    "broker_core/client/produce": (
        TestedTogether("failures result", "tests/client/produce/test_engine.py", _STEPS),
        TestedTogether("reply_inbox", "tests/client/produce/test_request_reply.py", _STEPS),
    ),
    "broker_core/client/pull": (
        TestedTogether(
            "consumer queue_offsets queue_reader request",
            "tests/interop/test_our_consumers.py",
            "the consumer, tested against Apache's broker and ours",
        ),
        TestedTogether(
            "reader_requests", "tests/pyspark_rmq/source/offsets/test_offset_lookup.py", _STEPS
        ),
        TestedTogether("message_display", "tests/notebook/test_actions.py", "shown in notebooks"),
    ),
    "broker_core/client/push": (
        TestedTogether(
            "assigned_queue listener_call orderly send_back stats types",
            "tests/client/push/test_concurrent.py",
            _STEPS,
        ),
        TestedTogether(
            "broker_callbacks fetching locking rebalance",
            "tests/client/push/test_consumer.py",
            _STEPS,
        ),
        TestedTogether("local_offsets", "tests/client/push/test_offset_keeper.py", _STEPS),
    ),
    "broker_core/codec/json": (
        TestedTogether("references", "tests/codec/json/test_dialect.py", _STEPS),
    ),
    "broker_core/codec/records": (
        TestedTogether(
            "checkpoint_page column_batch column_names host_address index_record record_reasons "
            "record_scan",
            "tests/codec/records/test_golden_vectors.py",
            "layouts, compared with the worked examples of the format",
        ),
        TestedTogether("arrow_columns", "tests/codec/reference/test_decode.py", _STEPS),
        TestedTogether("staged_block", "tests/codec/wire/bodies/test_sink_messages.py", _STEPS),
    ),
    "broker_core/codec/reference": (
        TestedTogether(
            "batch crc plain_send text",
            "tests/codec/native/test_native_equals_python.py",
            "compared with the native functions",
        ),
    ),
    "broker_core/codec/sql": (
        TestedTogether("java_numbers tokens tree", "tests/codec/sql/test_filter.py", _STEPS),
    ),
    "broker_core/codec/wire": (
        TestedTogether("message_id", "tests/codec/records/test_golden_vectors.py", _STEPS),
        TestedTogether("pop_handle", "tests/broker/pop/test_acknowledgement.py", _HANDLERS),
        TestedTogether("recall_handle", "tests/broker/scheduled/test_timer_message.py", _STEPS),
        TestedTogether("send_request unique_key", "tests/broker/send/test_processor.py", _HANDLERS),
    ),
    "broker_core/codec/wire/bodies": (
        TestedTogether("local_range", "tests/broker/pull/test_topic_ends.py", _HANDLERS),
    ),
    "broker_core/dispatch": (
        TestedTogether("rebuild", "tests/dispatch/test_log_dispatcher.py", _STEPS),
    ),
    "broker_core/embedded": (
        TestedTogether(
            "broker_process directory_removal", "tests/embedded/test_embedded_broker.py", _STEPS
        ),
        TestedTogether("cluster_node", "tests/embedded/test_embedded_cluster.py", _STEPS),
    ),
    "broker_core/flush": (
        TestedTogether("flush_job", "tests/flush/test_flush_service.py", _STEPS),
        TestedTogether("replicated_ack", "tests/store/replication", _STEPS),
    ),
    "broker_core/nameserver": (
        TestedTogether("broker_identity", "tests/nameserver/test_route_table.py", _PLAIN),
        TestedTogether("port_encryption", "tests/cli/test_client_security.py", _PROCESS),
        TestedTogether("settings", "tests/nameserver/test_name_server.py", _STEPS),
    ),
    "broker_core/remoting": (
        TestedTogether(
            "closing peer_address request_dispatch",
            "tests/remoting/test_server.py",
            _STEPS,
        ),
    ),
    "broker_core/remoting/limits": (
        TestedTogether("connection_load", "tests/remoting/limits/test_request_budget.py", _STEPS),
    ),
    "broker_core/remoting/tls": (
        TestedTogether("certificate_watch listener", "tests/remoting/tls/test_context.py", _STEPS),
    ),
    "broker_core/notebook": (
        TestedTogether(
            "cluster display figures operations sending tables topic",
            "tests/notebook/test_actions.py",
            "what a broker and a topic show and return, tested with a broker",
        ),
    ),
    "broker_core/replication": (
        TestedTogether(
            "confirmed_note", "tests/store/replication/test_unreplicated_tail.py", _STEPS
        ),
        TestedTogether("epoch_file", "tests/replication/test_log_epochs.py", _STEPS),
        TestedTogether(
            "follower_session", "tests/replication/test_leader_session.py", "two sides of one link"
        ),
        TestedTogether(
            "message_counts replicated_log", "tests/replication/test_read_ahead.py", _STEPS
        ),
    ),
    "broker_core/runtime": (
        TestedTogether("clock", "tests/fakes", "the seam that tests replace"),
        TestedTogether("descriptors", "tests/runtime/test_accept_loop.py", _STEPS),
        TestedTogether("repeated_check", "tests/access/test_account_file.py", _STEPS),
    ),
    "broker_core/storage/derived": (
        TestedTogether(
            "consume_queue_set queue_files", "tests/storage/derived/test_consume_queue.py", _STEPS
        ),
        TestedTogether("dispatch_checkpoint", "tests/storage/state/test_store_state.py", _STEPS),
    ),
    "broker_core/storage/files": (
        TestedTogether("atomic_file", "tests/storage/state/test_store_state.py", _STEPS),
        TestedTogether(
            "record_locks store_paths", "tests/storage/files/test_posix_file_system.py", _STEPS
        ),
    ),
    "broker_core/storage/log": (
        TestedTogether(
            "segment_file write_buffer_pool", "tests/storage/log/test_segment_sequence.py", _STEPS
        ),
        TestedTogether("append_scan_cache", "tests/storage/log/test_group_writer.py", _STEPS),
        TestedTogether("file_ages", "tests/store/test_retention_runner.py", _STEPS),
    ),
    "broker_core/storage/staging": (
        TestedTogether("staged_run", "tests/storage/staging/test_staging_area.py", _STEPS),
    ),
    "broker_core/storage/state": (
        TestedTogether(
            "checkpoint lock_and_abort_files", "tests/storage/state/test_store_state.py", _STEPS
        ),
        TestedTogether("recovery", "tests/storage/log/test_log_walk.py", _STEPS),
    ),
    "broker_core/store": (
        TestedTogether(
            "disk_errors running_flags scheduler store_stats store_status upkeep visibility",
            "tests/store",
            "internal parts of MessageStore, tested through its public calls",
        ),
    ),
    "broker_core/store/opening": (
        TestedTogether(
            "derived_files derived_opening opening",
            "tests/crash",
            "recovery, tested with crashes and damage at every operation",
        ),
    ),
    "broker_core/store/reads": (
        TestedTogether("log_spans", "tests/store/reads/test_message_reader.py", _STEPS),
        TestedTogether(
            "read_only_store", "tests/pyspark_rmq/source/rows/test_local_reader.py", _STEPS
        ),
    ),
    "broker_core/store/replication": (
        TestedTogether("replica_log", "tests/replication/test_read_ahead.py", _STEPS),
    ),
    "broker_core/store/writes": (
        TestedTogether(
            "acknowledgements argument_checks message put_result queue_counters",
            "tests/store/writes/test_put_checks.py",
            "tested through the put statuses",
        ),
    ),
    "pyspark_rmq": (
        TestedTogether("connections option_values", "tests/pyspark_rmq", _STEPS),
        TestedTogether("data_source", "tests/spark", _SPARK),
    ),
    "pyspark_rmq/testing": (
        TestedTogether("plugin processed stream_test", "tests/spark/test_stream_test.py", _SPARK),
    ),
    "pyspark_rmq/notebook": (TestedTogether("live_progress", "tests/spark/test_watch.py", _SPARK),),
    "pyspark_rmq/prove": (
        TestedTogether(
            "comparison ledger reader_command stored_bodies",
            "tests/pyspark_rmq/prove/test_harness.py",
            _STEPS,
        ),
        TestedTogether(
            "brokers driver kill_plan killing_sink rehearsal traps",
            "tests/spark/test_sink_kills.py",
            "run only around a Spark job that is killed",
        ),
    ),
    "pyspark_rmq/sink": (
        TestedTogether("batch_log batch_writer stream_writer", "tests/spark", _SPARK),
        TestedTogether(
            "guarantee query_state", "tests/pyspark_rmq/sink/test_publication.py", _STEPS
        ),
    ),
    "pyspark_rmq/sink/task": (
        TestedTogether(
            "commit_message json_rows outgoing_columns queue_selection result",
            "tests/pyspark_rmq/sink/task",
            _STEPS,
        ),
    ),
    "pyspark_rmq/source": (
        TestedTogether("batch_reader stream_reader", "tests/spark", _SPARK),
        TestedTogether(
            "compacted_topics filter_check retry",
            "tests/pyspark_rmq/source/test_batch_plan.py",
            _STEPS,
        ),
    ),
    "pyspark_rmq/source/offsets": (
        TestedTogether("topic_discovery", "tests/pyspark_rmq/source/test_source_scale.py", _STEPS),
    ),
    "pyspark_rmq/source/rows": (
        TestedTogether(
            "conditional_rows message_batches",
            "tests/pyspark_rmq/source/rows/test_range_reader.py",
            _STEPS,
        ),
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
