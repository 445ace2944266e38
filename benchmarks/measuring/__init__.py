"""What all benchmarks share: rounds, figures, records, memory."""
