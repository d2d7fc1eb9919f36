"""Damaged files of formats with checksums: each is refused, or has the values that were saved."""

import io
import os
import random
import sys
import warnings
from pathlib import Path

import pytest

import tenon
from tenon.errors import TenonError, UncheckedFileWarning

sys.path.insert(0, str(Path(__file__).parent))
from test_files import FIRST, KINDS, damaged, safetensors, saved


def again(kind, value, place):
    """``value`` as a file of that kind."""
    if kind == "pt":
        return saved(tenon.save, value)
    if kind == "safetensors":
        return safetensors(place, value)
    if kind == "program":
        tenon.export.save(value, place / "again.pt2")
        return (place / "again.pt2").read_bytes()
    value.save(place / "again.trace")
    return (place / "again.trace").read_bytes()


def compare_values(kind, count, tmp_path):
    """Read ``count`` damaged files of ``kind``, which has checksums, and compare what loads; return how they ended.

    Each is refused, has the values of the good file, or is reported as a file without checksums.
    """
    good, read, ends = KINDS[kind][0](tmp_path), KINDS[kind][1], []
    true = again(kind, read(io.BytesIO(good)), tmp_path)
    for number in range(FIRST, FIRST + count):
        content = damaged(good, random.Random(f"values of {kind} {number}"))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UncheckedFileWarning)
                value = read(io.BytesIO(content))
        except (TenonError, UncheckedFileWarning) as error:
            ends.append(type(error).__name__)
        else:
            assert again(kind, value, tmp_path) == true, f"{kind} {number}: other values than were saved"
            ends.append("value")
    return ends


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_damaged_files_that_load_have_the_values_that_were_saved(kind, tmp_path):
    ends = compare_values(kind, 25, tmp_path)

    assert len(ends) == 25 and ends.count("value") < 25


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt", "safetensors", "program", "trace"])
def test_many_damaged_files_that_load_have_the_values_that_were_saved(kind, tmp_path):
    ends = compare_values(kind, int(os.environ.get("ATTACK_FILES", "400")), tmp_path)

    assert ends.count("value") < len(ends)
