"""Floats in place of integers, numbers in place of flags, and other values that a setting cannot be, are refused."""

import math

import numpy as np
import pytest
from parity.wrong_settings import calls, compared

import tenon
import tenon.nn.functional as F
from tenon import nn
from tenon.utils.data import DataLoader

ONES = tenon.ones(1, 4, 4, 4)
OPTIMIZED = [nn.Parameter(tenon.ones(2))]

#: Where an integer is needed -> the call, by that argument.
WHOLE = {
    "softmax(): argument 'dim' (position 2)": lambda v: nn.Softmax(v)(ONES),
    "log_softmax(): argument 'dim' (position 2)": lambda v: nn.LogSoftmax(v)(ONES),
    "pixel_shuffle(): argument 'upscale_factor' (position 2)": lambda v: nn.PixelShuffle(v)(ONES),
    "pixel_unshuffle(): argument 'downscale_factor' (position 2)": lambda v: nn.PixelUnshuffle(v)(ONES),
    "conv2d(): argument 'groups' (position 7)": lambda v: F.conv2d(ONES, tenon.ones(1, 4, 1, 1), groups=v),
    "cross_entropy(): argument 'ignore_index' (position 5)": lambda v: F.cross_entropy(
        tenon.ones(2, 3), tenon.tensor([0, 1]), ignore_index=v
    ),
    "nll_loss(): argument 'ignore_index' (position 5)": lambda v: F.nll_loss(
        tenon.ones(2, 3), tenon.tensor([0, 1]), ignore_index=v
    ),
    "select(): argument 'index' (position 3)": lambda v: tenon.select(ONES, 1, v),
}
#: The same for flags.
FLAGS = {
    "max(): argument 'keepdim'": lambda v: ONES.max(1, keepdim=v),
    "min(): argument 'keepdim'": lambda v: ONES.min(1, keepdim=v),
    "median(): argument 'keepdim'": lambda v: ONES.median(1, keepdim=v),
    "nanmedian(): argument 'keepdim'": lambda v: ONES.nanmedian(1, keepdim=v),
    "mode(): argument 'keepdim'": lambda v: ONES.mode(1, keepdim=v),
    "kthvalue(): argument 'keepdim'": lambda v: ONES.kthvalue(1, 1, keepdim=v),
    "max(): argument 'keepdim' ": lambda v: ONES.max(axis=1, keepdims=v),
    "sum(): argument 'keepdim'": lambda v: ONES.sum(1, keepdim=v),
    "sum(): argument 'keepdim' ": lambda v: ONES.sum(1, True, keepdims=v),
    "mean(): argument 'keepdim'": lambda v: ONES.mean(1, v),
    "prod(): argument 'keepdim'": lambda v: ONES.prod(1, v),
    "prod(): argument 'keepdim' ": lambda v: tenon.prod(ONES, axis=1, keepdims=v),
    "nansum(): argument 'keepdim'": lambda v: ONES.nansum(1, v),
    "nanmean(): argument 'keepdim'": lambda v: ONES.nanmean(1, v),
    "var(): argument 'keepdim'": lambda v: ONES.var(1, keepdim=v),
    "std(): argument 'keepdim'": lambda v: ONES.std(1, keepdim=v),
    "var(): argument 'unbiased'": lambda v: ONES.var(1, unbiased=v),
    "std(): argument 'unbiased'": lambda v: ONES.std(1, v),
    "var_mean(): argument 'keepdim'": lambda v: tenon.var_mean(ONES, 1, keepdim=v),
    "std_mean(): argument 'keepdim'": lambda v: tenon.std_mean(ONES, 1, keepdim=v),
    "logsumexp(): argument 'keepdim'": lambda v: ONES.logsumexp(1, v),
    "amax(): argument 'keepdim'": lambda v: ONES.amax(1, v),
    "amin(): argument 'keepdim'": lambda v: ONES.amin(1, v),
    "aminmax(): argument 'keepdim'": lambda v: ONES.aminmax(dim=1, keepdim=v),
    "argmax(): argument 'keepdim'": lambda v: ONES.argmax(1, v),
    "argmin(): argument 'keepdim'": lambda v: ONES.argmin(1, v),
    "any(): argument 'keepdim'": lambda v: ONES.any(1, v),
    "all(): argument 'keepdim'": lambda v: ONES.all(1, v),
    "norm(): argument 'keepdim'": lambda v: ONES.norm(2, 1, v),
    "quantile(): argument 'keepdim'": lambda v: ONES.quantile(0.5, 1, v),
    "nanquantile(): argument 'keepdim'": lambda v: ONES.nanquantile(0.5, 1, v),
    "hash_tensor(): argument 'keepdim'": lambda v: ONES.hash_tensor(1, keepdim=v),
    "linalg_vector_norm(): argument 'keepdim'": lambda v: tenon.linalg.norm(ONES, dim=1, keepdim=v),
    "linalg_matrix_norm(): argument 'keepdim'": lambda v: tenon.linalg.matrix_norm(ONES, 2, keepdim=v),
    "pairwise_distance(): argument 'keepdim'": lambda v: F.pairwise_distance(ONES, ONES, keepdim=v),
    "to(): argument 'copy'": lambda v: ONES.to(tenon.float64, copy=v),
    "to(): argument 'non_blocking'": lambda v: ONES.to("cpu", non_blocking=v),
    "sort(): argument 'descending'": lambda v: ONES.sort(descending=v),
    "argsort(): argument 'descending'": lambda v: ONES.argsort(descending=v),
    "topk(): argument 'largest'": lambda v: ONES.topk(1, largest=v),
    "unique(): argument 'return_inverse'": lambda v: ONES.unique(return_inverse=v),
    "unique_consecutive(): argument 'return_counts'": lambda v: ONES.unique_consecutive(return_counts=v),
    "interpolate(): argument 'align_corners'": lambda v: F.interpolate(
        ONES, scale_factor=2, mode="bilinear", align_corners=v
    ),
}

