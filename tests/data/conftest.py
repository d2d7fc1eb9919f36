"""Lets the tests here import ``data_samples``, as worker processes do too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
