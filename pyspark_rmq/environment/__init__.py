"""Prerequisites outside this package: the Python that Spark runs, Java, reachable addresses."""
