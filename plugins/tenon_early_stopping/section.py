"""The section ``[plugins.early_stopping]``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenon.extend import Section


class EarlyStopping(Section):
    """When a run ends before its last epoch, and which weights it keeps."""

    metric: str = Field("test_loss", description="what is compared: a number of each epoch's evaluation")
    mode: Literal["min", "max"] | None = Field(
        None, description="whether less or more is better; unset: more of a metric that ends in accuracy"
    )
    patience: int = Field(3, ge=1, description="epochs in a row without improvement that end the run")
    min_delta: float = Field(0.0, ge=0, description="an improvement is larger than this")
    target: float | None = Field(None, description="end the run as soon as the metric is this good")
    keep_best: bool = Field(True, description="write the weights of the best epoch to best.safetensors")

    @property
    def more_is_better(self) -> bool:
        """Whether larger values are better."""
        return self.mode == "max" if self.mode else self.metric.endswith("accuracy")
