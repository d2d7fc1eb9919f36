"""Discrete distributions: of counts and of categories."""
