"""Declares the CPU backend."""

from collections.abc import Iterable, Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_backends() -> Mapping[str, str]:
    """The backend that serves ``cpu``."""
    return {"cpu": "tenon_cpu.backend:CpuBackend"}


@hookimpl
def tenon_configure() -> None:
    """``tenon doctor`` shows whether oneDNN is in use."""
    from tenon.extend import doctor_section

    doctor_section("oneDNN")(_onednn)


def _onednn() -> Iterable[tuple[str, str]]:
    from tenon_cpu.onednn.doctor import rows

    return rows()
