"""What must be true outside of this package: the Python that Spark runs, Java, addresses."""
