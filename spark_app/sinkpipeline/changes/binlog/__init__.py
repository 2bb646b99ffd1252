"""A binary log as a source of changes, of MariaDB or MySQL: read as a replica does."""
