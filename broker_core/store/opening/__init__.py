"""Opens a directory as a store: recovery, then derived files."""
