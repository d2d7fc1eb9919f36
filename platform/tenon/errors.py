"""Every exception and warning class of tenon.

Each class derives from ``TenonError`` and from the built-in exceptions that Python and PyTorch raise in
the same place, so ``except RuntimeError`` written for PyTorch and ``except ValueError`` written for
NumPy both keep working. A message states what happened, with which values and in which path, and what to
do next. The code that raises writes the message; the path of the failing module is added as the error leaves
it.
"""

from pickle import UnpicklingError


class TenonError(Exception):
    """Base class of every error that tenon raises on purpose."""

    def __str__(self) -> str:
        passed = self.__dict__.get("_tenon_passed")  # set by nn/error_context.py as the error leaves modules
        text = super().__str__()
        return text if passed is None else f"{text} ({passed.note})"


class TenonWarning(UserWarning):
    """Base class of every warning that tenon issues."""


# Values: tensors, devices, operations.


class ArgumentError(TenonError, RuntimeError, ValueError):
    """An argument has a value for which the function is not defined."""


class ArgumentTypeError(TenonError, TypeError):
    """An argument of a constructor is of a type that it cannot use."""


class OptionError(ArgumentError, AssertionError):
    """An option, alone or with others, has a value for which torch raises an AssertionError."""


class ShapeError(TenonError, RuntimeError, ValueError):
    """Shapes, axes or sizes do not fit the operation."""


class NumberOverflowError(ArgumentError, OverflowError):
    """A Python integer has more than 64 bits, or more than its place holds."""


class DivisionByZeroError(TenonError, ZeroDivisionError, RuntimeError):
    """An integer was divided by zero."""


class DTypeError(TenonError, RuntimeError, TypeError):
    """A dtype is not supported, or a conversion would lose information that it must preserve."""


class IndexRangeError(TenonError, IndexError, RuntimeError):
    """An index, an axis or a label lies outside its range."""


class ViewError(TenonError, RuntimeError):
    """A view or an in-place write is not possible on this tensor."""


class DeviceError(TenonError, RuntimeError):
    """A device is unknown, absent, or differs between operands."""


class BackendError(TenonError, RuntimeError):
    """A backend lacks a kernel or breaks the backend protocol."""


class BackendUnavailableError(BackendError, DeviceError):
    """A backend cannot run here: its library or hardware is missing."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A device has no room for the requested array."""


class UnsupportedError(TenonError, NotImplementedError, RuntimeError):
    """The operation is defined, but not for these arguments or not on this backend."""


class UnsupportedDTypeError(DTypeError, UnsupportedError):
    """The operation is defined, but not for this element type."""


# Differentiation, capture, modules.


class GradError(TenonError, RuntimeError):
    """A gradient cannot be computed, or a hook returned something that is not a gradient."""


class ExportError(GradError, BufferError):
    """A tensor that requires grad cannot export its memory to another library."""


class FreedGraphError(GradError):
    """A backward pass needs values that an earlier one has freed."""


class ModifiedValueError(GradError):
    """A value saved for backward was changed in place afterwards."""


class GradcheckError(GradError):
    """A numerical and an analytical gradient differ."""


class UnstableOutputError(GradError, AssertionError):
    """The shapes or dtypes of a function's outputs changed when gradcheck perturbed its inputs."""


class MutationError(GradError, AssertionError):
    """A graph of ``allow_mutation_on_saved_tensors`` is used outside of it."""


class AnomalyError(GradError):
    """Anomaly detection found a NaN in a gradient."""


class CheckpointMismatchError(GradError):
    """The recomputation of a checkpointed function differed from its first run."""


class CaptureError(TenonError, RuntimeError):
    """A function cannot be recorded as a graph."""


class DivergedError(CaptureError):
    """A compiled program is not valid for the values of a call, which then runs eagerly."""


class GraphError(TenonError, RuntimeError):
    """A recorded graph is inconsistent: a pass broke it, or it was built wrongly."""


class LoweringError(GraphError, NotImplementedError):
    """A graph has ops that a target lacks; the message names all of them."""


class BundleError(TenonError, ValueError):
    """An exported bundle is damaged, incomplete or foreign."""


class NotFusableError(TenonError, TypeError):
    """An op does not fit into a fused cluster; it runs as its own kernel."""


class ModuleError(TenonError, RuntimeError):
    """A module, parameter, buffer or hook is used in a way its contract forbids."""


