"""``profile``: torch.profiler's class, which schedules steps and cycles; ``recording.py`` records them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tenon.extend import errors, observe, settings
from tenon_profiler import averages, memory
from tenon_profiler.events import Event
from tenon_profiler.handler import tensorboard_trace_handler
from tenon_profiler.header import header_of, machine
from tenon_profiler.observers import Observers
from tenon_profiler.recording import Recording, warn_of_disk
from tenon_profiler.schedule import ProfilerAction, ProfilerActivity, supported_activities

if TYPE_CHECKING:
    from tenon.extend import Session

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile:
    """Record a program between ``start`` and ``stop``, or inside a ``with`` block.

    ``schedule`` selects the steps, which ``step()`` ends; ``on_trace_ready(prof)`` is called at the end of
    each active part. Without a schedule everything is recorded. ``record_shapes`` records shapes, from which
    FLOPs and bytes are computed; ``profile_memory`` the allocation and release of arrays; ``with_stack`` the
    call stack of each op; ``with_modules`` spans of module calls (ops have their module's path in any case).

    GPUs are recorded if there are any: ``use_cuda``, PyTorch's older option, has no effect.
    ``custom_trace_id_callback`` returns the name of each cycle's trace, its header's ``metadata.trace_id``.
    ``clock`` is rank 0's, as ``tenon.extend.observe.align`` returns it; ``session`` is passed to observers.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], object] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        clock: observe.Clock | None = None,
        session: Session | None = None,
    ) -> None:
        if activities is not None:
            settings.instance("profile", "activities", activities, Iterable, "some of ProfilerActivity")
        for name, value in (
            ("schedule", schedule),
            ("on_trace_ready", on_trace_ready),
            ("custom_trace_id_callback", custom_trace_id_callback),
        ):
            settings.function("profile", name, value)
        flags = {
            "record_shapes": record_shapes, "profile_memory": profile_memory, "with_stack": with_stack,
            "with_flops": with_flops, "with_modules": with_modules, "acc_events": acc_events,
        }  # fmt: skip
        for name, chosen in flags.items():
            settings.flag("profile", name, chosen)
        selected = [*activities] if activities is not None else [*supported_activities()]
        if not selected or not all(isinstance(each, ProfilerActivity) for each in selected):
            raise errors.ArgumentError(
                f"activities={selected}: expected some of {', '.join(map(str, ProfilerActivity))}. Leave"
                " it out for all."
            )
        self.activities = set(selected)
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops, self.with_modules = with_stack, with_flops, with_modules
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self._clock, self._session = clock, session
        self._trace_id: Callable[[], str] | None = custom_trace_id_callback
        #: The recording in progress, and the latest completed one.
        self._recording: Recording | None = None
        self._done: Recording | None = None
        self._earlier: list[Event] = []
        self._metadata: dict[str, object] = {}
        self._cycle = 0
        self._begun = 0
        #: Writing failed: no further cycle is recorded.
        self._ended = False
        self._observers = Observers(())

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    # --- steps ---

    def start(self) -> None:
        """Start the profile at step 0."""
        if isinstance(self.on_trace_ready, tensorboard_trace_handler):
            machine()  # measured now, as other ranks would wait for it between steps
        self._observers = Observers(observe.open_observers(self._session))
        self.current_action = self._action()
        if self.current_action is not ProfilerAction.NONE:
            self._begin()

    def step(self) -> None:
        """Mark the end of a step and the start of the next."""
        recording, before = self._recording, self.current_action
        if recording is not None and before in _RECORDING:
            lane = recording.tap.lane()
            name, end = f"ProfilerStep#{self.step_num}", observe.now()
            lane.extend((observe.SPAN, name, self._begun, end, observe.ANNOTATION, "forward", None))
        self.step_num += 1
        self.current_action = action = self._action()
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._finish()
        elif before is ProfilerAction.WARMUP and action in _RECORDING:
            self._drop()
        if self._recording is not None:
            self._recording.step_over()
        elif action is not ProfilerAction.NONE and not self._ended:
            self._begin()
        self._begun = observe.now()

    def stop(self) -> None:
        """Stop recording; an unfinished cycle is passed to ``on_trace_ready``, too."""
        if self.current_action is ProfilerAction.WARMUP:
            self._drop()
        else:
            self._finish()
        self.current_action = ProfilerAction.NONE
        self._observers.close()

    def _action(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    def _begin(self) -> None:
        options = observe.Options(
            self.record_shapes or self.with_flops, self.profile_memory, self.with_stack, self.with_modules
        )
        clock = self._clock or observe.own_clock()
        warming = self.current_action is ProfilerAction.WARMUP
        if self._trace_id is not None:
            self._metadata["trace_id"] = self._trace_id()
        handler = self.on_trace_ready
        streams = isinstance(handler, tensorboard_trace_handler) and not warming
        header = header_of(
            clock, observe.place(), self._flags(), self._cycle, self._metadata, measured=streams
        )
        writer = None
        if streams and isinstance(handler, tensorboard_trace_handler):
            try:
                writer = handler.open(header)
            except OSError as error:
                warn_of_disk(str(handler.folder), error)
                self._ended = True
                return
        observers = Observers(()) if warming else self._observers
        self._recording = Recording(options, clock, header, writer, observers)
        self._begun = observe.now()

    def _drop(self) -> None:
        """Discard the records of warm-up steps."""
        if self._recording is not None:
            self._recording.discard()
            self._recording = None

    def _finish(self) -> None:
        if self._recording is None:
            return
        if self.schedule is not None and self._recording.empty:  # the program ended with the step before
            self._drop()
            return
        if self.acc_events and self._done is not None:
            self._earlier += self._done.all_events()
        self._done, self._recording = self._recording, None
        self._done.stop()
        self._cycle += 1
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _flags(self) -> dict[str, bool]:
        return {
            "record_shapes": self.record_shapes,
            "profile_memory": self.profile_memory,
            "with_stack": self.with_stack,
            "with_flops": self.with_flops,
            "with_modules": self.with_modules,
        }

    # --- results ---

    @property
    def recorded(self) -> bool:
        """Whether a cycle has been completed."""
        return self._done is not None

    def events(self) -> averages.EventList:
        """Return every event of the latest cycle (of all, with ``acc_events``), nested by time."""
        return averages.EventList(averages.function_events(self._all()))

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        *,
        group_by_module: bool = False,
    ) -> averages.EventList:
        """Return sums over events of one name, optionally of one shape, stack or module; see ``table()``."""
        return self.events().key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name, group_by_module=group_by_module
        )

    def _latest(self) -> Recording:
        warming = self.current_action is ProfilerAction.WARMUP
        recording = self._done if self._recording is None or warming else self._recording
        if recording is None:
            raise errors.TraceError(
                "Profiler must be initialized before accessing events: nothing was recorded yet. Call"
                " start(), or step() until the schedule's active steps."
            )
        if recording is self._recording:
            recording.flush()
        return recording

    def _all(self) -> list[Event]:
        return [*self._earlier, *self._latest().all_events()]

    def export_chrome_trace(self, path: str | os.PathLike[str], use_python_export: bool = False) -> None:
        """Write a trace file (``.gz`` is compressed) for Perfetto, chrome://tracing or TensorBoard.

        It is written by Python in any case.
        """
        self._latest().export(path)

    def save(self, handler: tensorboard_trace_handler) -> None:
        """Complete the file that ``handler`` opened, or write one."""
        recording = self._latest()
        if recording.writer is None:
            recording.export(handler.path(recording.header))
        else:
            recording.save()

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write a line per stack with its microseconds, for flame graph tools; needs ``with_stack``."""
        self.events().export_stacks(path, metric)

    def export_memory_timeline(self, path: str | os.PathLike[str], device: str | None = None) -> None:
        """Write memory over time by phase: ``.json``, ``.json.gz``, ``.raw.json.gz`` or ``.html``."""
        memory.export(self._all(), path, device or "cpu")

    def add_metadata(self, key: str, value: str) -> None:
        """Add a string to the metadata of traces that start later, and of exports."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a JSON value to the metadata of traces that start later, and of exports."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Set the function that names the traces of cycles that start later."""
        self._trace_id = callback

    def get_trace_id(self) -> str | None:
        """Return the name of the latest trace; None without a callback that names traces."""
        name = self._metadata.get("trace_id")
        return None if name is None else str(name)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Pause or resume recording within a step, for all activities together."""
        if not set(activities):
            return
        if self._recording is None:
            raise errors.TraceError(
                "toggle_collection_dynamic: nothing is being recorded. Call start() first."
            )
        (self._recording.tap.open if enable else self._recording.tap.close)()


