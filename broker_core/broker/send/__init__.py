"""Send requests: checks, bursts, batches, send-back and replies."""
