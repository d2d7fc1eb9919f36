"""``tenon plan``: predict the traffic, the memory and the time of a run on many ranks."""
