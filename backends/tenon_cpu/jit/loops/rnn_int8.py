"""Recurrent layers of int8 weights in compiled loops as those of ``rnn.py``: states are rounded each step.

``whole`` is room for the rounded states as bytes, ``words`` as 16 bits, one of them empty; ``sizes`` for what
a step of each row is. With words the product is generated code (``integer.py``): ``library`` holds its
address, 0, and the threads it may have, and ``steps`` where its table lies.
"""

from __future__ import annotations

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.rnn import called, copied, gru_cell, lstm_cell, multiplied, rnn_cell
from tenon_cpu.jit.loops.rounding import to_whole, to_words


@inlined
def _product(library, steps, t, first, place, h, sizes, whole, words):
    """The states of step ``t``, rounded, times the weights; oneDNN's status."""
    if steps[t, 1] == 0:
        return 0
    if library[1] == 0:
        for r in range(first, first + steps[t, 1]):
            to_words(h[r], sizes[r : r + 1], words[r])
        called(library[0], steps[t, 2], library[2], 0, 0)
        return 0
    for r in range(first, first + steps[t, 1]):
        to_whole(h[r], sizes[r : r + 1], whole[r])
    return multiplied(library, steps, t, place)


@inlined
def _scaled(x, more, step):
    for j in range(x.size):
        x[j] += more[j] * step


@inlined
def _scale(x, step):
    for j in range(x.size):
        x[j] *= step


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, float32[:,::1], float32[:,::1], uint8[:,::1],"
    " uint16[:,::1], float32[::1], float32[::1], float32[:,::1], float32[:,::1], float32[:,::1])"
)
def lstm(library, steps, first, reverse, gates, own, whole, words, sizes, zeros, out, h, c):
    """``gates`` come as the inputs' products and go activated."""
    place = own.ctypes.data + first * own.shape[1] * 4
    count = steps.shape[0]
    for k in range(count):
        t = count - 1 - k if reverse else k
        top = steps[t, 0] + first
        status = _product(library, steps, t, first, place, h, sizes, whole, words)
        if status != 0:
            return status
        for r in range(steps[t, 1]):
            row, state = gates[top + r], h[first + r]
            _scaled(row, own[first + r], sizes[first + r])
            lstm_cell(row, zeros, c[first + r], state)
            copied(state, out[top + r])
    return 0


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, float32[:,::1], float32[:,::1], uint8[:,::1],"
    " uint16[:,::1], float32[::1], float32[::1], float32[:,::1], float32[:,::1])"
)
def gru(library, steps, first, reverse, gates, own, whole, words, sizes, bias, out, h):
    """``gates`` come as the inputs' products and go activated."""
    place = own.ctypes.data + first * own.shape[1] * 4
    count = steps.shape[0]
    for k in range(count):
        t = count - 1 - k if reverse else k
        top = steps[t, 0] + first
        status = _product(library, steps, t, first, place, h, sizes, whole, words)
        if status != 0:
            return status
        for r in range(steps[t, 1]):
            part, state = own[first + r], h[first + r]
            _scale(part, sizes[first + r])
            gru_cell(gates[top + r], part, bias, state)
            copied(state, out[top + r])
    return 0


@kernel(
    "int64(int64[::1], int64[:,::1], int64, boolean, boolean, float32[:,::1], uint8[:,::1],"
    " uint16[:,::1], float32[::1], float32[:,::1], float32[:,::1])"
)
def rnn(library, steps, first, reverse, relu, own, whole, words, sizes, out, h):
    """``out`` comes as the inputs' products and goes activated."""
    place = own.ctypes.data + first * own.shape[1] * 4
    count = steps.shape[0]
    for k in range(count):
        t = count - 1 - k if reverse else k
        top = steps[t, 0] + first
        status = _product(library, steps, t, first, place, h, sizes, whole, words)
        if status != 0:
            return status
        for r in range(steps[t, 1]):
            part = own[first + r]
            _scale(part, sizes[first + r])
            rnn_cell(relu, out[top + r], part, h[first + r])
    return 0
