"""Writing: exactly-once batches on top of staging and append groups. Comes with a later issue."""
