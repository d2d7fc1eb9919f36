"""Makes ``distributions.cases`` importable for the tests next to it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
