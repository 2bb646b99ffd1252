"""When each pipeline is looked at. The only package that imports kopf."""
