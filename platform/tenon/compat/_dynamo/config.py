"""PyTorch's ``torch._dynamo.config``: settings of its compiler, which are stored and have no effect.

Code that cannot be recorded stays eager, with one warning, whatever ``suppress_errors`` is;
``tenon.compile(fullgraph=True)`` raises an error instead.
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
