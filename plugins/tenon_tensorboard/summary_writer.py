"""``torch.utils.tensorboard.SummaryWriter``: writes TensorBoard event files.

Data are flushed to disk by ``flush`` and ``close``, by the first call five seconds after the last flush, and
at interpreter exit, as scripts seldom close their writer. ``add_embedding`` is not implemented.
"""

from __future__ import annotations

import os
import socket
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat, TypeAlias

import numpy as np

import tenon
from tenon.extend import Module, settings
from tenon_tensorboard.graph import Message
from tenon_tensorboard.writer import BINS, RunWriter, without_torch

#: A tensor, an array, a number, or a list of them.
ArrayLike: TypeAlias = object
#: The rules of ``numpy.histogram`` for bins.
_NUMPY_BINS = ("auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt")


def _array(value: Any) -> Any:  # Any: an array, or the value itself
    """Convert a tensor, or a list of tensors, to a NumPy array; anything else is returned unchanged."""
    if isinstance(value, tenon.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype is tenon.bfloat16 else value).numpy()
    if isinstance(value, (list, tuple)):
        return np.array([_array(v) for v in value])
    return value


class SummaryWriter:
    """Writes to ``log_dir``, or to ``runs/<time>_<host><comment>``; also a context manager.

    ``max_queue`` and ``flush_secs`` are accepted for compatibility and ignored: there is no queue.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if log_dir is not None:
            settings.instance("SummaryWriter", "log_dir", log_dir, (str, os.PathLike), "a path or None")
        settings.instance("SummaryWriter", "comment", comment, str, "a string")
        settings.instance("SummaryWriter", "filename_suffix", filename_suffix, str, "a string")
        if purge_step is not None:
            settings.whole("SummaryWriter", "purge_step", purge_step, most=2**63 - 1)
        settings.whole("SummaryWriter", "max_queue", max_queue)
        settings.real("SummaryWriter", "flush_secs", flush_secs, least=0)
        if not log_dir:
            log_dir = f"runs/{time.strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}{comment}"
        self.log_dir = os.fspath(log_dir)
        self._suffix = filename_suffix
        self._writers: dict[str, RunWriter] = {}
        self._at_end = weakref.finalize(self, _close, self._writers)
        with without_torch():
            from tensorboardX import summary  # type: ignore[import-untyped]
            from tensorboardX.proto import event_pb2  # type: ignore[import-untyped]
        self._make = summary
        first = self._writer(self.log_dir)
        if purge_step is not None:
            started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            first.write(purge_step, session_log=started)

    def _writer(self, folder: str) -> RunWriter:
        if folder not in self._writers:
            self._writers[folder] = RunWriter(folder, self._suffix)
        return self._writers[folder]

    def _add(
        self, summary: Message, step: int | None, walltime: float | None, folder: str | None = None
    ) -> None:
        self._writer(folder or self.log_dir).write(step or 0, walltime, summary=summary)

    def get_logdir(self) -> str:
        """Return the folder that this writer writes to."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: SupportsFloat,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Write a scalar."""
        self._add(self._make.scalar(tag, float(scalar_value)), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, SupportsFloat],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Write several scalars into one chart: each is a run of its own, in a subfolder."""
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            self._add(self._make.scalar(main_tag, float(value)), global_step, walltime, folder)

    def add_histogram(
        self,
        tag: str,
        values: ArrayLike,
        global_step: int | None = None,
        bins: str | Sequence[float] = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Write a histogram. ``bins``: edges, "tensorflow", or a rule of ``numpy.histogram``."""
        edges = BINS if isinstance(bins, str) and bins not in _NUMPY_BINS else bins
        summary = self._make.histogram(tag, np.ravel(_array(values)), edges, max_bins=max_bins)
        self._add(summary, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: ArrayLike,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Write an image: floats in [0, 1], or uint8."""
        self._add(self._make.image(tag, _array(img_tensor), dataformats=dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: ArrayLike,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Write a batch of images as a grid."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self,
        tag: str,
        figure: object,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Write a matplotlib figure, or a list of figures of one size."""
        with without_torch():
            from tensorboardX.utils import figure_to_image  # type: ignore[import-untyped]
        several = isinstance(figure, list)
        image = figure_to_image(figure, close)
        self.add_image(tag, image, global_step, walltime, "NCHW" if several else "CHW")

    def add_video(
        self,
        tag: str,
        vid_tensor: ArrayLike,
        global_step: int | None = None,
        fps: int = 4,
        walltime: float | None = None,
    ) -> None:
        """Write a video ``[N, T, C, H, W]`` (needs moviepy)."""
        self._add(self._make.video(tag, _array(vid_tensor), fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: ArrayLike,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Write sound: values in [-1, 1] (needs soundfile)."""
        self._add(self._make.audio(tag, _array(snd_tensor), sample_rate), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Write a text in Markdown."""
        self._add(self._make.text(tag, text_string), global_step, walltime)

    def add_pr_curve(
        self,
        tag: str,
        labels: ArrayLike,
        predictions: ArrayLike,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: ArrayLike | None = None,
        walltime: float | None = None,
    ) -> None:
        """Write a precision-recall curve of binary labels and their predicted probabilities."""
        arguments = _array(labels), _array(predictions), num_thresholds, _array(weights)
        self._add(self._make.pr_curve(tag, *arguments), global_step, walltime)

    def add_mesh(
        self,
        tag: str,
        vertices: ArrayLike,
        colors: ArrayLike | None = None,
        faces: ArrayLike | None = None,
        config_dict: Mapping[str, object] | None = None,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Write a 3-D point cloud ``[N, P, 3]`` or triangle mesh."""
        summary = self._make.mesh(tag, _array(vertices), _array(colors), _array(faces), config_dict)
        self._add(summary, global_step, walltime)

    def add_graph(
        self,
        model: Module,
        input_to_model: object = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """Write the model's graph, recorded from one call with ``input_to_model``."""
        from tenon_tensorboard.graph import ModelGraph

        inputs = input_to_model if isinstance(input_to_model, (list, tuple)) else (input_to_model,)
        self._writer(self.log_dir).graph(ModelGraph(model, *inputs))

    def add_hparams(
        self,
        hparam_dict: Mapping[str, object],
        metric_dict: Mapping[str, SupportsFloat],
        hparam_domain_discrete: object = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Write hyperparameters and final metrics as a run of its own, in a subfolder."""
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        arguments = {k: v.item() if isinstance(v, tenon.Tensor) else v for k, v in hparam_dict.items()}
        metrics = {k: float(v) for k, v in metric_dict.items()}
        for summary in self._make.hparams(arguments, metrics):
            self._add(summary, global_step, None, folder)
        for tag, value in metrics.items():
            self._add(self._make.scalar(tag, value), global_step, None, folder)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[object]]]) -> None:
        """Define charts of the tab Custom Scalars: category, title, kind and tags."""
        self._writer(self.log_dir).layout(layout)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Define a chart of several lines."""
        self.add_custom_scalars({category: {title: ["Multiline", list(tags)]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Define a chart of a line with a margin between two others."""
        self.add_custom_scalars({category: {title: ["Margin", list(tags)]}})

    def flush(self) -> None:
        """Flush everything written so far to disk."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Close the files; later writes open new ones."""
        _close(self._writers)

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _close(writers: dict[str, RunWriter]) -> None:
    while writers:
        writers.popitem()[1].close()
