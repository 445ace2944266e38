"""Reads: corrected offsets, limits, filters, hot and cold, columns, times, keys, deletion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from broker_core.codec.native import java_hash
from broker_core.codec.records import column_names
from broker_core.codec.records.arrow_columns import to_arrow
from broker_core.errors import CorruptRecord, InvalidArgument
from broker_core.protocol_codes import FlushDiskType, GetStatus
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.codec.codec_backends import batch_of, column
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import bodies, new_disk, numbered, open_small, put_all, run_of

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}
HOUR_MS = 3_600_000


def stored(
    count: int = 20, size: int = 0, **settings: object
) -> tuple[MessageStore, SimulatedDisk]:
    disk = new_disk()
    store = open_small(disk, **settings)
    put_all(store, "T", numbered(count, size))
    return store, disk


class TestCorrectedOffsets:
    """The table of the specification, row by row."""

    @pytest.mark.parametrize("offset", [0, 1, 99, -1])
    def test_no_such_queue(self, offset: int) -> None:
        store, _ = stored()
        for topic, queue_id in (("T", 1), ("U", 0)):
            result = store.get(topic, queue_id, offset)
            assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
            assert (result.min_offset, result.max_offset) == (0, 0)

    @pytest.mark.parametrize(
        ("offset", "status", "next_offset"),
        [
            (-1, GetStatus.OFFSET_TOO_SMALL, 9),
            (0, GetStatus.OFFSET_TOO_SMALL, 9),
            (8, GetStatus.OFFSET_TOO_SMALL, 9),
            (9, GetStatus.FOUND, 12),
            (11, GetStatus.FOUND, 12),
            (12, GetStatus.OFFSET_OVERFLOW_ONE, 12),
            (13, GetStatus.OFFSET_OVERFLOW_BADLY, 12),
            (1 << 40, GetStatus.OFFSET_OVERFLOW_BADLY, 12),
        ],
    )
    def test_around_the_readable_range(
        self, offset: int, status: GetStatus, next_offset: int
    ) -> None:
        store, disk = stored(12, 4_000)
        disk.clock.advance(72 * HOUR_MS)
        store.clean(manual=True)
        assert store.offsets("T", 0) == (9, 12)
        result = store.get("T", 0, offset)
        assert (result.status, result.next_offset) == (status, next_offset)
        assert (result.min_offset, result.max_offset) == (9, 12)

    def test_a_queue_without_messages(self) -> None:
        """Such a queue exists only between its first append and its dispatch."""
        store, _ = stored()
        store._opened.queues.queue((b"Empty", 0))
        for offset in (0, 5, -5):
            result = store.get("Empty", 0, offset)
            assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)

    def test_everything_filtered(self) -> None:
        store, _ = stored(20)
        result = store.get("T", 0, 3, tag_codes={5})
        assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 20)
        assert result.message_count == 0

    def test_found(self) -> None:
        store, _ = stored(20)
        result = store.get("T", 0, 3, 5)
        assert (result.status, result.next_offset, result.message_count) == (GetStatus.FOUND, 8, 5)
        assert [message.body for message in result.messages()] == numbered(5, first=3)
        assert [message.queue_offset for message in result.messages()] == [3, 4, 5, 6, 7]


class TestLimits:
    def test_count(self) -> None:
        store, _ = stored(100)
        assert store.get("T", 0, 0).message_count == 32
        for count in (1, 7, 64, 100, 1_000):
            assert store.get("T", 0, 0, count).message_count == min(count, 100)

    def test_size_but_always_one(self) -> None:
        store, _ = stored(20, 1_000)
        record = len(store.get("T", 0, 0, 1).records)
        for size, expected in (
            (0, 1), (1, 1), (record, 1), (2 * record - 1, 1), (2 * record, 2), (5 * record + 3, 5),
        ):  # fmt: skip
            result = store.get("T", 0, 2, size_max=size)
            assert result.message_count == expected
            assert result.next_offset == 2 + expected

    def test_the_default_size_comes_from_the_configuration(self) -> None:
        store, _ = stored(20, 1_000, read_size_max=3_500)
        assert store.get("T", 0, 0).message_count == 3

    def test_visited_units_under_a_filter(self) -> None:
        store, _ = stored(50, visited_units_max=10)
        result = store.get("T", 0, 0, 5, tag_codes={1})
        assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)


class TestTags:
    def tagged(self) -> MessageStore:
        store = open_small(new_disk())
        for number, tag in enumerate(["A", "B", "", "A", "polygenelubricants", "A", "B", "中文"]):
            store.append(Message("T", b"%d" % number, tags=tag))
        store.flush()
        return store

    @pytest.mark.parametrize(
        ("tags", "found"),
        [
            (["A"], "035"),
            (["B"], "16"),
            (["A", "B"], "01356"),
            (["polygenelubricants"], "4"),
            (["中文"], "7"),
            (["C"], ""),
            ([], ""),
        ],
    )
    def test_by_hash(self, tags: list[str], found: str) -> None:
        store = self.tagged()
        codes = {java_hash(tag.encode()) for tag in tags}
        result = store.get("T", 0, 0, tag_codes=codes)
        assert [message.body.decode() for message in result.messages()] == list(found)
        assert result.next_offset == 8
        assert java_hash(b"polygenelubricants") == -(1 << 31)

    def test_the_next_offset_skips_what_was_filtered(self) -> None:
        store = self.tagged()
        code = {java_hash(b"A")}
        first = store.get("T", 0, 0, 1, tag_codes=code)
        assert [message.body for message in first.messages()] == [b"0"]
        second = store.get("T", 0, first.next_offset, 1, tag_codes=code)
        assert [message.body for message in second.messages()] == [b"3"]
        third = store.get("T", 0, second.next_offset, 1, tag_codes=code)
        assert [message.body for message in third.messages()] == [b"5"]

    def test_without_tags_the_code_is_zero(self) -> None:
        store = self.tagged()
        assert store.get("T", 0, 0, tag_codes=[0]).messages()[0].body == b"2"

    def test_collections_of_any_kind(self) -> None:
        store = self.tagged()
        code = java_hash(b"B")
        for codes in ({code}, [code], (code,), frozenset((code,)), {code: 1}):
            assert store.get("T", 0, 0, tag_codes=codes).message_count == 2


class TestHotAndCold:
    """With a window of 0 every read goes through `pread`; the answers are the same."""

    @pytest.mark.parametrize("window", [0, 20_000, 1 << 30])
    def test_same_answers(self, window: int) -> None:
        disk = new_disk(trace_reads=True)
        store = open_small(disk, hot_window_size=window)
        put_all(store, "T", numbered(60, 900), keys="key", tags="tag")
        put_all(store, "U", numbered(3, 10))
        before = disk.operation_count
        assert bodies(store, "T") == numbered(60, 900)
        reads = [
            op for op in disk.operations()[before:]
            if op.method == "read" and op.path.startswith("commitlog")
        ]  # fmt: skip
        assert bool(reads) == (window < 1 << 30)
        assert store.get("T", 0, 5, 3).messages()[0].body == numbered(1, 900, 5)[0]
        columns = store.read_columns("T", 0, 0, 60, column_names.VALUE)
        assert bytes(columns["value"][0]) == b"".join(numbered(60, 900))
        assert len(store.query("T", "key", 64)) == 60

    def test_far_apart_records_are_read_piece_by_piece(self) -> None:
        disk = new_disk()
        store = open_small(disk, hot_window_size=0, commit_log_file_size=1 << 20)
        for number in range(6):
            store.append(Message("Rare", b"%d" % number))
            store.append(Message("Bulk", bytes(100_000)))
        store.flush()
        assert bodies(store, "Rare") == numbered(6)
        assert store.read_columns("Rare", 0, 1, 5, column_names.VALUE)["value"][0] == b"1234"


class TestColumns:
    def test_to_arrow(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        batch = batch_of(
            *numbered(40, 700), queues=((b"T", 2),), tags=column(*[b"x", b""] * 20),
            keys=column(*(b"k%d" % n for n in range(40))),
        )  # fmt: skip
        assert store.append_batch(batch).ok
        store.flush()
        names = column_names
        wanted = (
            names.VALUE | names.TOPIC | names.TAGS | names.KEYS | names.QUEUE_ID
            | names.QUEUE_OFFSET | names.STORE_TIMESTAMP | names.MICROS
        )  # fmt: skip
        columns = store.read_columns("T", 2, 5, 30, wanted)
        table = to_arrow(columns, 25).to_pydict()
        assert table["value"] == numbered(25, 700, 5)
        assert set(table["topic"]) == {"T"}
        assert table["keys"] == [f"k{n}" for n in range(5, 30)]
        assert table["tags"] == [None, "x"] * 12 + [None] or table["tags"] == ["", "x"] * 12 + [""]
        assert table["queue_offset"] == list(range(5, 30))
        assert set(table["queue_id"]) == {2}
        stamps = {int(stamp.timestamp() * 1000) for stamp in table["store_timestamp"]}
        assert stamps == {disk.clock.wall_ms()}

    @pytest.mark.parametrize(("start", "until"), [(0, 21), (-1, 3), (5, 4), (20, 21), (30, 30)])
    def test_exactly_the_range_or_an_error(self, start: int, until: int) -> None:
        store, _ = stored(20)
        with pytest.raises(InvalidArgument):
            store.read_columns("T", 0, start, until, column_names.VALUE)

    def test_an_empty_range(self) -> None:
        store, _ = stored(20)
        for at in (0, 7, 20):
            assert bytes(store.read_columns("T", 0, at, at, column_names.VALUE)["value"][0]) == b""

    def test_over_many_files_and_gaps(self) -> None:
        store = open_small(new_disk())
        for number in range(80):
            store.append(Message("T", b"%03d" % number, queue_id=number % 3))
            store.append(Message("U", bytes(900)))
        store.flush()
        for queue_id in range(3):
            low, high = store.offsets("T", queue_id)
            value = store.read_columns("T", queue_id, low, high, column_names.VALUE)["value"]
            expected = b"".join(b"%03d" % n for n in range(queue_id, 80, 3))
            assert bytes(value[0]) == expected


class TestTimes:
    def timed(self, *steps_ms: int) -> tuple[MessageStore, list[int]]:
        disk = new_disk()
        store = open_small(disk)
        times = []
        for step in steps_ms:
            disk.clock.set_wall(disk.clock.wall_ms() + step)
            times.append(store.put_now(Message("T", bytes(1_500))).store_timestamp)
        return store, times

    def check(self, store: MessageStore, times: list[int]) -> None:
        assert times == sorted(times), "store times never go back"
        probes = {t + d for t in times for d in (-1, 0, 1)} | {0, (1 << 63) - 1}
        for probe in probes:
            expected = next((n for n, t in enumerate(times) if t >= probe), len(times))
            assert store.offset_by_time("T", 0, probe) == expected, probe
        for n, t in enumerate(times):
            assert store.store_time("T", 0, n) == t
        assert store.store_time("T", 0, len(times)) is None

    def test_rising(self) -> None:
        self.check(*self.timed(*[10] * 25))

    def test_equal_times(self) -> None:
        self.check(*self.timed(0, 0, 0, 5, 0, 0, 0, 0, 7, 0))

    def test_a_clock_that_goes_back(self) -> None:
        self.check(*self.timed(0, 10, -100, 5, 50, -1_000_000, 10, 2_000_000, 0, -5))

    def test_a_clock_that_goes_back_between_runs(self) -> None:
        for end in ("close", "kill"):
            disk = new_disk()
            store = open_small(disk)
            times = [store.put_now(Message("T", b"a")).store_timestamp]
            if end == "close":
                store.close()
            disk = disk.kill()
            disk.clock.set_wall(disk.clock.wall_ms() - 10 * HOUR_MS)
            store = open_small(disk)
            times.append(store.put_now(Message("T", b"b")).store_timestamp)
            self.check(store, times)

    def test_ipv6_hosts_move_the_field(self) -> None:
        store = open_small(new_disk(), store_host="fe80::1")
        result = store.put_now(Message("T", b"a", born_host=("fe80::2", 5)))
        assert store.store_time("T", 0, 0) == result.store_timestamp
        mixed = store.put_now(Message("T", b"a", born_host=("10.0.0.1", 5)))
        assert store.store_time("T", 0, 1) == mixed.store_timestamp
        assert bodies(store, "T") == [b"a", b"a"]

    def test_within_the_kept_range_only(self) -> None:
        store, disk = stored(12, 4_000)
        disk.clock.advance(72 * HOUR_MS)
        store.clean(manual=True)
        assert store.offset_by_time("T", 0, 0) == 9
        assert store.store_time("T", 0, 8) is None


class TestKeys:
    def test_by_key_and_unique_key(self) -> None:
        store = open_small(new_disk())
        for n in range(50):
            properties = {"UNIQ_KEY": f"u{n}"}
            store.append(Message("T", b"%d" % n, keys=f"k{n % 5} all", properties=properties))
            store.append(Message("Other", b"x", keys=f"k{n % 5} all"))
        store.flush()
        assert [m.body for m in store.query("T", "u17")] == [b"17"]
        assert [m.body for m in store.query("T", "k3")] == [b"%d" % n for n in range(3, 50, 5)]
        found = store.query("T", "all", 8)
        assert [m.body for m in found] == [b"%d" % n for n in range(42, 50)], "newest, in log order"
        assert len(store.query("T", "all", 999)) == 50
        assert store.query("T", "k3 all") == store.query("T", "k") == store.query("T", "K3") == []

    def test_no_more_than_the_configured_count(self) -> None:
        store = open_small(new_disk(), index_query_max=7)
        put_all(store, "T", numbered(30), keys="k")
        assert len(store.query("T", "k", 64)) == 7

    def test_time_range(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        times = []
        for n in range(40):
            times.append(store.put_now(Message("T", b"%d" % n, keys="k")).store_timestamp)
            disk.clock.advance(700)
        for low, high in itertools.product(range(0, 40, 7), range(0, 40, 9)):
            found = store.query("T", "k", 64, times[low], times[high])
            assert [m.body for m in found] == [b"%d" % n for n in range(low, high + 1)]
        assert store.query("T", "k", 64, times[-1] + 1) == []
        assert store.query("T", "k", 64, 0, times[0] - 1) == []

    @pytest.mark.parametrize("asked_for", ["Aa", "BB"])
    def test_colliding_keys_hide_nothing(self, asked_for: str) -> None:
        """Both have one hash; many entries of the one must not push the other out."""
        store = open_small(new_disk(), commit_log_file_size=1 << 20)
        other = {"Aa": "BB", "BB": "Aa"}[asked_for]
        put_all(store, "T", [b"wanted"], keys=asked_for)
        put_all(store, "T", numbered(300), keys=other)
        found = store.query("T", asked_for, 1)
        assert [m.body for m in found] == [b"wanted"]

    def test_an_index_that_was_switched_off_misses_nothing(self) -> None:
        disk = new_disk()
        for number, is_on in enumerate((True, False, False, True, True)):
            store = open_small(disk, message_index_enable=is_on)
            put_all(store, "T", [b"%d" % number], keys=f"k{number}")
            store.close()
        store = open_small(disk)
        for number in range(5):
            assert [m.body for m in store.query("T", f"k{number}")] == [b"%d" % number]

    def test_without_an_index(self) -> None:
        store = open_small(new_disk(), message_index_enable=False)
        put_all(store, "T", [b"a"], keys="k")
        assert store.query("T", "k") == []
        assert bodies(store, "T") == [b"a"]

    def test_a_key_that_is_not_text(self) -> None:
        store = open_small(new_disk())
        put_all(store, "T", [b"a"], keys="?")
        assert store.query("T", "\ud800") == []
        assert len(store.query("T", "?")) == 1


class TestByPosition:
    def test_every_record_is_found_at_its_position(self) -> None:
        store, _ = stored(40, 1_000)
        for message in store.get("T", 0, 0, 40, size_max=1 << 20).messages():
            found = store.message_at(message.physical_offset)
            assert found is not None
            assert found.body == message.body

    def test_the_stored_bytes_are_those_of_a_get(self) -> None:
        store, _ = stored(40, 1_000)
        result = store.get("T", 0, 0, 40, size_max=1 << 20)
        records = [store.record_at(m.physical_offset) or b"" for m in result.messages()]
        assert b"".join(records) == result.records
        assert store.record_at(store.log_range[1]) is None
        with pytest.raises(CorruptRecord):
            store.record_at(7)

    def test_outside_and_between(self) -> None:
        store, _ = stored(40, 1_000)
        assert store.message_at(store.log_range[1]) is None
        assert store.message_at(1 << 50) is None
        with pytest.raises(CorruptRecord):
            store.message_at(7)

    def test_not_before_it_is_visible(self) -> None:
        store = open_small(new_disk(), **ASYNC)
        group = store.append_group([run_of(b"a")])
        behind = store.append(Message("T", b"b"))
        assert store.message_at(group.position) is None
        assert store.message_at(behind.position) is None
        store.flush()
        found = store.message_at(behind.position)
        assert found is not None
        assert found.body == b"b"


class TestDurability:
    def test_durable_offset_of_an_asynchronous_store(self) -> None:
        store = open_small(new_disk(), **ASYNC)
        for n in range(10):
            store.append(Message("T", b"%d" % n))
        assert store.offsets("T", 0) == (0, 10)
        assert store.durable_offset("T", 0) == 0
        store.flush()
        assert store.durable_offset("T", 0) == 10
        store.append(Message("U", b"u"))
        store.append(Message("T", b"10"))
        assert store.durable_offset("T", 0) == 10
        assert store.durable_offset("U", 0) == 0
        assert store.durable_offset("V", 0) == 0

    def test_visible_is_durable_with_synchronous_flush(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        for n in range(10):
            store.append(Message("T", b"%d" % n))
            _, high = store.offsets("T", 0)
            assert high == store.durable_offset("T", 0)
            for state in disk.crash_states(limit=4):
                again = open_small(disk.reboot(state))
                assert again.offsets("T", 0)[1] >= high


class TestDeletion:
    def test_numbering_continues(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        put_all(store, "T", numbered(25), keys="k")
        put_all(store, "T", [b"q1"], queue_id=1)
        put_all(store, "Kept", [b"kept"])
        assert store.delete_topic("T") == 2
        assert store.delete_topic("Unknown") == 0
        assert store.offsets("T", 0) == (25, 25)
        assert store.get("T", 0, 0).status is GetStatus.OFFSET_TOO_SMALL
        assert store.get("T", 0, 25).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert not [p for p in disk.files() if p.startswith("consumequeue/T/")]
        survivor = disk.kill()
        again = open_small(survivor)
        assert again.offsets("T", 0) == (25, 25)
        assert bodies(again, "Kept") == [b"kept"]
        assert again.put_now(Message("T", b"new")).queue_offset == 25
        again.close()
        again = open_small(survivor)
        assert bodies(again, "T") == [b"new"]
        again.delete_topic("T")
        assert again.offsets("T", 0) == (26, 26)

    def test_deleting_a_topic_twice_and_with_unflushed_messages(self) -> None:
        store = open_small(new_disk(), **ASYNC)
        put_all(store, "T", numbered(3))
        store.append(Message("T", b"3"))
        assert store.delete_topic("T") == 1
        assert store.offsets("T", 0) == (4, 4)
        assert store.delete_topic("T") == 1
        store.append(Message("T", b"4"))
        assert store.offsets("T", 0) == (4, 5)


class TestUnverified:
    """`verify=False` is for callers that verify the records themselves."""

    @pytest.mark.parametrize("run_length", [1, 3, 12])
    @pytest.mark.parametrize("hot", [0, 1 << 20])
    def test_the_same_bytes(self, run_length: int, hot: int) -> None:
        disk = new_disk()
        settings = {
            "commit_log_file_size": 1 << 17,
            "read_size_max": 1 << 20,
            "hot_window_size": hot,
        }
        store = open_small(disk, **settings)
        for turn in range(6):
            put_all(store, "T", numbered(run_length, 4_000), queue_id=turn % 2)
        for queue_id in (0, 1):
            for offset in range(3 * run_length):
                plain = store.get("T", queue_id, offset, 100)
                quick = store.get("T", queue_id, offset, 100, verify=False)
                assert quick._replace(records=bytes(quick.records)) == plain

    def test_a_damaged_record_is_left_to_the_caller(self) -> None:
        sizes = {"commit_log_file_size": 1 << 20, "read_size_max": 1 << 20}
        store, disk = stored(20, 4_000, **sizes)
        plain = bytes(store.get("T", 0, 0, 100).records)
        store.close()
        log = min(path for path in disk.files() if path.startswith("commitlog/"))
        disk.flip(log, 8 * (disk.content(log).index(plain) + plain.index(b"." * 100) + 50))
        store = open_small(disk, **sizes)
        with pytest.raises(CorruptRecord):
            store.get("T", 0, 0, 100)
        quick = bytes(store.get("T", 0, 0, 100, verify=False).records)
        assert len(quick) == len(plain)
        assert quick != plain


def test_statistics_count_what_happened() -> None:
    store, _ = stored(20)
    store.get("T", 0, 0)
    store.get("T", 0, 99)
    store.append(Message("..", b""))
    stats = store.stats()
    assert stats["put_messages"] == 20
    assert stats["get_messages"] == 20
    assert stats["put_statuses"] == {"PUT_OK": 20, "MESSAGE_ILLEGAL": 1}
    assert stats["get_statuses"] == {"FOUND": 1, "OFFSET_OVERFLOW_BADLY": 1}
    assert stats["topic_messages"] == {"T": 20}
    assert stats["dispatched_messages"] == 20
    assert sum(stats["put_time_distribution"].values()) == 20
    assert np.isfinite(stats["put_time_max_ms"])
