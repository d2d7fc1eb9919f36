"""Conversions between float16 and float32 for processors without instructions for them (x86 without F16C).

LLVM emits calls of ``__extendhfsf2`` and ``__truncsfhf2`` there, of a runtime library that Python does not
load; a call of an unknown function ends the process.
"""

from __future__ import annotations

#: The names that LLVM calls.
NAMES = ("__extendhfsf2", "__truncsfhf2")

#: Widening shifts exponent and digits to their positions in float32 and multiplies by 2^112, the difference
#: of the biases, which also normalises denormals. Narrowing adds a power of two, so that float32 addition
#: rounds to the digits that float16 keeps, ties to even.
TEXT = """
define float @__extendhfsf2(half %x) {
  %h = bitcast half %x to i16
  %w = zext i16 %h to i32
  %body = and i32 %w, 32767
  %moved = shl i32 %body, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000
  %number = bitcast float %scaled to i32
  %special = or i32 %moved, 2139095040
  %odd = icmp uge i32 %body, 31744
  %absolute = select i1 %odd, i32 %special, i32 %number
  %top = and i32 %w, 32768
  %sign = shl i32 %top, 16
  %bits = or i32 %absolute, %sign
  %made = bitcast i32 %bits to float
  ret float %made
}
define half @__truncsfhf2(float %x) {
  %w = bitcast float %x to i32
  %body = and i32 %w, 2147483647
  %top = lshr i32 %w, 16
  %sign = and i32 %top, 32768
  %absolute = bitcast i32 %body to float
  %large = fmul float %absolute, 0x46F0000000000000
  %scaled = fmul float %large, 0x3910000000000000
  %exponent = and i32 %body, 2139095040
  %below = icmp ult i32 %exponent, 947912704
  %least = select i1 %below, i32 947912704, i32 %exponent
  %unit = add i32 %least, 125829120
  %rounder = bitcast i32 %unit to float
  %rounded = fadd float %scaled, %rounder
  %r = bitcast float %rounded to i32
  %shifted = lshr i32 %r, 13
  %power = and i32 %shifted, 31744
  %digits = and i32 %r, 4095
  %number = add i32 %power, %digits
  %payload = lshr i32 %body, 13
  %quiet = or i32 %payload, 32256
  %short = and i32 %quiet, 32767
  %nan = icmp ugt i32 %body, 2139095040
  %chosen = select i1 %nan, i32 %short, i32 %number
  %bits = or i32 %chosen, %sign
  %h = trunc i32 %bits to i16
  %made = bitcast i16 %h to half
  ret half %made
}
"""
