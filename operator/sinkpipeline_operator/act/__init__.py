"""Carries out on the cluster what was decided."""
