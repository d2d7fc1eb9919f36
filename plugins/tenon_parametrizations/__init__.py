"""First-party parametrizations of weights: orthogonal, weight and spectral normalization."""
