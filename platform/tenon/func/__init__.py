"""PyTorch's ``torch.func``: derivatives of functions, functions of one sample over batches, modules as
functions of their parameters."""

from tenon.func.batch_norm import replace_all_batch_norm_modules_
from tenon.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from tenon.func.vmap import vmap
from tenon.nn.functional_call import functional_call, stack_module_state

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]
