"""Clusters of ops as one kernel, and what surrounds it in a program."""
