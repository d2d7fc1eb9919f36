"""Recurrent layers of int8 weights in compiled loops like those of ``rnn.py``; each step quantizes states.

``as_bytes`` is memory for the quantized states as bytes, ``as_words`` as 16 bits, of which one is empty;
``scales`` for the quantization scale of each row. With words the product is generated code (``integer.py``):
``library`` has its address, 0, and the number of threads, and ``steps`` the address of its table.
"""

from __future__ import annotations

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.rnn import called, copy_to, gru_cell, lstm_cell, multiply, rnn_cell
from tenon_cpu.jit.loops.rounding import to_bytes, to_words


@inlined
def _product(library, steps, t, first, address, h, scales, as_bytes, as_words):
    """Multiply the quantized states of step ``t`` by the weights; return oneDNN's status."""
    if steps[t, 1] == 0:
        return 0
    if library[1] == 0:
        for r in range(first, first + steps[t, 1]):
            to_words(h[r], scales[r : r + 1], as_words[r])
        called(library[0], steps[t, 2], library[2], 0, 0)
        return 0
    for r in range(first, first + steps[t, 1]):
        to_bytes(h[r], scales[r : r + 1], as_bytes[r])
    return multiply(library, steps, t, address)


@inlined
def _scaled(x, added, step):
    for j in range(x.size):
        x[j] += added[j] * step


@inlined
def _scale(x, step):
    for j in range(x.size):
        x[j] *= step


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, float32[:,::1], float32[:,::1], uint8[:,::1],"
    " uint16[:,::1], float32[::1], float32[::1], float32[:,::1], float32[:,::1], float32[:,::1])"
)
def lstm(library, steps, first, reverse, gates, own, as_bytes, as_words, scales, zeros, out, h, c):
    """``gates`` has the inputs' products, which are replaced by the gates."""
    address = own.ctypes.data + first * own.shape[1] * 4
    count = steps.shape[0]
    for k in range(count):
        t = count - 1 - k if reverse else k
        index = steps[t, 0] + first
        status = _product(library, steps, t, first, address, h, scales, as_bytes, as_words)
        if status != 0:
            return status
        for r in range(steps[t, 1]):
            row, state = gates[index + r], h[first + r]
            _scaled(row, own[first + r], scales[first + r])
            lstm_cell(row, zeros, c[first + r], state)
            copy_to(state, out[index + r])
    return 0


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, float32[:,::1], float32[:,::1], uint8[:,::1],"
    " uint16[:,::1], float32[::1], float32[::1], float32[:,::1], float32[:,::1])"
)
def gru(library, steps, first, reverse, gates, own, as_bytes, as_words, scales, bias, out, h):
    """``gates`` has the inputs' products, which are replaced by the gates."""
    address = own.ctypes.data + first * own.shape[1] * 4
    count = steps.shape[0]
    for k in range(count):
        t = count - 1 - k if reverse else k
        index = steps[t, 0] + first
        status = _product(library, steps, t, first, address, h, scales, as_bytes, as_words)
        if status != 0:
            return status
        for r in range(steps[t, 1]):
            part, state = own[first + r], h[first + r]
            _scale(part, scales[first + r])
            gru_cell(gates[index + r], part, bias, state)
            copy_to(state, out[index + r])
    return 0


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, boolean, float32[:,::1], uint8[:,::1],"
    " uint16[:,::1], float32[::1], float32[:,::1], float32[:,::1])"
)
def rnn(library, steps, first, reverse, relu, own, as_bytes, as_words, scales, out, h):
    """``out`` has the inputs' products, which are replaced by the states."""
    address = own.ctypes.data + first * own.shape[1] * 4
    count = steps.shape[0]
    for k in range(count):
        t = count - 1 - k if reverse else k
        index = steps[t, 0] + first
        status = _product(library, steps, t, first, address, h, scales, as_bytes, as_words)
        if status != 0:
            return status
        for r in range(steps[t, 1]):
            part = own[first + r]
            _scale(part, scales[first + r])
            rnn_cell(relu, out[index + r], part, h[first + r])
    return 0
