"""Push consumer: rebalance, fetch, dispatch to the listener, acknowledge."""
