"""The driver as the cluster has it: what it is to run, the objects that it is made of, what became of it. Pure."""
