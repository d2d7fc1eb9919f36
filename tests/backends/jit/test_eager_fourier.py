"""Generated Fourier transforms against NumPy's in float64."""

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.eager_ops import fourier as eager_fourier

pytestmark = pytest.mark.skipif(not llvm.available(), reason="llvmlite is not installed")

BACKEND = tenon.zeros(1)._backend


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def complex_of(rng, *shape):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def close(found, wanted):
    assert found.dtype.itemsize == wanted.dtype.itemsize // 2
    assert found.shape == wanted.shape
    assert float(np.abs(found - wanted).max()) < 4e-7 * float(np.abs(wanted).max())


@pytest.mark.parametrize(
    "size", [16, 1024, *(pytest.param(size, marks=pytest.mark.slow) for size in (8, 128))]
)
@pytest.mark.parametrize("inverse", [False, True])
def test_rows_and_columns_are_transformed(rng, size, inverse):
    x = complex_of(rng, 3, size, max(17, 8192 // size))
    wanted = {False: np.fft.fftn, True: lambda x, axes: np.fft.ifftn(x, axes=axes, norm="forward")}[inverse]
    wide = x.astype(np.complex128)
    rows = np.ascontiguousarray(np.swapaxes(x, 1, 2))

    close(eager_fourier.fft_complex(x, axes=(1,), inverse=inverse, scale=0.5), 0.5 * wanted(wide, axes=(1,)))
    found = eager_fourier.fft_complex(rows, axes=(2,), inverse=inverse)
    close(found, wanted(rows.astype(np.complex128), axes=(2,)))
    turned = eager_fourier.fft_complex(np.swapaxes(x, 1, 2), axes=(2,), inverse=inverse)
    np.testing.assert_array_equal(turned, found)


def test_several_axes_and_real_numbers_are_transformed(rng):
    x = rng.standard_normal((16, 32, 64)).astype(np.float32)

    found = eager_fourier.fft_complex(x, axes=(0, 1, 2), scale=2.0)

    close(found, 2 * np.fft.fftn(x.astype(np.float64)))


@pytest.mark.parametrize("size", [16, 64, 2048])
@pytest.mark.parametrize("axis", [0, 1])
def test_real_lines_and_half_spectra_are_transformed(rng, size, axis):
    x = rng.standard_normal((max(19, 16384 // size), size)).astype(np.float32)
    half = np.fft.rfft(x).astype(np.complex64)
    half[:, 0] += 2j  # what real lines never have is not read
    half[:, -1] -= 3j
    x, half = (np.ascontiguousarray(np.moveaxis(a, 1, axis)) for a in (x, half))

    spectrum = eager_fourier.fft_half(x, axis=axis, scale=0.25)
    line = eager_fourier.fft_real(half, axis=axis, size=size, scale=0.25)

    close(spectrum, 0.25 * np.fft.rfft(x.astype(np.float64), axis=axis))
    close(line, 0.25 * np.fft.irfft(half.astype(np.complex128), size, axis=axis, norm="forward"))
    assert not np.take(spectrum.imag, [0, size // 2], axis).any()


def test_a_line_with_nan_spoils_no_other(rng):
    x = rng.standard_normal((32, 512)).astype(np.float32)
    x[5, 7] = np.nan

    for made in (
        eager_fourier.fft_half(x, axis=1),
        eager_fourier.fft_complex(x, axes=(1,)),
        eager_fourier.fft_real(eager_fourier.fft_half(x, axis=1), axis=1, size=512),
    ):
        broken = np.isnan(made).any(1)
        assert broken[5]
        assert broken.sum() == 1


@pytest.mark.parametrize("shape", [(40, 384), (8, 2048), (2, 8192), (0, 512), (512, 0)])
def test_what_has_no_code_is_numpys(rng, shape):
    x = complex_of(rng, *shape)

    if shape[1]:
        found = BACKEND.kernels[ops.fft_complex](x, axes=(1,))
        np.testing.assert_array_equal(found, ops.fft_complex.forward(np, x, axes=(1,)))
    else:
        assert tenon.fft.fft(tenon.tensor(x), 512).shape == (512, 512)


@pytest.mark.parametrize("size", [16, 15])
def test_gradients_of_half_spectra_are_those_of_whole_ones(rng, size):
    x = tenon.tensor(rng.standard_normal((600, size)).astype(np.float32), requires_grad=True)
    weights = tenon.tensor(complex_of(rng, 600, size // 2 + 1))

    (half,) = tenon.autograd.grad((tenon.fft.rfft(x) * weights).real.sum(), x)
    whole = tenon.fft.fft(x)[:, : size // 2 + 1]
    (wanted,) = tenon.autograd.grad((whole * weights).real.sum(), x)

    np.testing.assert_allclose(half.numpy(), wanted.numpy(), atol=2e-5)
