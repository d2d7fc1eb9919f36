"""Special functions that networks rarely use: Bessel and Airy functions, orthogonal polynomials."""
