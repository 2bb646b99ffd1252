"""What a task does with its rows: one module for each kind of sink."""
