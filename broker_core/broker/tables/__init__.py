"""State that features share: topics, groups, offsets, clients, queue locks, statistics."""
