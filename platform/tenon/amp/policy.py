"""Which ops run in autocast's dtype and which in float32: PyTorch 2.13's lists, as attributes of the op
classes.

``Op.autocast`` is the policy of an op, ``Op.autocast_cuda`` that on a GPU if it differs. An op without one
runs in the dtypes of its arguments, and mixed dtypes are promoted as outside autocast: so do softmax, norms,
activations, additions, ``cat`` and ``stack`` on the CPU. float16, the default on GPUs, overflows where
bfloat16 does not, so that there softmax, norms, sums, powers and exponentials run in float32.

Functions of several ops have policies of their own, see ``engine/precision.py``. ``tests/amp/test_parity.py``
and ``test_torch_lists.py`` compare all of them with PyTorch.
"""

from __future__ import annotations

from tenon.engine.op import Op
from tenon.engine.types import Arguments
from tenon.errors import UnsupportedError


def policy_of(op: Op, device: str, args: Arguments) -> str:
    """Return how to cast the arguments of ``op`` on ``device``: "lower", "float32", "widest" or "" (not at
    all).

    Raises UnsupportedError for an op that autocast refuses.
    """
    policy = op.autocast
    if device == "cuda" and op.autocast_cuda is not None:
        policy = op.autocast_cuda
    if policy == "float32 in space":
        return "float32" if args[0].raw.ndim == 5 else ""
    if policy.startswith("refused: "):
        raise UnsupportedError(policy.removeprefix("refused: "))
    return policy
