"""The exactly-once sink: staging, verification, publication, batch records."""
