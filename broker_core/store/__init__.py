"""The one door to a message store, composed of storage, flush and dispatch."""
