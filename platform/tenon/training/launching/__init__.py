"""``tenon launch``: start ranks, start them again when they fail, on the hosts that are there."""
