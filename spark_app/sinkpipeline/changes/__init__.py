"""The stage: a process that reads the changes of a database and writes them into a Kafka topic, exactly once."""
