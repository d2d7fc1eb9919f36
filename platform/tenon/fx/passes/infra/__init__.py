"""What passes are made of, how they are run in order, and partitions of graphs."""
