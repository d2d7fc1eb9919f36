"""Tensors made of data, of shapes, of ranges, of random numbers."""
