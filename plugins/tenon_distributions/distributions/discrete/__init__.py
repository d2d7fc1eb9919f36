"""Distributions of counts and of choices."""
