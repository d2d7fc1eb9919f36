"""Ranks as processes: detecting the launcher, creating the communicator, detecting and reporting failures."""
