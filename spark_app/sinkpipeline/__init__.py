"""Exactly-once delivery of Kafka records with Spark: the application that a `SinkPipeline` runs."""
