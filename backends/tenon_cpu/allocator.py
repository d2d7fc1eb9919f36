"""Keep the memory that one training step frees for the next one.

glibc gives freed memory at the top of the heap back to the kernel, and maps large blocks afresh each time;
the next step then pays a page fault and 4 KB of zeroing for every page of every activation and gradient. A
process that trains uses the same memory again at once, so up to 256 MB stay with it: steps of an MLP took
21 % less time, of a GPT 12 %, of a CNN 8 % (one thread, processor time), at the same peak memory.

The heap also grows by that much at once. Where Linux leaves the choice to programs, it is advised to back the
heap with huge pages, as NumPy does for blocks of 4 MB and more (``NUMPY_MADVISE_HUGEPAGE=0`` stops both).
With fewer TLB misses, AdamW over 100 arrays of 400 kB took 10 % less time, steps of an MLP 5 %, of a GPT 3 %,
of a CNN 1 %, at the same peak memory but for 4 MB. What the heap grows by beyond that has pages as usual.

``TENON_CPU_KEEP_MB`` sets how much is kept; 0 leaves the allocator alone, as other C libraries are.
"""

from __future__ import annotations

import ctypes
import sys

from tenon.extend import Config, environment, errors

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
#: ``madvise``'s advice for huge pages, and the file in which Linux reports whether it follows it.
_HUGE_PAGES, _CHOICE = 14, "/sys/kernel/mm/transparent_hugepage/enabled"
_HUGE = 2 << 20
#: The largest that glibc takes, and where its own adaptation would end.
_LARGEST_FROM_HEAP = 32 << 20
_DEFAULT_MB = 256
_MOST_MB = 2047  # mallopt takes a C int


def megabytes(config: Config) -> int:
    """The value of ``TENON_CPU_KEEP_MB``; ConfigError if it is no number."""
    text = config.setting("cpu_keep_mb", str(_DEFAULT_MB)) or "0"
    if not text.isdecimal():
        raise errors.ConfigError(
            f"TENON_CPU_KEEP_MB is {text!r}; set megabytes, or 0 to leave the allocator unchanged."
        )
    return min(int(text), _MOST_MB)


def keep_freed_memory(kept: int) -> bool:
    """Make glibc retain up to ``kept`` megabytes of freed memory; return False if nothing was changed."""
    if not kept or not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version") or not hasattr(library, "mallopt"):
        return False
    set_option = library.mallopt
    set_option.argtypes, set_option.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    size = kept << 20
    changed = bool(set_option(_MMAP_THRESHOLD, _LARGEST_FROM_HEAP) and set_option(_TRIM_THRESHOLD, size))
    if changed and _may_choose_pages() and set_option(_TOP_PAD, size):
        _Heap.huge = True
        _advise_huge_pages(library)
    return changed


class _Heap:
    """Whether this process advises Linux to use huge pages for the heap."""

    huge = False


def _may_choose_pages() -> bool:
    """Whether Linux allocates huge pages where programs advise them, and NumPy is allowed to."""
    if environment("NUMPY_MADVISE_HUGEPAGE") == "0":
        return False
    try:
        with open(_CHOICE, encoding="ascii") as choice:
            return "[madvise]" in choice.read()
    except OSError:
        return False


def _advise_huge_pages(library: ctypes.CDLL) -> None:
    """Advise huge pages for the heap, which is made to grow once; none of its new pages is touched."""
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    library.free.restype, library.free.argtypes = None, (ctypes.c_void_p,)
    library.free(library.malloc(_LARGEST_FROM_HEAP - (1 << 16)))
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        heap = [line.split()[0] for line in maps if line.rstrip().endswith("[heap]")]
    for span in heap:
        first, last = (int(end, 16) for end in span.split("-"))
        first = -(-first // _HUGE) * _HUGE
        if first < last:
            library.madvise(first, last - first, _HUGE_PAGES)


def give_back() -> bool:
    """Return the heap's free memory to the system; False if there is none, or glibc is not the C library."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        return False
    returned = bool(library.malloc_trim(0))
    if _Heap.huge:
        _advise_huge_pages(library)  # memory by which the heap grows again has no such advice yet
    return returned
