"""The Kubernetes operator: it keeps one Spark driver running for each `SinkPipeline`.

`watch` says when to look, and `reconcile` looks: `observe`, `decide`, `report`, `act`.
It may import `sinkpipeline.core` and `sinkpipeline.kafka`, and never `sinkpipeline.spark`.
"""
