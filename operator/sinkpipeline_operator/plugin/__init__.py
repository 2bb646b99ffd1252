"""`kubectl sinkpipeline`: shows pipelines to a person, and takes orders. It is not part of the operator's own work."""
