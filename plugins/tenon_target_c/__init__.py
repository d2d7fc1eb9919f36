"""The target ``c``: a captured graph as C99 with no dependency, in which nothing is allocated after start."""
