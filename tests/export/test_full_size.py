"""Bundles of models at the size that people use: every vector within the tolerance, times and sizes printed.

``pytest -m manual -n 0 -s tests/export/test_full_size.py``; it takes minutes, and 4 GB of memory.
"""

import os
import sys
import time
from pathlib import Path

import pytest

import tenon
from tenon import export

sys.path.append(str(Path(__file__).parents[1] / "bench"))
import export as bench  # the programs of tests/bench/export.py
import full_size

pytestmark = pytest.mark.manual


def resnet18():
    model, x = bench.resnet18()
    return model, (x,)


def gpt2():
    return bench.GPT(50257, 768, 12, 12, 1024), (tenon.randint(0, 50257, (1, 128)),)


MODELS = {
    "resnet18": resnet18, "vit": full_size.vit, "unet": full_size.unet, "gpt2": gpt2, "bert": full_size.bert,
}  # fmt: skip


def warmed(model, args):
    """Let batch norms see data, so that outputs have the size of those of a trained model."""
    if any(True for _ in model.buffers()):
        model.train()
        with tenon.no_grad():
            model(*args)
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_full_size_passes(name, tmp_path):
    tenon.manual_seed(0)
    model, args = MODELS[name]()
    warmed(model, args)
    start = time.process_time()
    graph = export.capture(model, *args)
    captured = time.process_time() - start

    folder = export.save(graph, tmp_path / name, targets=["numpy", "onnx"])
    saved = time.process_time() - start - captured
    report = export.verify(folder)

    size = sum(os.path.getsize(f) for f in folder.rglob("*") if f.is_file())
    verdicts = ", ".join(f"{v.target} {v.excess:.2g} in {v.seconds:.1f} s" for v in report.verdicts)
    print(
        f"{name}: {len(graph.calls)} calls, captured in {captured:.1f} s of processor time, written in "
        f"{saved:.1f} s to {size / 1e6:.0f} MB; of the tolerance: {verdicts}"
    )
    assert report.passed
