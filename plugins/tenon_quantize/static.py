"""Static int8: convolutions and products on uint8 steps that calibration has chosen."""

from __future__ import annotations

from tenon.extend import quantization


class Int8(quantization.StaticScheme):
    """``Linear`` and ``Conv1d`` to ``Conv3d``.

    ``observer`` names what chooses the steps of activations, ``weights`` what chooses those of weights.
    """

    name = "int8"

    def __init__(self, observer: str = "Histogram", weights: str = "PerChannelMinMax") -> None:
        self.observer_name, self.weight_observer_name = observer, weights

    def observer(self) -> quantization.RangeObserver:
        """By its name."""
        return quantization.observer_of(self.observer_name)

    def weight_observer(self) -> quantization.RangeObserver:
        """By its name."""
        return quantization.observer_of(self.weight_observer_name)
