"""``GradScaler`` inside compiled steps: overflows, growth, and the random stream are those of eager code."""

import pytest

import tenon
from tenon import nn, optim
from tenon.amp import GradScaler
from tenon.errors import CaptureError
from tenon.nn import functional as F


def scaled(twins, overflows=(), clip=False, half=False):
    """``build`` of a step whose input is infinite at the calls in ``overflows``; the scale grows every 4th."""

    def build():
        model = twins.mlp(0.3)
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        scaler = GradScaler("cpu", init_scale=8.0, growth_interval=4)

        def step(x, y):
            optimizer.zero_grad()
            with tenon.autocast("cpu", dtype=tenon.bfloat16, enabled=half):
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            return loss

        def arguments(i):
            build.scales.append(scaler.get_scale())
            return twins.batch(i) * (float("inf") if i in overflows else 1.0), twins.batch(i, 5, 3)

        return step, arguments, (model, optimizer)

    build.scales = []
    return build


@pytest.mark.parametrize(
    ("overflows", "clip"),
    [
        ((9,), False),
        ((1, 2, 12, 13), True),
        pytest.param((), False, marks=pytest.mark.slow),
        pytest.param((), True, marks=pytest.mark.slow),
        pytest.param((9,), True, marks=pytest.mark.slow),
        pytest.param((1, 2, 12, 13), False, marks=pytest.mark.slow),
    ],
)
def test_overflows_and_growth_are_those_of_eager_code(twins, overflows, clip):
    build = scaled(twins, overflows, clip)

    step = twins.check(build, calls=20, tolerance=1e-4)

    half = len(build.scales) // 2
    assert build.scales[:half] == build.scales[half:]
    assert len(set(build.scales)) > 2
    assert any("ran eagerly: the scale grows" in reason for reason in step.reasons)
    assert any("infinite or NaN" in reason for reason in step.reasons) == bool(overflows)


def test_with_autocast_the_step_is_compiled_too(twins):
    step = twins.check(scaled(twins, half=True), calls=12, tolerance=3e-2)

    assert "bfloat16" in step.programs[0].source


def test_a_step_without_its_update_is_refused(twins):
    model = twins.mlp()
    optimizer, scaler = optim.SGD(model.parameters(), lr=0.1), GradScaler("cpu")

    def step(x):
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)

    compiled = tenon.compile(step, fullgraph=True)
    compiled(twins.batch(0))
    scaler.update()
    with pytest.raises(CaptureError, match="without update"):
        compiled(twins.batch(1))


def test_an_update_without_its_step_is_refused(twins):
    model = twins.mlp()
    optimizer, scaler = optim.SGD(model.parameters(), lr=0.1), GradScaler("cpu")
    update = tenon.compile(scaler.update)

    with pytest.warns(UserWarning, match="without step"):
        for i in range(5):
            optimizer.zero_grad()
            scaler.scale(model(twins.batch(i)).sum()).backward()
            scaler.step(optimizer)
            update()
