"""Messages read from files without the broker's code."""

from __future__ import annotations

from pathlib import Path

from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.prove.stored_bodies import stored_bodies


def test_files_are_read_without_the_broker(tmp_path: Path) -> None:
    sent = [f"m{number}:text" for number in range(500)]
    with EmbeddedBroker(store=tmp_path, topics={"T": 3, "other": 1}) as broker:
        broker.produce("T", sent)
        broker.produce("other", ["x"] * 20)
    assert sorted(stored_bodies(tmp_path, "T")) == sorted(sent)
    assert stored_bodies(tmp_path, "absent") == []
    log = min((tmp_path / "commitlog").iterdir())
    with log.open("r+b") as file:
        damaged = file.read(1 << 20).index(b"m77:text")
        file.seek(damaged)
        file.write(b"M")
    found = stored_bodies(tmp_path, "T")
    assert sorted(set(sent) - set(found)) == ["m77:text"]
    assert [body for body in found if body.startswith("unreadable T/")]
