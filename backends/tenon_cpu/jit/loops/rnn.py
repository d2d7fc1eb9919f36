"""Recurrent layers in compiled loops: the kernels over all steps, and the gates of one row.

A kernel calls oneDNN itself, through the addresses of its functions, so that a sequence runs without the
interpreter and several threads can each have a part of the batch. ``steps`` has a line for each step: the
first row, the number of rows of this part, and of their product the primitive, its argument count, its
arguments, and the memory object whose address changes with each step. ``library`` has the addresses of
``execute`` and ``set_data_handle`` and the stream. A kernel returns oneDNN's first status that is not 0.

Loops are short and write one array each: LLVM does not vectorise loops over many arrays that might overlap.
"""

from __future__ import annotations

import ctypes

import numpy as np

from tenon_cpu.jit.compiler.compile import Inlined, inlined, kernel
from tenon_cpu.jit.loops.vectors import exp

_ONE, _TWO = np.float32(1), np.float32(2)
_NEAR = np.float32(0.625)
_T1, _T2, _T3 = np.float32(-0.333332819422), np.float32(0.133314422036), np.float32(-0.0537397155531)
_T4, _T5 = np.float32(0.0206390887954), np.float32(-0.00570498872745)


class Called(Inlined):
    """``called(address, a, b, c, d)`` in a kernel calls a C function of up to four words; an int."""

    def _make_dispatcher(self):
        from llvmlite import ir
        from numba import types
        from numba.extending import intrinsic

        @intrinsic
        def called(typing, address, a, b, c, d):
            def generate(context, builder, signature, values):
                word, number = ir.IntType(64), ir.IntType(32)
                function = ir.FunctionType(number, [word] * 4)
                pointer = builder.inttoptr(values[0], function.as_pointer())
                return builder.call(pointer, values[1:])

            return types.int32(*[types.int64] * 5), generate

        return called


def _called(address: int, a: int, b: int, c: int, d: int) -> int:
    """The call as plain Python."""
    return int(ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_size_t] * 4)(address)(a, b, c, d))


called = Called(_called)


@inlined
def _sigmoid(x):
    return _ONE / (_ONE + exp(-x))


@inlined
def _tanh(x):
    a = abs(x)
    z = x * x
    near = x + x * z * ((((_T5 * z + _T4) * z + _T3) * z + _T2) * z + _T1)
    far = _ONE - _TWO / (exp(a + a) + _ONE)
    far = -far if x < np.float32(0) else far
    return near if a < _NEAR else far


@inlined
def _sigmoids(x, added):
    for j in range(x.size):
        x[j] = _sigmoid(x[j] + added[j])


@inlined
def _tanhs(x, added):
    for j in range(x.size):
        x[j] = _tanh(x[j] + added[j])


@inlined
def copy_to(x, out):
    """Copy ``x`` to ``out``."""
    for j in range(x.size):
        out[j] = x[j]


@inlined
def multiply(library, steps, t, address):
    """Compute the product of step ``t``, if it has rows, with its argument at ``address``; the status."""
    if steps[t, 1] <= 0:
        return 0
    status = called(library[1], steps[t, 5], address, 0, 0)
    if status == 0:
        status = called(library[0], steps[t, 2], library[2], steps[t, 3], steps[t, 4])
    return status


@inlined
def lstm_cell(row, added, cell, state):
    """Compute the gates from ``row + added``, in place in ``row``, and the next cell and state."""
    width = cell.size
    _sigmoids(row[: 2 * width], added[: 2 * width])
    _tanhs(row[2 * width : 3 * width], added[2 * width : 3 * width])
    _sigmoids(row[3 * width :], added[3 * width :])
    i, forget, g, o = row[:width], row[width : 2 * width], row[2 * width : 3 * width], row[3 * width :]
    for j in range(width):
        cell[j] = forget[j] * cell[j] + i[j] * g[j]
    for j in range(width):
        state[j] = o[j] * _tanh(cell[j])


