"""Graphs that leave tenon: captured, lowered to the ops of a target, written, and verified."""
