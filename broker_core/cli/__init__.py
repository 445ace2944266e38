"""The command line: `rmq namesrv`, `broker`, `standalone`, `produce` and `consume`."""
