"""When bytes go to the disk, who waits for it, and what happens when it fails."""
