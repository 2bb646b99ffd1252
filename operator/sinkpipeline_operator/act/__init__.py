"""What was decided, done on the cluster."""
