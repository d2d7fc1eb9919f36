"""torch's ``torch._dynamo.config``: what scripts set of another compiler. It is kept, without effect.

What cannot be recorded stays eager and says so once, whatever ``suppress_errors`` is; for an error there is
``tenon.compile(fullgraph=True)``.
"""

__all__ = ["cache_size_limit", "compiled_autograd", "recompile_limit", "suppress_errors"]

suppress_errors: bool = False
compiled_autograd: bool = False
recompile_limit: int = 8
cache_size_limit: int = 8
