"""Broker configuration: properties, files, checks, settings that change at run time."""
