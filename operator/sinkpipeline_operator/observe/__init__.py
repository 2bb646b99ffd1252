"""What is so: the resource, its driver, what that says, and what Kafka says while it is silent."""
