"""Special functions beyond what networks use: Bessel and Airy functions, orthogonal polynomials."""
