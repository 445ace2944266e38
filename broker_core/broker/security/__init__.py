"""TLS, accounts and permission checks of one broker."""