#: Those that may be None.
OPTIONAL = {
    "interpolate(): argument 'align_corners'",
    "sum(): argument 'keepdim' ",
    "var(): argument 'unbiased'",
    "std(): argument 'unbiased'",
}


@pytest.mark.parametrize("words", WHOLE)
def test_a_float_is_no_integer(words):
    for value in (1.0, 1.5, math.nan):
        with pytest.raises(TypeError, match=r"must be int|cannot be interpreted as an integer") as raised:
            WHOLE[words](value)
        assert words in str(raised.value)
    WHOLE[words](np.int64(1))


@pytest.mark.parametrize("words", FLAGS)
def test_only_bools_are_flags(words):
    for value in ("a", 1.5, 2, None, [1]):
        if value is None and words in OPTIONAL:
            continue
        with pytest.raises(TypeError) as raised:
            FLAGS[words](value)
        assert f"{words.strip()} must be bool, not {type(value).__name__}" in str(raised.value)
    FLAGS[words](np.bool_(True))


def test_only_bools_and_integers_are_flags_of_backward_passes():
    def run(pass_of):
        x = tenon.ones(2, requires_grad=True)
        pass_of((x * x).sum(), x)
        return x.grad

    passes = {
        ("backward", "retain_graph"): lambda y, x, v: y.backward(retain_graph=v),
        ("backward", "create_graph"): lambda y, x, v: tenon.autograd.backward([y], create_graph=v),
        **{
            ("grad", name): lambda y, x, v, name=name: tenon.autograd.grad(y, x, **{name: v})
            for name in (
                "retain_graph", "create_graph", "allow_unused", "materialize_grads", "is_grads_batched"
            )
        },
    }  # fmt: skip

    for (function, name), call in passes.items():
        for value in ("a", 1.0, [1]):
            with pytest.raises(TypeError) as raised:
                run(lambda y, x, call=call, value=value: call(y, x, value))
            words = f"{function}(): argument '{name}' must be bool, not {type(value).__name__}"
            assert str(raised.value) == words
        for value in (0, False, np.bool_(False)):
            run(lambda y, x, call=call, value=value: call(y, x, value))
    for name in ("create_graph", "materialize_grads"):
        with pytest.raises(TypeError, match="must be bool, not NoneType"):
            run(lambda y, x, name=name: passes["grad", name](y, x, None))


def test_numbers_in_place_of_nan_are_real():
    for x in (ONES, ONES.int(), ONES * 1j):
        for name in ("nan", "posinf", "neginf"):
            for value in (1j, "a", [1], np.complex64(1)):
                with pytest.raises(
                    TypeError, match=rf"nan_to_num\(\): argument '{name}' must be float, not "
                ):
                    tenon.nan_to_num(x, **{name: value})
            assert tenon.nan_to_num(x, **{name: np.float32(2)}).equal(x)

    assert tenon.tensor(math.nan).nan_to_num(None) == 0


def test_delta_of_the_huber_loss_is_positive():
    for delta in (math.nan, 0, -1.0):
        with pytest.raises(ValueError, match="does not support non-positive values for delta"):
            nn.HuberLoss(delta=delta)(ONES, ONES)


