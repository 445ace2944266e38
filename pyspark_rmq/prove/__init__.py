"""Proof of exactly-once: runs source → transformation → sink and kills its processes.

python -m pyspark_rmq.prove --kills 50

harness (this process) ── starts, kills, restarts ──► broker        a process
        │                                        └──► driver + JVM  processes, with workers
        └─ arms traps (`traps.py`) that trigger in the sink under test (`killing_sink.py`)
"""
