"""What is to be done about what was observed. Pure."""
