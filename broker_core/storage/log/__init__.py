"""The commit log: segments, append groups, walks, retention."""
