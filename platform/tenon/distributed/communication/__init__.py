"""What ranks say to each other: the communicator, its calls, how numbers are reduced, who speaks here."""
