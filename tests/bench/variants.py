"""The ways in which a library runs a program: eager, compiled, and what else its users can ask for.

This is the workers' side of ``cpu.py``. Every way gets its own copy of the program, built from the same seed.
"""

import contextlib
import time

import floor
import programs
from programs.more import MORE
from turns import clock_of, import_library, received, timed

ALL = programs.PROGRAMS | MORE
#: Losses of the first steps that are compared.
STEPS = 4


class NotBuiltError(Exception):
    """The library lacks what the program needs; the row says so."""


def serve(library, threads, cpu_time, pipe):
    """In the child: answer orders until there are no more."""
    T, clock = import_library(library, threads), clock_of(cpu_time)
    pipe.send(T.__version__)
    steps = {}
    while order := received(pipe):
        what, *rest = order
        if what == "build":
            key, *rest = rest
            steps[key], answer = build(library, T, *rest)
        elif what == "time":
            key, count = rest
            answer = timed(steps[key], count, clock)
        elif what == "forget":
            steps.clear()
            if library == "torch":
                T.compiler.reset()  # or the limit of recompilations is reached
            answer = None
        elif what == "work":
            answer = floor.work(T, ALL, *rest)
        else:
            answer = floor.rates(T, clock)
        pipe.send(answer)


def build(library, T, name, mode, way, half, sizes):
    """``(step, answer)``: the answer holds the first losses and the seconds of the calls that gave them, or why there is none."""
    begin = time.perf_counter()
    try:
        if library == "jax":
            from programs import in_jax

            step = in_jax.PROGRAMS[name](**sizes)
        else:
            programs.FUSED = "plain" not in way
            if "sdpa" in way:
                sizes = sizes | {"sdpa": True}
            try:
                program = ALL[name](T, **sizes)
            except AttributeError as error:
                raise NotBuiltError(str(error)) from error
            step = WAYS[mode](T, program, way, half)
        built = time.perf_counter()
        # tenon runs a program from the fourth call on: one call is eager, two are recorded.
        losses = [float(step().item()) for _ in range(STEPS)]
        first = time.perf_counter() - built
    except NotBuiltError as error:
        return None, {"not_built": str(error)}
    except Exception as error:  # a row that fails is a result, and the other rows go on
        lines = str(error).strip().splitlines() or [""]
        return None, {"failed": f"{type(error).__name__}: {lines[0]}"}
    return step, {"losses": losses, "build_s": built - begin, "first_calls_s": first}


def compiler(T, **options):
    """The library's ``compile``."""
    if not hasattr(T, "compile"):
        raise NotBuiltError(f"{T.__name__}.compile")
    return lambda function: T.compile(function, **options)


def halved(T, function):
    """``function`` under the library's own mixed precision."""
    if not hasattr(T, "autocast"):
        raise NotBuiltError(f"{T.__name__}.autocast")

    def run(*args):
        with T.autocast("cpu", dtype=T.bfloat16):
            return function(*args)

    return run


def channels_last(T, program):
    """Program and batch in the layout that PyTorch advises for convolutions."""
    program.net.to(memory_format=T.channels_last)
    program.batch = tuple(convert(T, x) for x in program.batch)
    program.inputs = tuple(convert(T, x) for x in program.inputs)


def convert(T, x):
    """``x`` with its channels last, if it has any."""
    return x.contiguous(memory_format=T.channels_last) if x.dim() == 4 else x


def training(T, program, way, half):
    """A training step in one of: "eager", "compiled", each "channels last", and "compiled plain optimizer"."""
    if "channels" in way:
        channels_last(T, program)
    if half:
        program.loss = halved(T, program.loss)
    if "compiled" not in way:
        return program.step
    compiled = compiler(T)
    if T.__name__ == "tenon":
        if program.draw is not None:
            return compiled(program.step)
        step = compiled(program.step_on)
        return lambda: step(*program.batch)
    # PyTorch's advice: compile the forward, whose backward then is compiled too; a whole step would break at
    # backward() into the same parts. Its optimizers can be compiled in addition; fused ones are compiled already.
    program.loss = compiled(program.loss)
    if program.optimizer is not None and "plain" in way:
        program.optimizer.step = compiled(program.optimizer.step)
    return program.step


def inference(T, program, way, half):
    """A forward of the network without gradients: "eager", "compiled", "compiled frozen", "eager channels last"."""
    program.net.eval()
    if "channels" in way:
        channels_last(T, program)
    net = halved(T, program.net) if half else program.net
    if "compiled" in way:
        net = compiler(T, **({"options": {"freezing": True}} if "frozen" in way else {}))(net)
    mode = getattr(T, "inference_mode", contextlib.nullcontext)

    def run():
        with mode():
            return Result(net(*program.inputs))

    return run


class Result:
    """An output, reduced to a number only where it is compared."""

    def __init__(self, output):
        self.output = output

    def item(self):
        """The mean square."""
        return self.output.float().square().mean().item()


WAYS = {"train": training, "infer": inference}
