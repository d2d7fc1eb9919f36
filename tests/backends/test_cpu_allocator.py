"""The CPU backend makes the allocator keep freed memory for the next step."""

import os
import platform
import subprocess
import sys

import pytest

from tenon.extend import Config
from tenon.extend import errors as tenon_errors
from tenon_cpu.allocator import _may_choose_pages, megabytes

STEPS = """
import resource
import tenon

def step():
    parts = [tenon.ones(1 << 20) for _ in range(8)]  # 8 blocks of 4 MB, freed together

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment):
    """Page faults of five steps that allocate and free 32 MB, in a process of its own."""
    quiet = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "TENON_", "GLIBC_"))}
    # NumPy asks for huge pages for large blocks, which hides what is counted here.
    environment = quiet | {"NUMPY_MADVISE_HUGEPAGE": "0"} | environment
    done = subprocess.run(
        [sys.executable, "-c", STEPS], capture_output=True, text=True, check=True, env=environment
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_memory_that_a_step_frees_is_there_for_the_next_step_without_page_faults():
    kept, given_back = faults(), faults(TENON_CPU_KEEP_MB="0")

    assert kept < 500
    assert given_back > 10 * max(kept, 100)  # 8192 pages a step


PAGES = """
import tenon
from tenon_cpu.allocator import give_back

def advised():
    flags, inside = [], False
    for line in open("/proc/self/smaps"):
        inside = line.rstrip().endswith("[heap]") if "-" in line.split()[0] else inside
        if inside and line.startswith("VmFlags"):
            flags.append("hg" in line.split())
    return any(flags)

held = [tenon.ones(100_000) for _ in range(100)]
print(advised())
del held
give_back()
held = [tenon.ones(100_000) for _ in range(100)]
print(advised())
"""


def advised(**environment):
    """Whether huge pages are advised for the heap, at first and after memory was returned."""
    quiet = {
        k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "TENON_", "GLIBC_", "NUMPY_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", PAGES], capture_output=True, text=True, check=True, env=quiet | environment
    )
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not _may_choose_pages(), reason="nobody is asked for huge pages here"
)
def test_the_heap_asks_for_huge_pages_unless_numpy_is_told_not_to():
    assert advised() == ["True", "True"]
    assert advised(NUMPY_MADVISE_HUGEPAGE="0") == ["False", "False"]
    assert advised(TENON_CPU_KEEP_MB="0") == ["False", "False"]


def test_megabytes_to_keep_must_be_a_number():
    with pytest.raises(tenon_errors.ConfigError, match="TENON_CPU_KEEP_MB is 'lots'; set megabytes, or 0"):
        megabytes(Config.from_environment({"TENON_CPU_KEEP_MB": "lots"}))


def test_megabytes_to_keep_are_limited_to_what_the_allocator_can_be_told():
    assert megabytes(Config.from_environment({})) == 256
    assert megabytes(Config.from_environment({"TENON_CPU_KEEP_MB": "1000000"})) == 2047
