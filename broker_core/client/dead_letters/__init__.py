"""Dead letters: lists, reads and replays them."""
