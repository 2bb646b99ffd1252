"""PostgreSQL as a kind of sink: rows and progress in one SQL transaction."""
