"""Which ops run in autocast's dtype and which in float32: torch 2.13's lists, as the op classes have them.

``Op.autocast`` says it of an op, ``Op.autocast_cuda`` of an op on a GPU where that differs. An op that says
nothing runs in the dtypes it gets, and mixed ones are promoted as outside autocast: so do softmax, norms,
activations, additions, ``cat`` and ``stack`` on the CPU. float16, the GPU's usual choice, overflows where
bfloat16 does not, so that there softmax, norms, sums, powers and exponentials run in float32.

Functions made of several ops name their own policy, see ``engine/precision.py``. ``tests/amp/test_parity.py``
and ``test_torch_lists.py`` hold all of it to torch.
"""

from __future__ import annotations

from typing import Any

from tenon.engine.op import Op
from tenon.errors import UnsupportedError


def policy_of(op: Op, device: str, args: tuple[Any, ...]) -> str:
    """What becomes of the arguments of ``op`` on ``device``: "lower", "float32", "widest" or "" (nothing)."""
    chosen = op.autocast
    if device == "cuda" and op.autocast_cuda is not None:
        chosen = op.autocast_cuda
    if chosen == "float32 in space":
        return "float32" if args[0].raw.ndim == 5 else ""
    if chosen.startswith("refused: "):
        raise UnsupportedError(chosen.removeprefix("refused: "))
    return chosen
