"""``tenon plan``: predict what a run on many ranks would send, need and take."""
