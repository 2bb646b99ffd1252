"""The Kubernetes operator's distribution.

In this release pipelines are run from a manifest file (`sinkpipeline run`); the handlers that reconcile `SinkPipeline`
resources come here. It may import `sinkpipeline.core` and `sinkpipeline.kafka`, and never `sinkpipeline.spark`.
"""
