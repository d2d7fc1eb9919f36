"""Quantization schemes and observers for tenon."""
