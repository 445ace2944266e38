"""Schemas of readers that give none: from the schema of a format, or from a sample of bodies."""
