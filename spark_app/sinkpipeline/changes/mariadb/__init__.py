"""MariaDB as a source of changes: what it says in its own words; `changes.binlog` reads its log."""
