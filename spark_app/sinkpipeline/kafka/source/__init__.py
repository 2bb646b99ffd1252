"""What is asked of the source, apart from what is written to a sink."""
