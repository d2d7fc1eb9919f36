"""What ``torch.cuda.amp`` and ``torch.cpu.amp`` share: the scaler whose device is part of its name."""

from __future__ import annotations

from typing import ClassVar

from tenon.amp.grad_scaler import GradScaler


class OlderGradScaler(GradScaler):
    """``GradScaler`` for one type of device, with a deprecation warning."""

    _device_type: ClassVar[str]
    #: Warns with the place that calls the class, which is two calls above.
    _warn: ClassVar[staticmethod[[], None]]

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._warn()
        super().__init__(
            self._device_type, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
