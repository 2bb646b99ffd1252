"""The driver: the only place that imports pyspark."""
