"""Constructors of plugins refuse values of wrong kinds and absurd sizes at once, by one error that names both."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import TenonError
from tenon.export import Dim
from tenon.nn.utils import prune
from tenon.profiler import profile, schedule
from tenon.quantization import quantize
from tenon_compress.prune.schedules import Gradual, Lottery, OneShot, Pruner
from tenon_compress.prune.structured import NOfM
from tenon_compress.quantize.observers import Entropy, Histogram, MovingAverage
from tenon_compress.quantize.static import Int8
from tenon_compress.quantize.weights import Int4Weights
from tenon_target_onnx.model import Options
from tenon_target_onnx.target import OnnxTarget

NO_NUMBERS = ("x", "", b"a", 1j, [1], {}, object())
NAN = (math.nan,)
INFINITE = (math.inf, -math.inf)
HUGE = (2**70,)
WHOLE = (*NO_NUMBERS, *NAN, *INFINITE, *HUGE, -0.5, 1.5, True, np.float32(0.5), np.bool_(True))
TEXT = (-1, 0, 2**70, math.nan, True, None, 1j, [1], {}, b"a", object())
STEPS = {"wait": 1, "warmup": 1, "active": 2, "repeat": 1, "skip_first": 0}

#: Owner, a call of it, an argument, and what is refused in its place.
TABLE = [
    ("RandomStructured", lambda **a: prune.RandomStructured(0.5, **a), "dim", (*WHOLE, None)),
    ("LnStructured", lambda **a: prune.LnStructured(0.5, **{"n": 2, **a}), "dim", (*WHOLE, None)),
    ("LnStructured", lambda **a: prune.LnStructured(0.5, **a), "n", (*NO_NUMBERS, *NAN, True, None)),
    ("NOfM", NOfM, "kept", (*WHOLE, None, -1, 0, 4)),
    ("NOfM", NOfM, "of", (*WHOLE, None, -1, 0, 2)),
    ("CustomFromMask", prune.CustomFromMask, "mask", (*TEXT, "x", np.ones(3))),
    ("OneShot", OneShot, "begin", (*WHOLE, None, -1)),
    ("OneShot", OneShot, "rewind", (*WHOLE, -1)),
    ("Gradual", lambda **a: Gradual(**{"end": 5, **a}), "end", (*WHOLE, None, -1, 0)),
    ("Gradual", lambda **a: Gradual(5, **a), "begin", (*WHOLE, None, -1)),
    ("Gradual", lambda **a: Gradual(5, **a), "every", (*WHOLE, None, -1, 0)),
    ("Lottery", lambda **a: Lottery(**{"every": 5, **a}), "every", (*WHOLE, None, -1, 0)),
    ("Lottery", lambda **a: Lottery(5, **a), "rounds", (*WHOLE, None, -1, 0)),
    ("Pruner", lambda **a: Pruner(a["model"], 0.5, OneShot()), "model", (*TEXT, "x")),
    ("Pruner", lambda **a: Pruner(nn.Linear(2, 2), 0.5, a["schedule"]), "schedule", (*TEXT, "x")),
    ("Pruner", lambda **a: Pruner(nn.Linear(2, 2), 0.5, OneShot(), **a), "keep", (*TEXT[:8], "x")),
    ("MovingAverage", MovingAverage, "share", (*NO_NUMBERS, *NAN, *INFINITE, *HUGE, -1, 1.5, True, None)),
    ("Histogram", Histogram, "bins", (*WHOLE, None, -1, 0)),
    ("Entropy", Entropy, "bins", (*WHOLE, None, -1, 0)),
    ("Int4Weights", Int4Weights, "group", (*WHOLE, None, -1, 0, 3)),
    ("Int8", Int8, "observer", (*TEXT, "x", "")),
    ("Int8", Int8, "weights", (*TEXT, "x", "int8")),
    *(("schedule", lambda **a: schedule(**{**STEPS, **a}), name, (*WHOLE, None, -1)) for name in STEPS),
    ("schedule", lambda **a: schedule(**STEPS, **a), "skip_first_wait", (*NO_NUMBERS, *NAN)),
    ("profile", profile, "activities", (-1, 2**70, math.nan, True, 1j, object(), [1])),
    ("quantize", lambda **a: quantize(nn.Linear(2, 2), "int8-weights", **a), "skip", (*TEXT[:8], "x", b"a")),
    (
        "quantize",
        lambda **a: quantize(nn.Linear(2, 2), "int8-weights", **a),
        "batch_sizes",
        (*WHOLE[:3], None, [0]),
    ),
    *(
        ("profile", profile, name, ("x", -1, math.nan, True, 1j, [1], {}))
        for name in ("schedule", "on_trace_ready", "custom_trace_id_callback")
    ),
    *(
        ("profile", profile, name, (*NO_NUMBERS, *NAN, *INFINITE))
        for name in (
            "record_shapes",
            "profile_memory",
            "with_stack",
            "with_flops",
            "with_modules",
            "acc_events",
        )
    ),
    ("Dim", lambda **a: Dim("n", **a), "min", (*WHOLE, -1)),
    ("Dim", lambda **a: Dim("n", **a), "max", (*WHOLE, -1)),
    ("OnnxTarget", OnnxTarget, "options", ("x", -1, True, [1], {})),
    ("Options", Options, "opset", (*WHOLE, None, -1, 0)),
    ("Options", Options, "input_names", (*TEXT[:8], "x")),
    ("Options", Options, "largest", (*WHOLE, None, -1)),
    ("Options", Options, "parameters", (*NO_NUMBERS, *NAN)),
    ("Options", Options, "metadata", ("x", -1, True, None, [1])),
]


@pytest.mark.parametrize(("owner", "call", "name", "values"), TABLE, ids=[f"{o}.{n}" for o, _, n, _ in TABLE])
def test_absurd_settings_are_refused_at_construction(owner, call, name, values):
    for value in values:
        with pytest.raises(TenonError) as caught:
            call(**{name: value})
        text = str(caught.value)
        assert name in text and (repr(value)[:20] in text or str(value) in text), (value, text)


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "log_dir": (-1, 0, 2**70, math.nan, True, 1j, [1], {}, b"a", object()),
        "comment": TEXT,
        "filename_suffix": TEXT,
        "purge_step": (*NO_NUMBERS, *NAN, *INFINITE, *HUGE, -1, -0.5, 1.5, True),
        "max_queue": (*WHOLE, None, -1),
        "flush_secs": (*NO_NUMBERS, *NAN, -1, -0.5, True, None),
    }.items(),
)
def test_summary_writers_refuse_absurd_settings_before_they_create_a_folder(
    name, values, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    from tenon.utils.tensorboard import SummaryWriter

    for value in values:
        with pytest.raises(TenonError, match=f"SummaryWriter: {name} must be"):
            SummaryWriter(**{"log_dir": "run", name: value})

    assert not list(tmp_path.iterdir())


def test_settings_that_mean_something_are_accepted():
    prune.LnStructured(0.5, n="fro", dim=np.int64(-1))
    prune.LnStructured(1, n=-math.inf)
    prune.CustomFromMask(tenon.ones(2))
    schedule(wait=0, warmup=0, active=1, skip_first_wait=1)
    profile(record_shapes=1, schedule=None, on_trace_ready=print)
    assert Int4Weights(np.int64(4)).group == 4
    assert MovingAverage(1).share == 1 and MovingAverage(0.5).share == 0.5
    assert Dim("n", min=0, max=2**40).max == 2**40
