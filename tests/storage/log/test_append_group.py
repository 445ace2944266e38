"""Append groups: the header, the layout over files, all or nothing for readers and recovery."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records.record_layout import CHECK_CHECKSUMS
from broker_core.errors import MalformedRecord
from broker_core.protocol_codes import FlushDiskType, GetStatus
from broker_core.storage.log.append_group import (
    GROUP_QUEUE,
    GROUP_TOPIC,
    GroupHeader,
    HeaderBatch,
    checked_runs,
    decode_header,
    encode_header,
    place,
    plan_group,
)
from broker_core.store.writes.message import Message
from tests.codec.codec_backends import HOST
from tests.store.small_store import bodies, new_disk, numbered, open_small, run_of

SIZE = 16 << 10
HEADERS = HeaderBatch(HOST, 1_700_000_000_000, True)


class TestHeader:
    @given(st.integers(0, 1 << 50), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.binary())
    def test_it_comes_back(self, start: int, size: int, count: int, note: bytes) -> None:
        header = GroupHeader(start, start + size, count, note)
        assert decode_header(encode_header(header), start) == header

    @pytest.mark.parametrize(
        "body",
        [
            b"", b"RMQG", bytes(32), b"X" + encode_header(GroupHeader(5, 9, 1, b""))[1:],
            encode_header(GroupHeader(6, 9, 1, b"")), encode_header(GroupHeader(5, 4, 1, b"")),
            encode_header(GroupHeader(5, 9, -1, b"")),
            b"RMQG\0\0\0\2" + encode_header(GroupHeader(5, 9, 1, b""))[8:],
        ],
    )  # fmt: skip
    def test_anything_else_is_not_a_header(self, body: bytes) -> None:
        with pytest.raises(MalformedRecord):
            decode_header(body, 5)


class TestLayout:
    def test_the_roll_rule(self) -> None:
        assert place(3_900, 188, 4096) == 3_900
        assert place(3_900, 189, 4096) == 4_096
        assert place(4_096, 189, 4096) == 4_096

    def test_over_several_files(self) -> None:
        record = len(run_of(b"x" * 4_000).records)
        runs = (run_of(*[b"x" * 4_000] * 5), run_of(b"y", topic=b"U"))
        layout = plan_group(
            checked_runs(runs), b"note", 10_000, SIZE, HEADERS, CHECK_CHECKSUMS, 4_000
        )
        assert layout.start == 10_000
        assert layout.record_count == 6
        assert [list(counts) for counts in layout.counts] == [[5], [1]]
        # One behind the header, three in the next file, the fifth and the other run in the third.
        assert layout.end == 2 * SIZE + record + len(runs[1].records)

    def test_the_plan_is_where_it_lands(self) -> None:
        for used in range(0, SIZE - 200, 1_337):
            store = open_small(new_disk())
            if used:
                store.append(Message("Before", bytes(max(used - 200, 0))))
            result = store.append_group([run_of(*[b"x" * 1_700] * 30)], b"n" * 50)
            assert result.ok
            store.flush()
            assert store.dispatched_position == result.end_position
            assert len(bodies(store, "T")) == 30


class TestVisibility:
    def test_one_group_in_several_queues_and_files(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        runs = [run_of(*numbered(30, 1_000), queue_id=n) for n in range(3)]
        result = store.append_group(runs, b"batch 7")
        assert result.message_count == 90
        store.flush()
        for queue_id in range(3):
            assert bodies(store, "T", queue_id) == numbered(30, 1_000)
        header = store.get(GROUP_TOPIC.decode(), 0, 0)
        assert header.status is GetStatus.FOUND
        (message,) = header.messages()
        decoded = decode_header(message.body, message.physical_offset)
        assert decoded == GroupHeader(result.position, result.end_position, 90, b"batch 7")
        assert GROUP_QUEUE == (GROUP_TOPIC, 0)

    def test_numbers_go_on_before_and_behind(self) -> None:
        store = open_small(new_disk())
        store.append(Message("T", b"0"))
        store.append_group([run_of(b"1", b"2"), run_of(b"3")])
        store.append(Message("T", b"4"))
        store.flush()
        assert bodies(store, "T") == [b"0", b"1", b"2", b"3", b"4"]

    def test_nothing_is_visible_before_all_is_durable(self) -> None:
        """Even in the mode in which single messages are visible at once."""
        store = open_small(new_disk(), flush_disk_type=FlushDiskType.ASYNC_FLUSH)
        store.append(Message("T", b"before"))
        store.append_group([run_of(*numbered(40, 1_000))])
        store.append(Message("T", b"behind"))
        assert bodies(store, "T") == [b"before"]
        assert store.offsets("T", 0) == (0, 1)
        store.flush()
        assert bodies(store, "T") == [b"before", *numbered(40, 1_000), b"behind"]

    def test_arrivals_of_a_group_come_after_all_of_it(self) -> None:
        store = open_small(new_disk())
        seen = []
        store.on_arrival(lambda topic, queue_id, end: seen.append((topic, queue_id, end)))
        complete = []
        store.on_arrival(lambda *_: complete.append((store.offsets("T", 0), store.offsets("U", 4))))
        store.append_group([run_of(b"a", b"b"), run_of(b"c", topic=b"U", queue_id=4)])
        store.flush()
        assert set(seen) >= {(b"T", 0, 2), (b"U", 4, 1)}
        assert set(complete) == {((0, 2), (0, 1))}


class TestCrash:
    @pytest.mark.parametrize("mode", list(FlushDiskType))
    def test_all_or_nothing_after_a_kill(self, mode: FlushDiskType) -> None:
        """Without a flush the group is complete in the page cache, so it is there."""
        disk = new_disk()
        store = open_small(disk, flush_disk_type=mode)
        store.append_group([run_of(*numbered(40, 1_000))])
        again = open_small(disk.kill(), flush_disk_type=mode)
        assert bodies(again, "T") in ([], numbered(40, 1_000))

    def test_all_or_nothing_after_a_power_cut(self) -> None:
        disk = new_disk()
        store = open_small(disk, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
        store.put_now(Message("T", b"kept"))
        store.append_group([run_of(*numbered(20, 1_500))])
        store.append(Message("T", b"behind"))
        outcomes = set()
        for state in disk.crash_states(limit=80):
            again = open_small(disk.reboot(state))
            found = bodies(again, "T")
            assert found[0] == b"kept"
            assert found[1:] in ([], numbered(20, 1_500), [*numbered(20, 1_500), b"behind"])
            outcomes.add(len(found))
            assert again.put_now(Message("T", b"next")).ok
        assert {1, 22} <= outcomes
