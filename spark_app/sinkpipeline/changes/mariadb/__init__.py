"""MariaDB as a source of changes: its binary log, read as a replica does."""
