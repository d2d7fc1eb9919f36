"""Ranks as processes: how they are found, started and joined, how failures are noticed and reported."""
