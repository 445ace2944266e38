"""The shared client instance: configuration, connections, routes, heartbeats."""
