"""POP consumption: ledgers of leases, reads, retries, waiting pops, request handlers."""
