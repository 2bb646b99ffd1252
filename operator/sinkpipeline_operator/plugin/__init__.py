"""`kubectl sinkpipeline`: what a person sees of pipelines, and asks for. No part of the operator's own work."""
