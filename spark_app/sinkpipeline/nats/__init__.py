"""NATS JetStream behind the ports: rows and their progress in one atomic batch of a stream."""
