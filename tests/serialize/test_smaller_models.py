"""Files of pruned and quantized models that earlier versions wrote load, with the same outputs."""

import sys
from pathlib import Path

import pytest

import tenon

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
try:
    from former_models import MODELS, masked, trained_for_int8
finally:
    sys.path.remove(str(HERE))

#: Products in bfloat16 are rounded differently where the processor has them.
LOOSE = {"bfloat16": 2e-2}


def loaded(name, saved):
    make, _, shrink = MODELS[name]
    if shrink in (masked, trained_for_int8):  # the same classes and keys: made alike, then loaded
        model = shrink(make(), saved["input"])
        model.load_state_dict(saved["state"])
        return model
    return tenon.compress.load(make(), saved["state"])


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_an_earlier_version_loads_to_equal_outputs(name):
    saved = tenon.load(HERE / "data" / f"{name}.pt")

    model = loaded(name, saved).eval()

    with tenon.no_grad():
        output = model(saved["input"])
    tolerance = LOOSE.get(name, 1e-5)
    tenon.testing.assert_close(output, saved["output"], rtol=tolerance, atol=tolerance)
    assert model.state_dict().keys() == saved["state"].keys()
