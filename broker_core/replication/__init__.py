"""Copying one log to other brokers: frames, who follows whom, what is confirmed."""
