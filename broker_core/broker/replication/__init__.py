"""Master and slave roles: changes, discovery, metadata copy, registration."""
