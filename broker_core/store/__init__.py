"""The message store: storage, flush and dispatch behind one interface."""
