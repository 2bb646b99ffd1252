"""`sinkpipeline dlq`: looking at dead letters, redriving them, and deleting them."""
