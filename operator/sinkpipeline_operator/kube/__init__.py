"""The API server. The only package that imports the Kubernetes client."""
