"""Clients of a RocketMQ cluster: producers, consumers, administration; asyncio and synchronous.

    ClientConfig ─► ClientInstance ─► Producer, Admin, PullConsumer, PushConsumer

One instance owns the connections, the routes and the heartbeats of everything built on it, all on
one event loop. `blocking/` offers the same to threads and notebooks.
"""
