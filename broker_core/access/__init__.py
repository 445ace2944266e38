"""Who may ask for what: accounts, signatures, and one table of permissions per server."""
