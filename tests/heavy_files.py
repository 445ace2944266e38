"""Files of tests that take long, the longest first: a run of several processes begins with them.

A file stays in one process, because its tests share what they start. One of minutes that came last
would be all that runs for minutes. xdist's own order, by the number of tests, does just that: the
longest tests are in files of a few.

Seconds on two cores, of which only the order matters: measured for `crash`, `pyspark_rmq` and
`replication`, estimated for the others. `make test` prints the slowest tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SECONDS: Final[Mapping[str, int]] = {
    "tests/spark/test_sink_kills.py": 240,
    "tests/interop/test_java_clients.py": 220,
    "tests/crash/test_crash_states.py": 148,
    "tests/interop/test_mqadmin.py": 120,
    "tests/spark/test_sink.py": 110,
    "tests/crash/test_recovery_crashes.py": 94,
    "tests/interop/test_security.py": 90,
    "tests/spark/test_stream_read.py": 90,
    "tests/interop/test_our_consumers.py": 90,
    "tests/crash/test_errno_loops.py": 83,
    "tests/spark/test_replay.py": 80,
    "tests/interop/test_apache_pairs.py": 75,
    "tests/interop/test_replication.py": 60,
    "tests/replication/test_simulation.py": 60,
    "tests/spark/test_apache_brokers.py": 55,
    "tests/crash/test_corruption_flips.py": 55,
    "tests/spark/test_batch_read.py": 50,
    "tests/spark/test_protected.py": 45,
    "tests/spark/test_deduplicate.py": 45,
    "tests/crash/test_sink_batches.py": 43,
    "tests/spark/test_source_tables.py": 40,
    "tests/test_examples.py": 40,
    "tests/crash/test_transactions.py": 40,
    "tests/crash/test_replication_kills.py": 36,
    "tests/crash/test_timer_delivery.py": 35,
    "tests/crash/test_real_kills.py": 30,
    "tests/crash/test_sink_kills.py": 29,
    "tests/crash/test_corruption_fuzz.py": 27,
    "tests/crash/test_sink_spans.py": 27,
    "tests/pyspark_rmq/test_sink_apache.py": 24,
    "tests/pyspark_rmq/test_holes.py": 23,
    "tests/crash/test_planted_bugs.py": 20,
    "tests/pyspark_rmq/test_deduplicate.py": 20,
    "tests/pyspark_rmq/test_key_index.py": 20,
    "tests/pyspark_rmq/test_local_reads.py": 16,
    "tests/crash/test_real_slow_disk.py": 14,
    "tests/replication/test_promotion.py": 14,
    "tests/crash/test_delayed_delivery.py": 13,
    "tests/pyspark_rmq/test_sink_tasks.py": 13,
    "tests/crash/test_real_overload.py": 12,
    "tests/crash/test_real_syscall_errors.py": 11,
    "tests/crash/test_corruption_lengths.py": 10,
    "tests/crash/test_pop_kills.py": 10,
    "tests/crash/test_corruption_pages.py": 9,
}


def weight(name: str) -> int:
    """Of a test, by its file; what is not listed comes last, in the usual order."""
    return SECONDS.get(name.partition("::")[0], 0)
