"""SQL92 property filters with Java's numbers."""
