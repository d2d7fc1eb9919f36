"""Find subgraphs of a graph, and replace them by modules."""
