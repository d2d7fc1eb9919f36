"""Find CuPy, and give the reason where CUDA cannot be used.

Nothing here raises: a machine without CuPy, driver or device is the usual case, and the user needs the
reason. Version numbers are CUDA's integers: 12090 for 12.9.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from tenon.extend import Availability

#: The module ``cupy``, or a stub of it in tests: it is optional, imported late and has no annotations.
Cupy: TypeAlias = Any
#: An object of a class of CuPy: an event, a pointer to memory, an error of the CUDA runtime.
CupyObject: TypeAlias = Any
OLDEST = (14, 2)  # ``reshape(copy=False)`` came with it
_INSTALL = "pip install 'tenon-platform[cuda12]' (or [cuda13] where the driver is 580 or newer)"
#: Statuses of the CUDA runtime for which ``_refusal`` names a remedy.
_INSUFFICIENT_DRIVER, _NO_DEVICE = 35, 100


def found() -> bool:
    """Whether a package called cupy is installed."""
    return importlib.util.find_spec("cupy") is not None


def imported() -> Cupy:
    """Import and return CuPy."""
    return importlib.import_module("cupy")


def linalg_errors() -> AbstractContextManager[object]:
    """A context in which CuPy's linear algebra reports singular matrices."""
    return importlib.import_module("cupyx").errstate(linalg="raise")


def examine(found: Callable[[], bool] = found, imported: Callable[[], Cupy] = imported) -> Availability:
    """Whether CUDA can be used; the reason names the versions, or what is missing and how to get it."""
    if not found():
        return _no(f"CuPy is not installed. It comes with {_INSTALL}.")
    try:
        cupy = imported()
    except Exception as error:  # a broken installation can raise any error; its text is the reason
        return _no(f"CuPy is installed but cannot be imported ({_text(error)}). Reinstall it: {_INSTALL}.")
    try:
        return _examine(cupy)
    except Exception as error:  # availability must never raise; the error is the reason
        return _no(f"CuPy {cupy.__version__} is installed, but CUDA cannot be used: {_text(error)}.")


def _no(reason: str) -> Availability:
    return Availability(False, reason)


def _examine(cupy: Cupy) -> Availability:
    name = f"CuPy {cupy.__version__}"
    version = tuple(int(part) for part in cupy.__version__.split(".")[:2])
    if version < OLDEST:
        return _no(f"{name} is too old, {'.'.join(map(str, OLDEST))} or newer is needed: {_INSTALL}.")
    runtime = cupy.cuda.runtime
    driver = runtime.driverGetVersion()
    if driver == 0:
        return _no(
            f"{name} is installed, but this machine has no NVIDIA driver. Install the driver; in a "
            "container, start it with `--gpus all`."
        )
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        return _no(_refusal(name, error, driver, runtime.runtimeGetVersion()))
    if count == 0:
        return _no(_without_device(name, driver))
    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:  # CuPy searches several locations for the compiler; the error lists them
        return _no(
            f"{name} finds {count} device(s) but not NVRTC, which compiles its kernels ({_text(error)}). "
            f"Get it: {_INSTALL}."
        )
    built, supported = _version(runtime.runtimeGetVersion()), _version(driver)
    return Availability(True, f"{name}, CUDA {built}, driver for {supported}, {count} device(s)")


def _refusal(name: str, error: CupyObject, driver: int, runtime: int) -> str:
    if error.status == _NO_DEVICE:
        return _without_device(name, driver)
    if error.status == _INSUFFICIENT_DRIVER:
        return (
            f"{name} was built for CUDA {_version(runtime)}, but the NVIDIA driver supports only "
            f"{_version(driver)}. Update the driver, or install the CuPy for its CUDA: cupy-cuda12x for 12, "
            "cupy-cuda13x for 13 (never both)."
        )
    return f"{name} is installed, but the CUDA driver failed: {_text(error)}. See the output of `nvidia-smi`."


def _without_device(name: str, driver: int) -> str:
    return (
        f"{name} and a driver for CUDA {_version(driver)} are installed, but no device is visible. See "
        "`nvidia-smi` and the variable CUDA_VISIBLE_DEVICES."
    )


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")
