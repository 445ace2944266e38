"""Pull requests, pulls that wait, bulk and local reads, queries by offset and key."""
