"""Samples of matrix products."""

from __future__ import annotations

import numpy as np

from tenon.testing.samples.draw import expanded, integer, normal
from tenon.testing.samples.table import add

for _name, _x, _y in (
    ("matrices", (3, 4), (4, 2)), ("vectors", (4,), (4,)), ("matrix_vector", (3, 4), (4,)), ("vector_matrix", (4,), (4, 3)),
    ("batches", (2, 3, 4), (2, 4, 5)), ("batch_matrix", (2, 3, 4), (4, 5)), ("matrix_batch", (3, 4), (2, 4, 5)),
    ("batch_broadcast", (2, 1, 3, 4), (5, 4, 2)), ("batch_vector", (2, 3, 4), (4,)), ("vector_batch", (4,), (2, 4, 5)),
    ("one", (1, 1), (1, 1)), ("large", (20, 30), (30, 10)),
):  # fmt: skip
    _tags = (
        "broadcast"
        if "broadcast" in _name or _name in ("batch_matrix", "matrix_batch")
        else "large"
        if _name == "large"
        else ""
    )
    add("matmul", _name, normal(*_x), normal(*_y), reference=np.matmul, tags=_tags, loose=4.0)
add("matmul", "no_inner", normal(3, 0), normal(0, 2), reference=np.matmul, tags="empty")
add("matmul", "no_rows", normal(0, 3), normal(3, 2), reference=np.matmul, tags="empty")
add("matmul", "no_batch", normal(0, 2, 3), normal(3, 2), reference=np.matmul, tags="empty")
add("matmul", "no_batch_vector", normal(0, 2, 3), normal(3), reference=np.matmul, tags="empty")
add(
    "matmul",
    "transposed",
    normal(3, 4).in_layout("transposed"),
    normal(4, 2).in_layout("strided"),
    reference=np.matmul,
    tags="strided",
    loose=4.0,
)
add(
    "matmul",
    "expanded",
    expanded((1, 4), 3, 4),
    normal(4, 2),
    reference=np.matmul,
    tags="expanded",
    loose=4.0,
)
for _axis, _shape in ((1, (4, 3)), (0, (3, 2, 2))):
    add(
        "cross",
        f"axis_{_axis}",
        normal(*_shape),
        normal(*_shape),
        reference=lambda x, y, axis: np.cross(x, y, axis=axis),
        attrs={"axis": _axis},
    )
add("matmul", "integers", integer(-4, 5, 3, 4), integer(-4, 5, 4, 2), reference=np.matmul, tags="integer")
