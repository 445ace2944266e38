"""The sink: exactly-once batches on top of staging and append groups, or plain sends."""
