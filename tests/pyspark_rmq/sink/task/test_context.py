"""The identity of a task, from the properties that Spark 4.3 sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from broker_core import errors
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task import context as task_context
from pyspark_rmq.sink.task.context import job_identity, stream_identity
from pyspark_rmq.sink.task.result import JOBS

QUERY = "652ab8cd-01e6-427e-8239-974c949002ef"
SESSION = "8ff02676-e020-4ea1-89e3-efd91f75a776"
OTHER = "a9292b91-bfa9-4517-bc8c-76fa75b42cde"
SEEN = {
    "sql.streaming.queryId": QUERY,
    "streaming.sql.batchId": "6",
    "spark.jobGroup.id": "4db243fe-6a58-46e2-a0dd-783e37e0e2ff",
    "spark.sql.execution.id": "15",
    "spark.sql.execution.root.id": "14",
    "spark.job.tags": (
        f"usertag,spark-session-{SESSION}-execution-root-id-14,spark-session-{SESSION}"
    ),
}


class _Context:
    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return 1

    def attemptNumber(self) -> int:
        return 2

    def taskAttemptId(self) -> int:
        return 3


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def become(**changes: str) -> None:
        found = {**SEEN, **{name.replace("_", "."): text for name, text in changes.items()}}
        monkeypatch.setattr(task_context, "_context", lambda: _Context(found))

    become()
    return become


def options(**given: str) -> SinkOptions:
    return SinkOptions.parse({"rmq.namesrv.addr": "127.0.0.1:9876", **given})


def test_a_stream(seen: Callable[..., None]) -> None:
    found = stream_identity(options(checkpointLocation="/c"))
    assert (found.sink, found.query, found.batch, found.run) == (QUERY, QUERY, 6, SESSION)
    assert found.batch_identity == (QUERY, 6, SESSION, "/c", "", False, QUERY)
    assert stream_identity(options(sinkId="S")).batch_identity[0::6] == ("S", QUERY)


def test_the_job_group_is_not_the_run(seen: Callable[..., None]) -> None:
    inner = options(sinkId="S")
    before = job_identity(inner, "job-1")
    seen(spark_jobGroup_id="mine")
    assert job_identity(inner, "job-2") == before
    assert (before.run, before.query, before.is_inner) == (SESSION, QUERY, True)
    assert before.start == SESSION
    tag = f"spark-session-{OTHER}-execution-root-id-14"
    seen(spark_job_tags=SEEN["spark.job.tags"].replace(SESSION, OTHER))
    assert job_identity(inner, "job-3").run == OTHER
    # A frame of another session, inside the query's execution.
    seen(spark_job_tags=f"{SEEN['spark.job.tags']},{tag}")
    assert job_identity(inner, "job-4").run == f"{SESSION}+{OTHER}"
    # Tags of other executions, and versions without tags.
    seen(spark_job_tags=f"spark-session-{OTHER}-execution-root-id-1")
    assert job_identity(inner, "job-5").run == SEEN["spark.jobGroup.id"]
    # Both overwritten: the same text in every start would take a repeat for a second write.
    seen(spark_job_tags="usertag", spark_jobGroup_id="mine")
    with pytest.raises(errors.InvalidArgument, match="clearJobTags and set the job group"):
        job_identity(inner, "job-6")
    assert job_identity(options(sinkId="S", batchId="7"), "job-7").run == "job-7"


def test_a_batch_id_inside_a_query_belongs_to_the_query(seen: Callable[..., None]) -> None:
    numbered: Any = job_identity(options(sinkId="S", batchId="7"), "job-1")
    assert numbered.batch_identity == ("S", 7, "job-1", "", "", False, QUERY)
    assert numbered.start == SESSION


def test_jobs(seen: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_context, "_context", lambda: _Context({}))
    alone: Any = job_identity(options(), "job-1")
    assert alone.batch_identity == ("job-1", 0, "job-1", "", "", True, "")
    numbered: Any = job_identity(options(sinkId="S", batchId="7"), "job-1")
    assert numbered.batch_identity == ("S", 7, "job-1", "", "", False, JOBS)
    assert (alone.start, numbered.start) == ("", "")
    with pytest.raises(errors.InvalidArgument, match="give batchId"):
        job_identity(options(sinkId="S"), "job-1")
    with pytest.raises(errors.InvalidArgument, match="cannot give any guarantee"):
        stream_identity(options())
