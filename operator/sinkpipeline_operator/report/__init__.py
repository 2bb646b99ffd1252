"""What is told: the status, events, metrics."""
