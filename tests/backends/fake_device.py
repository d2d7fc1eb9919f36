"""A device that this process makes up: memory that NumPy cannot see, served by a backend from a plugin.

Its arrays are ``strict_arrays.Array``, its forwards run over the namespace that the CUDA backend gives them,
with the CUDA backend's kernels: what runs here keeps its place and asks for nothing that CuPy lacks.
"""

import numpy as np
import strict_arrays

from tenon.extend import Backend, Device, MemoryStats, hookimpl
from tenon_cuda.kernels import kernel_table
from tenon_cuda.namespace import Namespace


class FakeBackend(Backend):
    """Backend of ``device="fake"``."""

    name = "fake"
    xp = Namespace(strict_arrays.xp)
    array_type = strict_arrays.Array

    def kernel_table(self):
        return kernel_table()

    def devices(self):
        return (Device("fake", 0),)

    def empty(self, shape, dtype, device):
        return strict_arrays.Array(np.empty(shape, dtype))

    def from_host(self, array, device=None):
        return strict_arrays.Array(np.array(array, order="K"))

    def to_host(self, array):
        return array.get()

    def device_of(self, array):
        return Device("fake", 0)

    def shares_memory(self, a, b):
        return bool(a.size and b.size and strict_arrays.xp.may_share_memory(a, b))

    def memory(self, device=None):
        return MemoryStats(0, 0, None)


@hookimpl
def tenon_backends():
    """The declaration of a plugin's module."""
    return {"fake": "fake_device:FakeBackend"}
