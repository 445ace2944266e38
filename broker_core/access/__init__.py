"""Access control: accounts, signatures, and one table of permissions per server."""
