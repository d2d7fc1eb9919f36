"""Linear algebra over the last two axes: factorizations, decompositions, systems of equations."""

from tenon.ops.matrices import factorization as factorization
from tenon.ops.matrices import linalg as linalg
from tenon.ops.matrices import solving as solving
