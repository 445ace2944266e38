"""The store as replication sees it: raw log, unreplicated tail, cuts."""
