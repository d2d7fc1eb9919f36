"""Every ``name_`` does what ``name`` does, in the tensor's own memory, with and without autograd."""

import pytest

import tenon

pytestmark = [pytest.mark.oracle, pytest.mark.together]

UNARY = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "nan_to_num",
    "zero",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "fmod",
    "remainder",
    "floor_divide",
    "atan2",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "copy",
    "lerp",
    "clamp",
    "xlogy",
    "hypot",
]
NUMBERLESS = ["atan2", "hypot", "logical_and", "logical_or", "logical_xor", "lerp"]
UNTRACKED = ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "floor_divide"]
EXTRA = {"lerp": (0.25,)}


def values(t, name):
    return t.arange(6, dtype=t.float64).reshape(2, 3) * 0.11 + 0.2


def has(t, name):
    return hasattr(t.Tensor, f"{name}_")


@pytest.mark.parametrize("tracked", [False, True], ids=["plain", "tracked"])
@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("zero",)] + ["zero"])
def test_unary_forms(name, tracked, parity):
    def program(t):
        x = values(t, name).requires_grad_(tracked)
        y = x * 1
        z = getattr(y, f"{name}_")()
        if tracked and z.requires_grad:
            (y * y).sum().backward()
        return z is y, y, x.grad, y._version

    parity(program)


@pytest.mark.parametrize("tracked", [False, True], ids=["plain", "tracked"])
@pytest.mark.parametrize("other", ["number", "tensor", "row", "scalar"])
@pytest.mark.parametrize("name", BINARY)
def test_binary_forms(name, other, tracked, parity):
    if tracked and name in UNTRACKED:
        pytest.skip("no gradient flows; torch has zeros or an error")
    if other == "number" and name in NUMBERLESS:
        pytest.skip("torch takes no number here")

    def program(t):
        if not has(t, name):
            return None
        x = values(t, name).requires_grad_(tracked)
        w = {
            "number": 1.7,
            "tensor": values(t, "w") + 0.7,
            "row": t.tensor([1.5, 2.5, 0.5], dtype=t.float64),
            "scalar": t.tensor(1.25, dtype=t.float64),
        }[other]
        if tracked and other != "number" and name not in ("clamp",):
            w.requires_grad_()
        y = x * 1
        z = getattr(y, f"{name}_")(w, *EXTRA.get(name, ()))
        if tracked and z.requires_grad:
            (y * y).sum().backward()
        return z is y, y, x.grad, getattr(w, "grad", None)

    parity(program)


@pytest.mark.parametrize("kind", ["int64", "bool", "float16", "uint8"])
@pytest.mark.parametrize("name", ["add", "mul", "sub", "div", "pow", "floor_divide", "eq", "logical_and"])
def test_forms_on_other_dtypes(name, kind, parity):
    def program(t):
        if not has(t, name) or (kind == "bool" and name == "floor_divide"):
            return None
        x = t.tensor([1, 0, 3]).to(getattr(t, kind))
        return getattr(x, f"{name}_")(t.tensor([2, 1, 1]).to(getattr(t, kind))), x

    parity(program)


@pytest.mark.parametrize("layout", ["strided", "transposed", "row"])
def test_forms_on_views_write_through(layout, parity):
    def program(t):
        base = t.arange(24, dtype=t.float64).reshape(4, 6)
        view = {"strided": base[::2, ::3], "transposed": base.t(), "row": base[1]}[layout]
        view.mul_(2).add_(1).clamp_(max=30)
        view.copy_(view.exp().log())
        return base, view

    parity(program)


def test_alpha_and_value_arguments(parity):
    def program(t):
        x, y = t.ones(3), t.arange(3.0)
        return (
            x.clone().add_(y, alpha=0.5), x.clone().sub_(y, alpha=2), x.clone().addcmul_(y, y, value=0.1),
            x.clone().addcdiv_(y, y + 1, value=-1), x.clone().div_(y + 1, rounding_mode="floor"), x.clone().lerp_(y, 0.3),
            x.clone().fill_(2.5), x.clone().fill_(t.tensor(3)), x.clone().clamp_(min=y), x.clone().masked_fill_(y > 1, 9),
        )  # fmt: skip

    parity(program)


@pytest.mark.parametrize("name", ["add", "mul", "copy"])
def test_a_failed_change_leaves_the_tensor_as_it_was(name):
    x = tenon.ones(3)
    version = x._version

    with pytest.raises(RuntimeError):
        getattr(x, f"{name}_")(tenon.ones(2, 2))

    assert x.tolist() == [1.0, 1.0, 1.0]
    assert x._version == version


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(x.t()),
        lambda x: x.mul_(x[0]),
        lambda x: x[1:].copy_(x[:-1]),
        lambda x: x.lerp_(x, x[0]),
        lambda x: x.pow_(x.t()),
        lambda x: tenon.addcmul(x, x[0], x, out=x),
        lambda x: x[0].index_add_(0, tenon.tensor([1]), x[0, :1]),
        lambda x: x.scatter_(0, tenon.tensor([[2, 1, 0]]), x[:1]),
        lambda x: x.put_(tenon.tensor(1), x[2, 2]),
        lambda x: x[:1, :1].expand(2, 2).bernoulli_(),
    ],
)
def test_what_is_read_may_not_be_overwritten_in_part(write):
    x = tenon.arange(9.0).reshape(3, 3)

    with pytest.raises(RuntimeError, match="unsupported operation: "):
        write(x)
    assert tenon.equal(x, tenon.arange(9.0).reshape(3, 3))


def test_what_is_read_may_be_overwritten_as_a_whole_or_as_a_number():
    x = tenon.arange(9.0).reshape(3, 3)

    x.add_(x.view(3, 3)).fill_(x[1, 1])
    x.masked_fill_(x > 3, x[0, 0]).index_fill_(0, tenon.tensor([1]), x[2, 2])
    x[x > 9] = x[0, 0]
    x[0].copy_(x[1])
    tenon.exp(x[0], out=x[1])

    assert x.tolist() == [[8.0] * 3, [pytest.approx(2980.958)] * 3, [8.0] * 3]


def test_integers_take_what_bernoulli_draws():
    x = tenon.full((8,), 5)

    tenon.bernoulli(tenon.tensor([0.0, 1.0] * 4), out=x)

    assert x.tolist() == [0, 1] * 4


def test_infinities_in_place_warn_no_more_than_elsewhere():
    x = tenon.full((3,), float("inf"))

    x.mul_(tenon.zeros(()))
    x.sub_(float("inf"))

    assert x.isnan().all().item()


def test_products_with_alpha_and_value_are_in_the_dtype_of_the_result():
    short = tenon.tensor([100, -100], dtype=tenon.int8)

    for dtype in (tenon.float32, tenon.float16, tenon.int32):
        zeros = tenon.zeros(2, dtype=dtype)
        assert (
            tenon.add(zeros, short, alpha=2).tolist()
            == zeros.clone().add_(short, alpha=2).tolist()
            == [200, -200]
        )
        assert (
            tenon.sub(zeros, short, alpha=2).tolist()
            == tenon.rsub(short, zeros, alpha=2).tolist()
            == [-200, 200]
        )
        assert tenon.addcmul(zeros, short, short, value=2).tolist() == [20000, 20000]
