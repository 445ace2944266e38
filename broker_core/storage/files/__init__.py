"""The file-system interface, its POSIX implementation and small atomic files."""
