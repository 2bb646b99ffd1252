"""The `sinkpipeline` command."""
