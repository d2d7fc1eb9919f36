"""What cannot be written is named, all at once and with its place."""

import numpy as np
import pytest

import tenon
from tenon import export, nn
from tenon.errors import DTypeError, LoweringError
from tenon.export.bundle import target_named
from tenon_target_numpy.target import NumpyTarget


class Strange(nn.Module):
    def forward(self, x):
        return tenon.lgamma(x) + tenon.digamma(x)


def test_ops_are_named_with_their_modules_and_nothing_is_written(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), Strange())
    graph = export.capture(model, tenon.randn(2, 3))

    with pytest.raises(LoweringError) as caught:
        export.save(graph, tmp_path / "bundle", targets=[NumpyTarget()])

    text = str(caught.value)
    assert "digamma (1 at " in text and "lgamma (1 at " in text
    assert not (tmp_path / "bundle").exists()


def test_bfloat16_is_refused_by_name(tmp_path):
    model = nn.Linear(3, 2).to(tenon.bfloat16)
    graph = export.capture(model, tenon.randn(2, 3).to(tenon.bfloat16))

    with pytest.raises(
        LoweringError, match=r"weight of bfloat16.*NumPy has no bfloat16: convert the model by .float"
    ):
        export.save(graph, tmp_path / "bundle", targets=[NumpyTarget()])


def mixed(x):
    return (
        tenon.special.zeta(x + 2, x + 1) + (x.half() * 3).float(),
        (x.bfloat16() * 2).float(),
        tenon.lgamma(x),
    )


@pytest.mark.parametrize("target", ["numpy", "c"])
def test_missing_ops_and_dtypes_are_named_at_once_with_the_callers_lines(target):
    graph = export.capture(mixed, tenon.rand(3, 2))

    with pytest.raises(LoweringError) as caught:
        target_named(target).lowered(graph)

    text = str(caught.value)
    assert "does not support" in text and f"zeta (the function at {__file__}:" in text
    assert ". Not supported either: " in text and "mul of bfloat16" in text
    assert ("lgamma" in text, "mul of float16" in text) == (
        (True, False) if target == "numpy" else (False, True)
    )


def test_other_dtypes_get_no_hint_for_bfloat16(tmp_path):
    with pytest.raises(LoweringError, match=r"x of complex64 .*Change them in the model") as caught:
        export.save(
            lambda x: x.abs(), tmp_path / "bundle", (tenon.ones(2).to(tenon.complex64),), targets=["numpy"]
        )
    assert "bfloat16" not in str(caught.value)


def test_weights_of_4_bits_become_floats(tmp_path):
    model = tenon.quantize(nn.Linear(32, 3).eval(), "int4-weights").model
    folder = export.save(model, tmp_path / "bundle", (tenon.randn(2, 32),), targets=["numpy"])

    assert "state[" in (folder / "numpy" / "runner.py").read_text()
    assert export.verify(folder).passed


def test_random_numbers_are_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    graph = export.capture(model, tenon.randn(2, 3))

    with pytest.raises(LoweringError, match="dropout_mask"):
        NumpyTarget().lowered(graph)


def test_a_dtype_that_no_file_has_is_refused_by_a_run(tmp_path):
    folder = export.save(
        nn.Linear(3, 2), tmp_path / "bundle", calls=[(tenon.randn(2, 3),)], targets=["numpy"]
    )

    with pytest.raises(DTypeError, match="has dtype complex64; files have"):
        NumpyTarget().run(folder / "numpy", [[np.zeros((2, 3), np.complex64)]])
