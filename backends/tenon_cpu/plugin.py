"""Declares the CPU backend."""

from collections.abc import Iterable, Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_backends() -> Mapping[str, str]:
    """The backend that serves ``cpu``."""
    return {"cpu": "tenon_cpu.backend:CpuBackend"}


@hookimpl
def tenon_configure() -> None:
    """``tenon doctor`` shows threads, oneDNN and compiled kernels."""
    from tenon.extend import doctor_section

    doctor_section("CPU threads")(_threads)
    doctor_section("oneDNN")(_onednn)
    doctor_section("compiled kernels")(_kernels)


def _onednn() -> Iterable[tuple[str, str]]:
    from tenon_cpu.onednn.doctor import rows

    return rows()


def _threads() -> Iterable[tuple[str, str]]:
    from tenon_cpu.doctor import thread_rows

    return thread_rows()


def _kernels() -> Iterable[tuple[str, str]]:
    from tenon_cpu.doctor import kernel_rows

    return kernel_rows()
