"""Model compression: pruning, quantization, and the measurement of what they cost and gain.

``prune`` is imported as ``tenon.prune``, ``quantize`` as ``tenon.quantization``, ``compressing`` as
``tenon.compress``.
"""