class ModuleNameError(ModuleError, KeyError):
    """A name cannot be used for a parameter, buffer or child."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ModuleTypeError(ModuleError, TypeError):
    """A value of the wrong type was given for a parameter, buffer, child or state dict."""


class ModuleValueError(ModuleError, ValueError):
    """A value of the right type cannot be used for a parameter, buffer, child or mode."""


class ModuleAttributeError(ModuleError, AttributeError):
    """A module has no such attribute, or is not initialised yet."""


class PruningError(ModuleValueError):
    """A model cannot be pruned as requested, or its zeroed channels cannot be removed."""


class QuantizationError(ModuleValueError):
    """A model or a weight cannot be quantized as requested, or the calibration data are unsuitable."""


class AttentionError(ModuleError, AssertionError, ValueError):
    """Tensors, masks or sizes do not fit an attention layer; torch raises one of these three."""


class PaddingMaskError(TenonError, AssertionError):
    """A padding mask has other sizes than the keys; an AssertionError as in torch, not a RuntimeError."""


class NoDataError(DeviceError, NotImplementedError):
    """The data of a tensor on the meta device, which has none, were accessed."""


class MissingForwardError(ModuleError, NotImplementedError):
    """A module without a ``forward`` was called."""


class StateDictError(ModuleError):
    """A state dict does not fit the object that should load it."""


class ScalerError(TenonError, RuntimeError, AssertionError, ValueError):
    """A GradScaler is called out of order or with a value it cannot take; torch raises one of these three."""


class OptimizerStateError(TenonError, ValueError):
    """A state dict does not fit the optimizer that should load it."""


# Random numbers.


class RandomArgumentError(TenonError, RuntimeError, ValueError):
    """A distribution, a seed or a counter has an argument for which it is not defined."""


class RandomStateError(TenonError, RuntimeError, TypeError):
    """A value is not a state of a random generator."""


# Configuration, data, files, ranks.


class ConfigError(TenonError, ValueError):
    """A setting is unknown or has a value that cannot be used."""


class DataError(TenonError, ValueError):
    """A data set, sampler or batch is malformed."""


class SizeMismatchError(DataError, AssertionError):
    """The parts of a data set have different numbers of samples."""


class CollateError(DataError, TypeError):
    """Samples of this kind cannot be stacked to a batch."""


class WorkerError(DataError, RuntimeError):
    """A worker of a data loader died, or did not answer in time."""


class CheckpointError(TenonError, RuntimeError):
    """A saved file is damaged, truncated, unsafe, or belongs to something else."""


class UnsafeCheckpointError(CheckpointError, UnpicklingError):
    """A pickled checkpoint refers to a class or function that could run code."""


class FileObjectError(TenonError, TypeError, AttributeError):
    """A file object lacks a method of files."""


class CheckpointDeviceError(CheckpointError, DeviceError):
    """A file is intact, but its tensors belong on a device that is not here."""


class CheckpointVersionError(CheckpointError):
    """A file is intact, but a newer tenon wrote it."""


class CheckpointWriteError(CheckpointError, OSError):
    """A file could not be written completely; the file that it was to replace is untouched."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnsavableError(TenonError, TypeError, RuntimeError):
    """An object contains something that cannot be saved in a checkpoint."""


class TraceError(TenonError, ValueError):
    """A file is not a trace of a profile, or a profile is empty."""


class CheckpointWarning(TenonWarning):
    """A damaged checkpoint was skipped."""


class UncheckedFileWarning(TenonWarning):
    """A file without checksums was loaded; issued once per process."""


class CommunicatorError(TenonError, RuntimeError):
    """Ranks cannot communicate, or disagree about what they communicate."""


class RankArgumentError(CommunicatorError, ValueError):
    """A rank, group or backend that does not exist, or a list of the wrong length, in a collective."""


class RankTypeError(CommunicatorError, TypeError):
    """A collective was called with something other than tensors, lists of tensors or groups."""


class LaunchError(CommunicatorError):
    """A distributed run could not be started."""


class CollectiveMismatchError(CommunicatorError):
    """Ranks called different collectives, or the same one with different shapes, dtypes, names or steps."""


class RankFailedError(CommunicatorError):
    """Another rank failed or left, so that this one cannot continue."""


class OldHookWarning(TenonWarning, FutureWarning):
    """A module hook of the old kind gets other gradients here than it would in torch."""


class TreeError(TenonError, ValueError):
    """Nested containers differ in shape."""


class TrainingError(TenonError, RuntimeError):
    """A training run cannot continue."""


# Plugins.


class PluginError(TenonError, RuntimeError):
    """A plugin is broken or breaks the rules of the host."""


class PluginNotFoundError(PluginError, LookupError, AttributeError):
    """No loaded plugin offers this name; an AttributeError too, so that ``hasattr`` returns False."""


class PluginClashError(PluginError):
    """Two plugins offer the same name."""


class PluginTargetError(PluginError, ImportError):
    """A declared target ``"module:attribute"`` cannot be imported."""


class PluginModuleError(PluginError, ModuleNotFoundError):
    """A public module that plugins provide is missing, as no loaded plugin provides it."""


class PluginHookError(PluginError):
    """A plugin's hook implementation raised."""


class PluginWarning(TenonWarning):
    """A plugin could not be loaded; the others work."""
