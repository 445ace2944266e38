"""`rmq store`: look at the files of a store that is not running."""
