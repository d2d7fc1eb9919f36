"""The target ``c``: a captured graph as C99 without dependencies that allocates no memory after its start."""
