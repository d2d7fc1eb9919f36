"""Powers and logarithms of sums at the ends of the number line: what C's ``pow`` gives, and PyTorch."""

import math

import pytest

import tenon

pytestmark = pytest.mark.together

KINDS = ("float32", "float64", "float16", "bfloat16")
INF = math.inf


def eagerly(function):
    return function


@pytest.mark.parametrize("run", [eagerly, tenon.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_0_5_as_exponent_takes_a_power_and_no_root(kind, run):
    x = tenon.tensor([-INF, -0.0, 4.0], dtype=getattr(tenon, kind))
    half = tenon.tensor(0.5, dtype=x.dtype)
    exponents = [
        half,
        half.reshape(1),
        half.expand(3),
        half.expand(3).clone(),
        half.expand(2, 1),
        half.expand(2, 1).clone(),
    ]

    for exponent in exponents:
        power = run(lambda x, y: x**y)
        for _ in range(3):
            found = power(x, exponent)
        assert found.reshape(-1, 3).tolist()[-1] == [INF, 0.0, 2.0]
        assert not found.signbit().any()
        assert power(x, -exponent).reshape(-1, 3).tolist()[-1] == [0.0, INF, 0.5]
    assert (x[0] ** half).item() == INF and x.clone().pow_(half).tolist() == [INF, 0.0, 2.0]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_a_power_of_a_tensor_0_5_are_those_of_the_formula(kind):
    x = tenon.tensor([-INF, 4.0], dtype=getattr(tenon, kind), requires_grad=True)

    (x ** tenon.tensor(1.5, dtype=x.dtype)).backward(tenon.ones_like(x))
    slope = x.grad.clone()
    x.grad = None
    (x ** tenon.tensor(0.5, dtype=x.dtype)).backward(tenon.ones_like(x))

    assert slope.tolist() == [INF, 3.0] and x.grad.tolist() == [0.0, 0.25]


@pytest.mark.parametrize("run", [eagerly, tenon.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_infinite_term_has_the_whole_gradient_of_logaddexp(kind, run):
    kind = getattr(tenon, kind)
    x, y = (
        tenon.tensor(values, dtype=kind, requires_grad=True)
        for values in ([INF, 1.0, -INF, 0.0], [2.0, INF, 3.0, 0.0])
    )
    function = run(lambda x, y: tenon.autograd.grad(tenon.logaddexp(x, y).sum(), (x, y)))

    for _ in range(3):
        of_x, of_y = function(x, y)

    assert of_x.tolist() == [1.0, 0.0, 0.0, 0.5] and of_y.tolist() == [0.0, 1.0, 1.0, 0.5]


@pytest.mark.oracle
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (1,), (18, 1), (18, 18)], ids=str)
def test_powers_of_special_values_are_those_of_pytorch(parity, kind, shape):
    largest = {"float16": 65504.0, "bfloat16": 3.38e38}.get(kind, 3.4e38)
    values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        3.0,
        -3.0,
        INF,
        -INF,
        math.nan,
        6e-8,
        1e-40,
        largest,
        -largest,
        7.5,
        1.5,
    ]

    def program(m):
        x = m.tensor(values, dtype=getattr(m, kind))
        exponents = [m.tensor(v, dtype=x.dtype).expand(shape).clone() for v in values if abs(v) != 6e-8]
        powers = [x**y for y in exponents] + [v**x for v in values] + [x**v for v in values]
        return [part for power in powers for part in (power, power.signbit() & (power == power))]

    parity(program)
