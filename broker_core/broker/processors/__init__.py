"""Request processors: each answers a few related request codes from the tables it is given."""
