"""The Kubernetes operator: it keeps one Spark driver running for each `SinkPipeline`.

`watch` says when to look, and `reconcile` looks: `observe`, `decide`, `report`, `act`.
It may import what starts, looks at, resets and removes a sink (`core`, `sinks`, `kafka`, `kinds`), and never
`sinkpipeline.spark`.
"""