def test_counts_of_lbfgs_are_integers():
    for name in ("history_size", "max_iter", "max_eval"):
        for value in ("a", 1.5, -1, math.nan):
            with pytest.raises(ValueError, match=f"Invalid {name} value: {value!r}"):
                tenon.optim.LBFGS(OPTIMIZED, **{name: value})


def test_a_generator_is_seeded_by_an_integer():
    for seed in (1.5, True, "a", None):
        with pytest.raises(RuntimeError, match=f"manual_seed expected a long, but got {type(seed).__name__}"):
            tenon.Generator().manual_seed(seed)

    assert tenon.Generator().manual_seed(np.int64(7)).initial_seed() == 7
    assert tenon.manual_seed(7.9).initial_seed() == 7  # as in PyTorch


def test_collate_fn_of_a_loader_is_a_function():
    for value in (0, "a", [print]):
        with pytest.raises(TypeError, match="collate_fn must be a function of a list of samples, got"):
            DataLoader([1, 2], collate_fn=value)


class Overriding:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func, args


def test_functions_of_random_numbers_and_device_are_overridden():
    it, ones = Overriding(), tenon.ones(2)
    for function, args in (
        (tenon.poisson, (it,)),
        (tenon.poisson, (ones, it)),
        (tenon.binomial, (it, ones)),
        (tenon._standard_gamma, (it,)),
        (tenon.device, (it,)),
        (tenon.device, ("cpu", it)),
    ):
        assert function(*args) == (function, args)

    assert tenon.device("cpu") == tenon.device(tenon.device("cpu"))
    with pytest.raises(TypeError, match="argument 'type' must be str, int or device"):
        tenon.device(ones)


NAN = math.nan
ROW = tenon.tensor([[1.0, 2.0, 3.0, 4.0]])
COUNTS = tenon.ones(2, dtype=tenon.int32)
#: Calls with numbers out of the domain of a setting, which PyTorch refuses, by words of the error.
OUTSIDE = {
    "Invalid number of data points (-1) specified": [
        *(lambda name=name: getattr(tenon.fft, name)(ROW, -1) for name in ("fft", "rfft", "irfft", "ihfft"))
    ],
    "lambda must be greater or equal to 0": [lambda: F.softshrink(ROW, NAN)],
    "divisor_override": [lambda v=v: F.avg_pool2d(ROW, (1, 2), divisor_override=v) for v in (2.5, math.inf)],
    "row must be non-negative": [lambda: tenon.tril_indices(-1, 2), lambda: tenon.triu_indices(-1, 2)],
    "col must be non-negative": [lambda: tenon.tril_indices(2, -1), lambda: tenon.triu_indices(2, -1)],
    "eps must be non-negative": [lambda v=v: F.cosine_similarity(ROW, ROW, eps=v) for v in (-1, NAN)],
    "only supports non-negative p values": [lambda: tenon.cdist(ROW, ROW, NAN), lambda: F.pdist(ROW, NAN)],
    "non-positive-norm not supported": [lambda: ROW.renorm(NAN, 0, 1.0)],
    "expected maxnorm to be >= 0": [lambda v=v: ROW.renorm(2, 0, v) for v in (-1.0, NAN)],
    "does not support negative values for beta": [lambda: F.smooth_l1_loss(ROW, ROW, beta=NAN)],
    "shifts and dimensions must align": [lambda: tenon.roll(ROW, (1, 2))],
    "must be greater than or equal to zero, but got nan": [lambda: tenon.isclose(ROW, ROW, rtol=NAN)],
    "argument beta must not be a floating point": [
        lambda: tenon.addr(tenon.ones(2, 2, dtype=tenon.int32), COUNTS, COUNTS, beta=0.5)
    ],
    "int": [
        lambda: ROW.rot90(1.5),
        lambda: ROW.tril(0.5),
        lambda: ROW.triu(0.5),
        lambda: tenon.hann_window(2.5),
        lambda: tenon.signal.windows.bartlett(1.5),
    ],
}


@pytest.mark.parametrize("words", OUTSIDE)
def test_numbers_out_of_the_domain_of_a_setting_are_refused(words):
    for call in OUTSIDE[words]:
        with pytest.raises((RuntimeError, ValueError, TypeError)) as raised:
            call()
        assert words in str(raised.value)


@pytest.mark.oracle
def test_the_sweep_of_settings_finds_what_torch_refuses(monkeypatch):
    pytest.importorskip("torch")
    case, place, value = next(c for c in calls() if c[0].name == "roll" and c[1] == 1 and c[2] == 1.5)
    assert compared(case, place, value) is None

    monkeypatch.setattr(tenon, "roll", lambda x, *_: x)

    assert "computes: torch TypeError: roll()" in compared(case, place, value)