@inlined
def gru_cell(row, part, bias, state):
    """Compute the gates from the inputs' part ``row``, in place, and the states' part, and the next state.

    ``bias`` is added to ``part``.
    """
    width = state.size
    for j in range(3 * width):
        part[j] += bias[j]
    _sigmoids(row[: 2 * width], part[: 2 * width])
    reset, z, n, last = row[:width], row[width : 2 * width], row[2 * width :], part[2 * width :]
    for j in range(width):
        n[j] = _tanh(n[j] + reset[j] * last[j])
    for j in range(width):
        state[j] = n[j] + z[j] * (state[j] - n[j])


@inlined
def rnn_cell(relu, row, part, state):
    """Compute the next state from ``row + part``; it is also written to ``row``."""
    if relu:
        for j in range(row.size):
            x = row[j] + part[j]
            row[j] = np.float32(0) if x <= np.float32(0) else x
    else:
        _tanhs(row, part)
    copy_to(row, state)


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, float32[:,::1], float32[:,::1], float32[:,::1],"
    " float32[:,::1], float32[:,::1], float32[:,::1])"
)
def lstm(library, steps, first, reverse, gates, own, out, cells, h, c):
    """LSTM: ``gates`` has the inputs' products, which are replaced by the gates.

    ``own`` is memory for the states' products; ``h`` and ``c`` are the running states.
    """
    width = c.shape[1]
    address = own.ctypes.data + first * width * 16
    count = steps.shape[0]
    for k in range(count):
        t = count - 1 - k if reverse else k
        index = steps[t, 0] + first
        status = multiply(library, steps, t, address)
        if status != 0:
            return status
        for r in range(steps[t, 1]):
            cell, state = c[first + r], h[first + r]
            lstm_cell(gates[index + r], own[first + r], cell, state)
            copy_to(cell, cells[index + r])
            copy_to(state, out[index + r])
    return 0


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, float32[:,::1], float32[:,::1], float32[:,::1],"
    " float32[:,::1], float32[:,::1], float32[:,::1], float32[:,::1])"
)
def lstm_grad(library, steps, first, reverse, g, gates, cells, c0, d, dh, dc):
    """The gradients ``d`` of the gates before their activations; ``dh`` and ``dc`` are running gradients."""
    width = dc.shape[1]
    base = d.ctypes.data
    count = steps.shape[0]
    scratch = np.empty(width, np.float32)
    for k in range(count):
        t = k if reverse else count - 1 - k
        before = t + 1 if reverse else t - 1
        index = steps[t, 0] + first
        running = steps[before, 1] if 0 <= before < count else 0
        for r in range(steps[t, 1]):
            row, d_row, dcell, dstate = gates[index + r], d[index + r], dc[first + r], dh[first + r]
            old = cells[steps[before, 0] + first + r] if r < running else c0[first + r]
            i, forget = row[:width], row[width : 2 * width]
            a, o = row[2 * width : 3 * width], row[3 * width :]
            slope = g[index + r]
            for j in range(width):
                dstate[j] += slope[j]
            cell = cells[index + r]
            for j in range(width):
                scratch[j] = _tanh(cell[j])
            part = d_row[3 * width :]
            for j in range(width):
                part[j] = dstate[j] * scratch[j] * o[j] * (_ONE - o[j])
            for j in range(width):
                dcell[j] += dstate[j] * o[j] * (_ONE - scratch[j] * scratch[j])
            part = d_row[:width]
            for j in range(width):
                part[j] = dcell[j] * a[j] * i[j] * (_ONE - i[j])
            part = d_row[width : 2 * width]
            for j in range(width):
                part[j] = dcell[j] * old[j] * forget[j] * (_ONE - forget[j])
            part = d_row[2 * width : 3 * width]
            for j in range(width):
                part[j] = dcell[j] * i[j] * (_ONE - a[j] * a[j])
            for j in range(width):
                dcell[j] *= forget[j]
        status = multiply(library, steps, t, base + index * width * 16)
        if status != 0:
            return status
    return 0


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, float32[:,::1], float32[:,::1], float32[::1],"
    " float32[:,::1], float32[:,::1], float32[:,::1])"
)
def gru(library, steps, first, reverse, gates, own, bias, out, hidden, h):
    """GRU: ``gates`` has the inputs' products, which are replaced by the gates; ``own`` is memory for the
    states' products."""
    width = h.shape[1]
    address = own.ctypes.data + first * width * 12
    count = steps.shape[0]
    for k in range(count):
        t = count - 1 - k if reverse else k
        index = steps[t, 0] + first
        status = multiply(library, steps, t, address)
        if status != 0:
            return status
        for r in range(steps[t, 1]):
            part, state = own[first + r], h[first + r]
            gru_cell(gates[index + r], part, bias, state)
            copy_to(part[2 * width :], hidden[index + r])
            copy_to(state, out[index + r])
    return 0


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, float32[:,::1], float32[:,::1], float32[:,::1],"
    " float32[:,::1], float32[:,::1], float32[:,::1], float32[:,::1], float32[:,::1])"
)
def gru_grad(library, steps, first, reverse, g, gates, hidden, out, h0, d, own, dh):
    """The gradients before the activations, ``d`` for the inputs' products and ``own`` for the states'."""
    width = dh.shape[1]
    base = own.ctypes.data
    count = steps.shape[0]
    for k in range(count):
        t = k if reverse else count - 1 - k
        before = t + 1 if reverse else t - 1
        index = steps[t, 0] + first
        running = steps[before, 1] if 0 <= before < count else 0
        for r in range(steps[t, 1]):
            row, d_row, own_row, state = gates[index + r], d[index + r], own[index + r], dh[first + r]
            old = out[steps[before, 0] + first + r] if r < running else h0[first + r]
            reset, z, n = row[:width], row[width : 2 * width], row[2 * width :]
            slope, last = g[index + r], hidden[index + r]
            for j in range(width):
                state[j] += slope[j]
            part = d_row[width : 2 * width]
            for j in range(width):
                part[j] = state[j] * (old[j] - n[j]) * z[j] * (_ONE - z[j])
            candidate = d_row[2 * width :]
            for j in range(width):
                candidate[j] = state[j] * (_ONE - z[j]) * (_ONE - n[j] * n[j])
            part = d_row[:width]
            for j in range(width):
                part[j] = candidate[j] * last[j] * reset[j] * (_ONE - reset[j])
            copy_to(d_row[: 2 * width], own_row[: 2 * width])
            part = own_row[2 * width :]
            for j in range(width):
                part[j] = candidate[j] * reset[j]
            for j in range(width):
                state[j] *= z[j]
        status = multiply(library, steps, t, base + index * width * 12)
        if status != 0:
            return status
    return 0


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, boolean, float32[:,::1], float32[:,::1], float32[:,::1])"
)
def rnn(library, steps, first, reverse, relu, own, out, h):
    """RNN: ``out`` has the inputs' products, which are replaced by the states; ``own`` is memory for the
    states' products."""
    width = h.shape[1]
    address = own.ctypes.data + first * width * 4
    count = steps.shape[0]
    for k in range(count):
        t = count - 1 - k if reverse else k
        index = steps[t, 0] + first
        status = multiply(library, steps, t, address)
        if status != 0:
            return status
        for r in range(steps[t, 1]):
            rnn_cell(relu, out[index + r], own[first + r], h[first + r])
    return 0


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, boolean, float32[:,::1], float32[:,::1],"
    " float32[:,::1], float32[:,::1])"
)
def rnn_grad(library, steps, first, reverse, relu, g, out, d, dh):
    """The gradients ``d`` before the activation; ``dh`` is the running gradient."""
    width = dh.shape[1]
    base = d.ctypes.data
    count = steps.shape[0]
    for k in range(count):
        t = k if reverse else count - 1 - k
        index = steps[t, 0] + first
        for r in range(steps[t, 1]):
            row, d_row, state, slope = out[index + r], d[index + r], dh[first + r], g[index + r]
            for j in range(width):
                state[j] += slope[j]
            if relu:
                for j in range(width):
                    d_row[j] = np.float32(0) if row[j] <= np.float32(0) else state[j]
            else:
                for j in range(width):
                    d_row[j] = state[j] * (_ONE - row[j] * row[j])
        status = multiply(library, steps, t, base + index * width * 4)
        if status != 0:
            return status
    return 0
