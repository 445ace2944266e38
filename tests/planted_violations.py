"""Planted violations, and allowed neighbours, of the rules on our sources.

Read by `test_architecture.py`: a rule must find every text of `VIOLATIONS` and none of
`NEIGHBOURS`. Each entry is the path that the text pretends to have, and the text.
"""

from __future__ import annotations

from tests import duration_rules, import_rules, source_rules
from tests.import_rules import Rule

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * source_rules.FUNCTION_LINES_MAX
LONGEST_FUNCTION = "def f():\n" + "    x = 1\n" * (source_rules.FUNCTION_LINES_MAX - 1)

VIOLATIONS: dict[Rule, list[tuple[str, str]]] = {
    import_rules.import_direction: [
        ("broker_core/storage/a.py", "from broker_core.flush import b"),
        ("broker_core/storage/a.py", "import broker_core.store.message_store"),
        ("broker_core/storage/a.py", "from ..dispatch import b"),
        ("broker_core/storage/a.py", "from .. import flush"),
        ("broker_core/storage/a.py", "def f():\n    import broker_core.flush"),
        ("broker_core/flush/a.py", "from broker_core.dispatch import b"),
        ("broker_core/dispatch/a.py", "from broker_core.flush import b"),
        ("broker_core/codec/a.py", "from broker_core.config import b"),
        ("broker_core/codec/a.py", "from broker_core.runtime import b"),
        ("broker_core/runtime/a.py", "from broker_core.errors import b"),
        ("broker_core/protocol_codes.py", "from broker_core import errors"),
        ("broker_core/errors.py", "from broker_core import codec"),
        ("broker_core/client/a.py", "from broker_core.storage import b"),
        ("broker_core/storage/a.py", "from broker_core import MessageStore"),
        ("broker_core/storage/a.py", "import pyspark_rmq"),
        ("broker_core/replication/a.py", "import broker_core.remoting.client"),
        ("broker_core/drawer/a.py", "x = 1"),
    ],
    import_rules.feature_imports: [
        ("broker_core/broker/pull/a.py", "from broker_core.broker.send.plan import b"),
        ("broker_core/broker/pull/a.py", "from broker_core.broker.pop import b"),
        ("broker_core/broker/pull/a.py", "from ..send.plan import b"),
        ("broker_core/broker/pull/a.py", "import broker_core.broker.send.plan"),
        ("broker_core/broker/pull/a.py", "def f():\n    from broker_core.broker.send import b"),
        ("broker_core/broker/pull/a.py", "from broker_core.broker.broker import Broker"),
        ("broker_core/broker/pull/a.py", "from broker_core.broker import upkeep"),
        ("broker_core/broker/tables/a.py", "from broker_core.broker.pull.pending import b"),
        ("broker_core/broker/tables/a.py", "from broker_core.broker.context import b"),
        ("broker_core/broker/settings/a.py", "from broker_core.broker.tables.new_topics import b"),
        ("broker_core/broker/context.py", "from broker_core.broker.pull.pending import b"),
    ],
    import_rules.foreign_imports: [
        ("broker_core/storage/log/segment_file.py", "import mmap"),
        ("broker_core/storage/log/segment_file.py", "from fcntl import lockf"),
        ("broker_core/storage/a.py", "from pathlib import Path"),
        ("broker_core/storage/a.py", "import shutil"),
        ("broker_core/storage/a.py", "import tempfile"),
        ("broker_core/broker/a.py", "import subprocess"),
        ("broker_core/codec/native/__init__.py", "import pyarrow as pa"),
        ("broker_core/storage/a.py", "from pyarrow.lib import Array"),
        ("broker_core/storage/a.py", "import pyspark"),
        ("pyspark_rmq/options.py", "from pyspark.sql import Row"),
        ("broker_core/codec/a.py", "import logging"),
    ],
    import_rules.data_through_the_seam: [
        ("broker_core/storage/a.py", "import os\nos.fdatasync(3)"),
        ("broker_core/storage/a.py", "import os as system"),
        ("broker_core/storage/a.py", "import os.path"),
        ("broker_core/storage/a.py", "from os import pread"),
        ("broker_core/storage/a.py", "from os.path import join"),
        ("broker_core/storage/a.py", "with open('x') as f: pass"),
        ("broker_core/storage/a.py", "import io\nio.open('x')"),
    ],
    source_rules.function_length: [
        ("broker_core/a.py", LONG_FUNCTION),
        ("tests/a.py", "async " + LONG_FUNCTION),
    ],
    source_rules.module_docstring: [
        ("broker_core/a.py", "x = 1"),
    ],
    source_rules.no_real_sleep: [
        ("broker_core/a.py", "import time\ntime.sleep(1)"),
        ("tests/a.py", "from time import sleep"),
        ("tests/a.py", "import asyncio\nasyncio.sleep(0.1)"),
    ],
    source_rules.no_disguised_sleep: [
        (
            "broker_core/a.py",
            "async def f():\n    never = loop.create_future()\n"
            "    await asyncio.wait((never,), timeout=1)",
        ),
        (
            "pyspark_rmq/a.py",
            "async def f():\n    never: Future = loop.create_future()\n    while True:\n"
            "        await asyncio.wait_for(never, 1)",
        ),
    ],
    source_rules.no_code_from_data: [
        ("broker_core/a.py", "import pickle"),
        ("broker_core/a.py", "from marshal import loads"),
        ("tests/a.py", "import shelve"),
        ("tools/a.py", "import yaml"),
        ("broker_core/a.py", "def f():\n    import ctypes.util"),
        ("pyspark_rmq/a.py", "eval('1')"),
        ("pyspark_rmq/a.py", "exec('1')"),
        ("pyspark_rmq/a.py", "__import__('x')"),
        ("broker_core/a.py", "numpy.load(f, allow_pickle=True)"),
    ],
    source_rules.no_blind_except: [
        ("broker_core/a.py", "try:\n    f()\nexcept:\n    pass"),
        ("broker_core/a.py", "try:\n    f()\nexcept Exception:\n    g()"),
        ("tests/a.py", "try:\n    f()\nexcept (OSError, BaseException):\n    g()"),
    ],
    source_rules.no_private_access: [
        ("broker_core/store/a.py", "def f(store):\n    return store._open_parts()"),
        ("broker_core/store/a.py", "class A:\n    def f(self):\n        return self.log._end"),
        ("pyspark_rmq/a.py", "def f(reader):\n    reader._limit = 1"),
        ("broker_core/broker/a.py", "from broker_core.store.message_store import _name"),
        ("broker_core/broker/a.py", "def f(store):\n    return getattr(store, '_log')"),
    ],
    source_rules.no_hand_formatting: [
        ("broker_core/store/a.py", "f(\n    1, 2,\n)  # fmt: skip"),
        ("broker_core/store/a.py", "(a,\n b) = c  # fmt: skip"),
        ("broker_core/store/a.py", "A = f(\n    1, 2,\n)  # fmt: skip"),
        ("pyspark_rmq/a.py", "# fmt: off\nx = 1"),
    ],
    source_rules.no_untyped_wiring: [
        ("broker_core/broker/a.py", "class A:\n    def __init__(self, **tables: Any): ..."),
        ("broker_core/store/a.py", "def build_parts(config, **named): ..."),
    ],
    source_rules.no_setting_by_name: [
        ("broker_core/broker/a.py", "setattr(broker, name, value)"),
        ("broker_core/broker/a.py", "broker.__dict__.update(parts)"),
        ("pyspark_rmq/a.py", "globals()[name] = 1"),
    ],
    source_rules.no_late_binding: [
        ("broker_core/a.py", "class A:\n    def f(self):\n        self.gate.on_refusal = self.f"),
        ("broker_core/a.py", "staging.on_growth = lambda size: None"),
        ("pyspark_rmq/a.py", "other.hook = partial(f, 1) if other else None"),
    ],
    source_rules.no_print: [
        ("broker_core/a.py", "print(1)"),
        ("tests/a.py", "print(1)"),
    ],
    source_rules.no_hidden_clock: [
        ("broker_core/a.py", "from datetime import datetime\ndatetime.now()"),
        ("broker_core/a.py", "import datetime\ndatetime.datetime.utcnow()"),
        ("broker_core/flush/a.py", "import time\ntime.monotonic()"),
        ("broker_core/flush/a.py", "from time import time_ns"),
    ],
    duration_rules.no_asserted_duration: [
        ("tests/a.py", "import time\ns = time.monotonic()\nassert time.monotonic() - s < 2"),
        ("tests/a.py", "import time\nt = time.process_time() - s\nassert 0 < t < 0.5"),
        ("tests/a.py", "assert 1.0 >= perf_counter() - started"),
        (
            "tests/a.py",
            "async def f():\n    began = loop.time()\n    longest = 0.0\n"
            "    longest = max(longest, loop.time() - began)\n    return longest\n"
            "async def g():\n    waited = await f()\n    assert waited < 0.25",
        ),
        (
            "tests/a.py",
            "clock, took = SystemClock(), []\ntook.append(clock.monotonic() - s)\n"
            "assert took[-1] < 5",
        ),
        ("tests/a.py", "clock = SystemClock()\nlate = clock.wall_ms() - due\nassert late <= 500"),
        (
            "tests/a.py",
            "import time\nend = time.monotonic() + 3\nassert time.monotonic() < end",
        ),
        ("tests/a.py", "self.spent = time.time() - s\nassert all(x.spent < 9 for x in xs)"),
    ],
}

