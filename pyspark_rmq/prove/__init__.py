"""Proof by killing: source → transformation → sink, with processes killed all the time.

python -m pyspark_rmq.prove --kills 50

harness (this process) ── starts, kills, restarts ──► broker        a process
        │                                        └──► driver + JVM  processes, with workers
        └─ arms traps (`traps.py`) that the sink under test passes (`killing_sink.py`)
"""