class autograd_profile(profile):
    """torch.autograd.profiler.profile: without a schedule; with ``enabled=False`` it records nothing.

    GPUs are recorded if there are any, whatever ``use_cuda``, ``use_device`` and ``use_kineto`` are.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        acc_events: bool = False,
    ) -> None:
        if not use_cpu:
            warnings.warn("use_cpu=False has no effect: events of the host are recorded too.", stacklevel=3)
        super().__init__(
            record_shapes=record_shapes, with_flops=with_flops, profile_memory=profile_memory,
            with_stack=with_stack, with_modules=with_modules, acc_events=acc_events,
        )  # fmt: skip
        self.enabled = enabled

    def start(self) -> None:
        """Start recording, if enabled."""
        if self.enabled:
            super().start()

    # ``EventList.table`` states the types.
    def table(self, **options: Any) -> str:
        """Return ``key_averages().table(**options)``."""
        return self.key_averages().table(**options)

    def __str__(self) -> str:
        return self.table() if self.recorded else "<unfinished torch.autograd.profile>"

    def total_average(self) -> averages.FunctionEventAvg:
        """Return the sum of all events, with the key "Total"."""
        return self.events().total_average()

    @property
    def function_events(self) -> averages.EventList:
        """All events, as a property."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """Total self time of all events, in microseconds."""
        return self.events().self_cpu_time_total
