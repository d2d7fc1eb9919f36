"""Static int8: convolutions and products on uint8 steps that calibration has chosen."""

from __future__ import annotations

from tenon.extend import quantization


class Int8(quantization.StaticScheme):
    """``Linear`` and ``Conv1d`` to ``Conv3d``; ``observer`` names what chooses the steps of activations."""

    name = "int8"

    def __init__(self, observer: str = "Histogram") -> None:
        self.observer_name = observer

    def observer(self) -> quantization.RangeObserver:
        """By its name."""
        return quantization.observer_of(self.observer_name)