NEIGHBOURS: dict[Rule, list[tuple[str, str]]] = {
    import_rules.import_direction: [
        ("broker_core/storage/a.py", "from broker_core.codec import b"),
        ("broker_core/storage/a.py", "from .segment_file import b"),
        ("broker_core/storage/a.py", "from . import b"),
        ("broker_core/storage/a.py", "from broker_core import errors"),
        ("broker_core/store/a.py", "from broker_core.flush import b"),
        ("broker_core/__init__.py", "from broker_core.store import b"),
    ],
    import_rules.feature_imports: [
        ("broker_core/broker/pull/a.py", "from broker_core.broker.context import BrokerContext"),
        ("broker_core/broker/pull/a.py", "from broker_core.broker.request_fields import b"),
        ("broker_core/broker/pull/a.py", "from broker_core.broker.tables.topic_table import b"),
        ("broker_core/broker/pull/a.py", "from broker_core.broker.pull.pending import b"),
        ("broker_core/broker/pull/a.py", "from broker_core.client.pull import b"),
        ("broker_core/broker/pop/a.py", "from broker_core.broker.pull.processor import b"),
        ("broker_core/broker/tables/a.py", "from broker_core.broker.request_fields import b"),
        ("broker_core/broker/context.py", "from broker_core.broker.tables.new_topics import b"),
        ("broker_core/broker/broker.py", "from broker_core.broker.pull.feature import b"),
        ("broker_core/broker/upkeep.py", "from broker_core.broker.sink.batches import b"),
        ("tests/broker/a.py", "from broker_core.broker.pull.feature import b"),
    ],
    import_rules.foreign_imports: [
        ("broker_core/storage/files/posix_file_system.py", "import mmap, fcntl"),
        ("broker_core/codec/records/arrow_columns.py", "import pyarrow"),
        ("tests/a.py", "import mmap, shutil, time, pyspark"),
        ("pyspark_rmq/data_source.py", "import pyspark"),
    ],
    import_rules.data_through_the_seam: [
        ("broker_core/a.py", "import os\nos.environ.get('RMQ_CODEC')"),
        ("broker_core/a.py", "from os import getpid"),
        ("broker_core/a.py", "file_system.open('commitlog')"),
        ("broker_core/storage/files/posix_file_system.py", "import os\nos.open('x', 0)"),
    ],
    source_rules.function_length: [
        ("broker_core/a.py", LONGEST_FUNCTION),
        ("broker_core/a.py", LONG_FUNCTION.replace("f()", "build()")),
        ("broker_core/a.py", LONG_FUNCTION.replace("f()", "__init__()")),
    ],
    source_rules.module_docstring: [
        ("broker_core/__init__.py", ""),
    ],
    source_rules.no_real_sleep: [
        ("tests/a.py", "import asyncio\nasyncio.sleep(0)"),
        ("tests/a.py", "clock.sleep(1)"),
        ("examples/a.py", "import time\ntime.sleep(1)"),
    ],
    source_rules.no_disguised_sleep: [
        (
            "broker_core/a.py",
            "async def f():\n    done = loop.create_future()\n    waiters.append(done)\n"
            "    await asyncio.wait((done,), timeout=1)",
        ),
        ("broker_core/a.py", "async def f():\n    await sleep(1)"),
    ],
    source_rules.no_code_from_data: [
        ("broker_core/a.py", "model.eval(1)"),
        ("broker_core/a.py", "numpy.load(f, allow_pickle=False)"),
    ],
    source_rules.no_blind_except: [
        ("broker_core/a.py", "try:\n    f()\nexcept BaseException:\n    g()\n    raise"),
        ("broker_core/a.py", "try:\n    f()\nexcept OSError:\n    g()"),
        ("broker_core/runtime/worker.py", "try:\n    f()\nexcept Exception:\n    g()"),
    ],
    source_rules.no_private_access: [
        ("broker_core/a.py", "class A:\n    def f(self):\n        self._x = self._y"),
        ("broker_core/a.py", "class A:\n    _x = 1\ndef f(a):\n    return a._x"),
        ("broker_core/a.py", "def f(row):\n    return row._replace(a=1)"),
        ("broker_core/a.py", "class A(B):\n    def _f(self):\n        super()._f()"),
        ("tests/a.py", "def f(store):\n    return store._log"),
        ("broker_core/a.py", "def f(config, name):\n    return getattr(config, name)"),
        ("broker_core/a.py", "def f(fcntl):\n    return getattr(fcntl, 'F_FULLFSYNC', None)"),
    ],
    source_rules.no_hand_formatting: [
        ("broker_core/a.py", "A: Final = (\n    1, 2,\n    3, 4,\n)  # fmt: skip"),
        ("broker_core/a.py", "class A:\n    __slots__ = ('a',\n    'b')  # fmt: skip"),
        ("broker_core/cli/a.py", "f(\n    1, 2,\n)  # fmt: skip"),
        ("tests/a.py", "f(\n    1, 2,\n)  # fmt: skip"),
    ],
    source_rules.no_untyped_wiring: [
        ("broker_core/store/a.py", "def check_numbers(**numbers: Any): ..."),
        ("broker_core/client/a.py", "class A:\n    def __init__(self, **options: Any): ..."),
        ("broker_core/broker/a.py", "class A:\n    def __init__(self, *, store: Store): ..."),
    ],
    source_rules.no_setting_by_name: [
        ("broker_core/a.py", "object.__setattr__(self, 'name', 1)"),
        ("broker_core/a.py", "class A:\n    def f(self):\n        return {**self.__dict__}"),
        ("broker_core/__init__.py", "globals()[name] = 1"),
    ],
    source_rules.no_late_binding: [
        ("broker_core/a.py", "class A:\n    def f(self):\n        self.hook = self.f"),
        ("broker_core/a.py", "def f(): ...\nlease.deadline = f()"),
        ("broker_core/fault_injection/a.py", "link.hook = lambda: None"),
        ("tests/a.py", "other.hook = lambda: None"),
    ],
    source_rules.no_print: [
        ("broker_core/cli/a.py", "print(1)"),
        ("benchmarks/a.py", "print(1)"),
    ],
    source_rules.no_hidden_clock: [
        ("broker_core/a.py", "datetime.fromtimestamp(1)"),
        ("broker_core/a.py", "clock.now()"),
        ("broker_core/a.py", "import time\ntime.localtime(seconds)"),
        ("broker_core/runtime/clock.py", "import time\ntime.monotonic()"),
    ],
    duration_rules.no_asserted_duration: [
        ("tests/a.py", "clock = ManualClock()\nassert clock.monotonic() - started < 2"),
        ("tests/a.py", "import time\ns = time.monotonic()\nassert time.monotonic() - s > 0.9"),
        ("tests/a.py", "import time\nend = time.monotonic() + 300\nassert time.monotonic() < end"),
        ("tests/a.py", "took = time.monotonic() - s\nlines.append(f'{took} s')\nassert lines"),
        ("tests/a.py", "took.append(time.monotonic() - s)\nassert len(took) < 5"),
        ("benchmarks/a.py", "import time\nassert time.monotonic() - s < 2"),
    ],
}
