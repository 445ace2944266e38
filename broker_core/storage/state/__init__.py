"""Identity, epoch, checkpoint, lock files and recovery of a store."""
