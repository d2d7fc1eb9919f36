"""Fail in the way that the first argument names, on the last rank; the others wait in a collective.

Before it fails, the rank writes the time to the file ``CLOCK``.
"""

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time

import numpy as np

from tenon.distributed.processes import startup

startup.prepare()
KIND, CLOCK = sys.argv[1], os.environ["CLOCK"]
FACTS = startup.launched()


def start_clock():
    with open(CLOCK, "w") as file:
        file.write(repr(time.time()))


if KIND.startswith("early") and FACTS.rank == FACTS.size - 1:
    time.sleep(0.2)
    start_clock()
    if KIND == "early_import":
        import a_module_that_is_not_there  # noqa: F401
    if KIND == "early_raised_exit":
        raise SystemExit(3)
    sys.exit(3)

from tenon.distributed.processes.launch import launch  # noqa: E402

communicator = launch()
communicator.step = 17
communicator.barrier()


def fail_deep_inside():
    error = ValueError("a bad value")
    error.tenon_module_path = "features.3.conv"
    raise RuntimeError("wrapped") from error


def raise_in_a_thread_and_here():
    thread = threading.Thread(target=fail_by_exit)
    thread.start()
    thread.join()  # that one ends its thread only
    with contextlib.suppress(SystemExit):
        fail_by_exit(4)
    fail_by_exit()


def fail_by_exit(status=3):
    raise SystemExit(status)


def wait_for_the_others(name="fc.weight", shape=3):
    communicator.all_reduce(np.ones(shape), name=name)


def use_up_memory():
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    batches = []
    while True:
        batches.append(bytearray(1 << 20))


def use_up_memory_of_the_group():
    with open(os.environ["MEMORY_GROUP"], "w") as file:
        file.write(str(os.getpid()))
    batches = []
    while True:
        batches.append(b"x" * (1 << 20))


def reduce_gradients(names, shape=3):
    for name in names:
        wait_for_the_others(name, shape)


def build_another_model():
    import tenon
    from tenon.nn import Module, Parameter

    model = Module()
    model.weight = Parameter(tenon.zeros(2 + (communicator.rank == communicator.size - 1)))
    start_clock()
    tenon.nn.parallel.DistributedDataParallel(model)


def fail():
    start_clock()
    match KIND:
        case "exception":
            fail_deep_inside()
        case "exit":
            sys.exit(3)
        case "exit_with_text":
            sys.exit("no data in /data")
        case "raised_exit":
            raise SystemExit(3)
        case "raised_exit_deep":
            raise_in_a_thread_and_here()
        case "thread":
            threading.Thread(target=fail_deep_inside, name="loader").start()
            wait_for_the_others()
            time.sleep(10)
        case "memory":
            use_up_memory()
        case "out_of_memory":
            use_up_memory_of_the_group()
        case "shapes":
            reduce_gradients(["fc.weight"], 4)
        case "swapped":
            reduce_gradients(["fc.bias", "fc.weight"])
        case "skipped_parameter":
            reduce_gradients(["fc.weight", "head.weight"])
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
        case "interrupt":
            raise KeyboardInterrupt
        case "skipped_collective":
            return
        case "replaced_hook":
            sys.excepthook = sys.__excepthook__
            fail_deep_inside()
        case "ctrl_c":
            time.sleep(30)
        case "abort":
            communicator.abort(ValueError("given up"))


if KIND == "raised_normal_exit":
    wait_for_the_others()
    raise SystemExit(None if communicator.rank else 0)
elif KIND == "kept_exit":
    kept = []
    for leave in (sys.exit, fail_by_exit):
        try:
            leave(3)
        except SystemExit as error:
            kept.append(error)
    wait_for_the_others()
elif KIND == "failing_workers":
    if communicator.rank == 1:
        for target in (fail_deep_inside, lambda: sys.exit(3)):
            worker = multiprocessing.get_context("fork").Process(target=target)
            worker.start()
            worker.join()
            assert worker.exitcode in (1, 3)
    wait_for_the_others()
elif KIND == "models":
    build_another_model()
elif KIND == "all":
    start_clock()
    fail_deep_inside()
elif communicator.rank == communicator.size - 1:
    time.sleep(0.1)
    fail()
else:
    reduce_gradients(["fc.weight", "fc.bias", "head.weight"])
