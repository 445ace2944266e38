"""Options of Spark's JSON reader: patterns of dates and times."""
