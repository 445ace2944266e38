"""Connected clients: heartbeats, members, consumer offsets, queue locks, relays."""
