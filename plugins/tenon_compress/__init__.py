"""Smaller models: pruning, quantization, and what they cost and gain.

``prune`` is imported as ``tenon.prune``, ``quantize`` as ``tenon.quantization``, ``compressing`` as
``tenon.compress``.
"""
