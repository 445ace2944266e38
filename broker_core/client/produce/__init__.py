"""Producers: single, batch, bulk, request-reply."""
