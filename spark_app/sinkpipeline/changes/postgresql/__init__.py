"""PostgreSQL as a source of changes: its replication stream, the slot it is read by, and the publication."""
