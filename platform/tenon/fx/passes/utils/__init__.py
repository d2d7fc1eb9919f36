"""Finding subgraphs in a graph, and making modules of them."""
