"""The state of a pipeline: resource, driver, the driver's answers, and Kafka's while no driver answers."""
