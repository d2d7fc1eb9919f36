"""Makes ``parity.*`` importable for the tests: one differential suite, told as data in ``catalogue/``."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
