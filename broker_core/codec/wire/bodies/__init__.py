"""Bodies of requests and responses: routes, heartbeats, topic and group settings, the sink."""
