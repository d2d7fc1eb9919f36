"""Copies of a model on every rank: data parallel, its buckets of gradients, hooks and accumulation."""
