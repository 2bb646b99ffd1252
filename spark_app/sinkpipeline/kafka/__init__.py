"""The only place that imports the Kafka client."""
