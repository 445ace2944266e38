"""`rmq admin`: its commands, their registry and reports."""
