"""torch's ``torch._dynamo.config``: what scripts set of another compiler. It is kept, without effect.

What cannot be recorded stays eager and says so once, whatever ``suppress_errors`` is; for an error there is
``tenon.compile(fullgraph=True)``.
"""

suppress_errors: bool = False
verbose: bool = False
compiled_autograd: bool = False
cache_size_limit: int = 8
recompile_limit: int = 8
accumulated_cache_size_limit: int = 256
accumulated_recompile_limit: int = 256
automatic_dynamic_shapes: bool = True
assume_static_by_default: bool = True
capture_scalar_outputs: bool = False
capture_dynamic_output_shape_ops: bool = False
optimize_ddp: bool = True
