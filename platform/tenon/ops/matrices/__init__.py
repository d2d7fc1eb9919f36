"""Linear algebra over the last two axes: factorizations, decompositions, linear systems."""

from tenon.ops.matrices import factorization as factorization
from tenon.ops.matrices import linalg as linalg
from tenon.ops.matrices import solving as solving
