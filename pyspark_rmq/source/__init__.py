"""The source: plans ranges of queue offsets on the driver and reads them as Arrow batches."""
