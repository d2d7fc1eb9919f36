"""What is known of the callers of a running function, kept in its frame.

While a function runs, its callers stand still: their instructions stay, and so do the variables that only
they assign. To read either again in every collective takes more than half of the time of a name, on Python
3.11 and 3.12 above all, where ``f_locals`` makes a dict of all variables. But nothing else tells one call of
a function from the next: the address of a frame is used again, and a reference to the frame would keep the
variables of a function that has returned.

So ``name_of`` puts ``Callers`` into the attribute of the frame that is for a trace function, which Python
ignores where nobody traces. There it lives as long as the frame. A debugger replaces it, and none is put
where one traces already.
"""

from __future__ import annotations

from types import FrameType


class Callers:
    """From where a function was called: one object for all calls that have the same callers."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False  # ``bdb`` asks so whether there is a trace function.

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        """Trace nothing. ``frame``, ``event`` and ``arg`` have no effect."""


class ReadCallers(Callers):
    """``callers`` of one call, and what a ``Holder`` of ``place`` has read in one of them."""

    __slots__ = ("callers", "place", "subject", "value")

    def __init__(self, callers: Callers, place: object, value: object, subject: object) -> None:
        self.callers, self.place, self.value, self.subject = callers, place, value, subject
