"""Emit the LLVM text of exact products of 8-bit integers, for processors with AVX2 and without VNNI.

There the widest instruction with exact sums, ``vpmaddwd``, multiplies pairs of 16 bits. So rows are stored as
int16, minus their zero point, and the weight as int8 in panels of 16 columns, pair by pair; it is widened
when it is loaded. Six rows by a panel fill the registers.

A row need not be contiguous: it is ``tap_count`` runs of ``pairs`` pairs, each at an offset from the row's
start. That makes a convolution over a padded image a product without copying.

``text`` emits a module for ``compiler/llvm.py``; ``TABLE`` names the words of its table.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from tenon_cpu.jit.compiler.llvm import driver

#: ``places`` and ``taps`` are offsets in elements of ``source``; a piece of work is a panel by a group of
#: ``group`` rows. ``numbers`` has the least result, and the step and zero point of the results.
TABLE = (
    "count", "source", "places", "taps", "tap_count", "pairs", "weight", "scale", "bias", "target",
    "target_row", "rows", "columns", "group", "groups", "numbers",
)  # fmt: skip
#: Columns of a panel, and rows of a block.
PANEL, ROWS = 16, 6
_PRODUCT = "@llvm.x86.avx2.pmadd.wd"
_POINTERS = frozenset({"source", "places", "taps", "weight", "scale", "bias", "target", "numbers"})

_WORK = """
define void @work(ptr noalias %table, i64 %first, i64 %last) {{
entry:
  %sums = alloca [{size} x i32], align 64
{words}
  %panel_pairs = mul i64 %tap_count, %pairs
  %panel_bytes = mul i64 %panel_pairs, {pair_bytes}
  br label %units
units:
  %unit = phi i64 [%first, %entry], [%unit_next, %unit_end]
  %more = icmp slt i64 %unit, %last
  br i1 %more, label %unit_body, label %done
unit_body:
  %panel = sdiv i64 %unit, %groups
  %which = srem i64 %unit, %groups
  %row_first = mul i64 %which, %group
  %row_stop = add i64 %row_first, %group
  %whole = icmp slt i64 %row_stop, %rows
  %row_last = select i1 %whole, i64 %row_stop, i64 %rows
  %weight_at = mul i64 %panel, %panel_bytes
  %panel_weight = getelementptr i8, ptr %to_weight, i64 %weight_at
  %column = mul i64 %panel, {panel}
  %left = sub i64 %columns, %column
  %panel_scale = getelementptr float, ptr %to_scale, i64 %column
  %panel_bias = getelementptr float, ptr %to_bias, i64 %column
  br label %rows_head
rows_head:
  %row = phi i64 [%row_first, %unit_body], [%row_next, %finished]
  %rest = sub i64 %row_last, %row
  %any = icmp sgt i64 %rest, 0
  br i1 %any, label %choose, label %unit_end
choose:
  %row_places = getelementptr i64, ptr %to_places, i64 %row
  %many = icmp sge i64 %rest, {rows}
  %now = select i1 %many, i64 {rows}, i64 %rest
  switch i64 %now, label %rows{rows} [{cases}]
{calls}
finish:
  %target_at = mul i64 %row, %target_row
  %target_place = add i64 %target_at, %column
  %target_bytes = mul i64 %target_place, {out_bytes}
  %to = getelementptr i8, ptr %to_target, i64 %target_bytes
  br label %finish_row
finish_row:
  %r = phi i64 [0, %finish], [%r_next, %finish_row]
  %sums_at = mul i64 %r, {panel}
  %row_sums = getelementptr i32, ptr %sums, i64 %sums_at
  %to_at = mul i64 %r, %target_row
  %to_bytes = mul i64 %to_at, {out_bytes}
  %row_to = getelementptr i8, ptr %to, i64 %to_bytes
  call void @finish(ptr %row_sums, ptr %panel_scale, ptr %panel_bias, ptr %to_numbers, ptr %row_to, i64 %left)
  %r_next = add i64 %r, 1
  %r_more = icmp slt i64 %r_next, %now
  br i1 %r_more, label %finish_row, label %finished
finished:
  %row_next = add i64 %row, %now
  br label %rows_head
unit_end:
  %unit_next = add i64 %unit, 1
  br label %units
done:
  ret void
}}
"""


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def _words() -> str:
    lines = []
    for index, word in enumerate(TABLE):
        lines += [f"%at_{word} = getelementptr i64, ptr %table, i64 {index}"]
        lines += [f"%{word} = load i64, ptr %at_{word}"]
        if word in _POINTERS:
            lines.append(f"%to_{word} = inttoptr i64 %{word} to ptr")
    return _lines(lines)


def _block(rows: int) -> str:
    """The function ``block<rows>``: the sums of products of so many rows and a panel."""
    sums = [f"s{r}_{h}" for r in range(rows) for h in (0, 1)]
    start = [f"%t{s} = phi <8 x i32> [zeroinitializer, %entry], [%n{s}, %tap_end]" for s in sums]
    inner = [f"%p{s} = phi <8 x i32> [%t{s}, %tap], [%n{s}, %pair]" for s in sums]
    bases = []
    for r in range(rows):
        bases += [
            f"%place_at{r} = getelementptr i64, ptr %places, i64 {r}",
            f"%place{r} = load i64, ptr %place_at{r}",
            f"%row{r} = getelementptr i16, ptr %source, i64 %place{r}",
        ]
    taps = [f"%run{r} = getelementptr i16, ptr %row{r}, i64 %offset" for r in range(rows)]
    body = []
    for h in (0, 1):
        body += [
            f"%w_at{h} = getelementptr i8, ptr %w, i64 {16 * h}",
            f"%narrow{h} = load <16 x i8>, ptr %w_at{h}, align 1",
            f"%wide{h} = sext <16 x i8> %narrow{h} to <16 x i16>",
        ]
    for r in range(rows):
        body += [
            f"%x_at{r} = getelementptr i32, ptr %run{r}, i64 %i",
            f"%x{r} = load i32, ptr %x_at{r}, align 2",
            f"%one{r} = insertelement <8 x i32> poison, i32 %x{r}, i32 0",
            f"%all{r} = shufflevector <8 x i32> %one{r}, <8 x i32> poison, <8 x i32> zeroinitializer",
            f"%both{r} = bitcast <8 x i32> %all{r} to <16 x i16>",
        ]
        for h in (0, 1):
            body += [
                f"%m{r}_{h} = call <8 x i32> {_PRODUCT}(<16 x i16> %both{r}, <16 x i16> %wide{h})",
                f"%ns{r}_{h} = add <8 x i32> %ps{r}_{h}, %m{r}_{h}",
            ]
    stores = []
    for r in range(rows):
        for h in (0, 1):
            stores += [
                f"%to{r}_{h} = getelementptr i32, ptr %sums, i64 {16 * r + 8 * h}",
                f"store <8 x i32> %ns{r}_{h}, ptr %to{r}_{h}, align 32",
            ]
    return f"""
define internal void @block{rows}(ptr noalias %source, ptr noalias %places, ptr noalias %taps, i64 %tap_count,
    i64 %pairs, ptr noalias %weight, ptr noalias %sums) noinline {{
entry:
{_lines(bases)}
  br label %tap
tap:
  %t = phi i64 [0, %entry], [%t_next, %tap_end]
  %tap_weight = phi ptr [%weight, %entry], [%w_next, %tap_end]
{_lines(start)}
  %tap_at = getelementptr i64, ptr %taps, i64 %t
  %offset = load i64, ptr %tap_at
{_lines(taps)}
  br label %pair
pair:
  %i = phi i64 [0, %tap], [%i_next, %pair]
  %w = phi ptr [%tap_weight, %tap], [%w_next, %pair]
{_lines(inner)}
{_lines(body)}
  %w_next = getelementptr i8, ptr %w, i64 {2 * PANEL}
  %i_next = add i64 %i, 1
  %i_more = icmp slt i64 %i_next, %pairs
  br i1 %i_more, label %pair, label %tap_end
tap_end:
  %t_next = add i64 %t, 1
  %t_more = icmp slt i64 %t_next, %tap_count
  br i1 %t_more, label %tap, label %end
end:
{_lines(stores)}
  ret void
}}
"""


def _finish(quantized: bool) -> str:
    """The function ``finish``: stores sixteen sums as float32, or quantized to uint8."""
    lines, kind = [], "<16 x float>"
    for index, name in enumerate(("least", "step", "zero")):
        lines += [
            f"%{name}_at = getelementptr float, ptr %numbers, i64 {index}",
            f"%{name}_1 = load float, ptr %{name}_at",
            f"%{name}_v = insertelement <16 x float> poison, float %{name}_1, i32 0",
            f"%{name} = shufflevector {kind} %{name}_v, {kind} poison, <16 x i32> zeroinitializer",
        ]
    lines += [
        "%sum = load <16 x i32>, ptr %sums, align 32",
        "%k = load <16 x float>, ptr %scale, align 4",
        "%b = load <16 x float>, ptr %bias, align 4",
        "%f = sitofp <16 x i32> %sum to <16 x float>",
        "%scaled = fmul <16 x float> %f, %k",
        "%moved = fadd <16 x float> %scaled, %b",
        "%small = fcmp olt <16 x float> %moved, %least",  # false for NaN, which stays
        "%made = select <16 x i1> %small, <16 x float> %least, <16 x float> %moved",
    ]
    name = "%made"
    if quantized:
        kind, name = "<16 x i8>", "%bytes"
        none, most = (f"<{', '.join([f'float {n}'] * 16)}>" for n in ("0.0", "255.0"))
        lines += [
            "%steps = fdiv <16 x float> %made, %step",
            "%shifted = fadd <16 x float> %steps, %zero",
            "%round = call <16 x float> @llvm.rint.v16f32(<16 x float> %shifted)",
            f"%low = call <16 x float> @llvm.maxnum.v16f32(<16 x float> %round, <16 x float> {none})",
            f"%high = call <16 x float> @llvm.minnum.v16f32(<16 x float> %low, <16 x float> {most})",
            "%whole = fptosi <16 x float> %high to <16 x i32>",
            "%bytes = trunc <16 x i32> %whole to <16 x i8>",
        ]
    letters = "v16i8" if quantized else "v16f32"
    return f"""
define internal void @finish(ptr noalias %sums, ptr noalias %scale, ptr noalias %bias, ptr noalias %numbers,
    ptr noalias %to, i64 %left) {{
entry:
{_lines(lines)}
  %all = icmp sge i64 %left, {PANEL}
  br i1 %all, label %full, label %part
full:
  store {kind} {name}, ptr %to, align 1
  ret void
part:
  %left_1 = insertelement <16 x i64> poison, i64 %left, i32 0
  %left_v = shufflevector <16 x i64> %left_1, <16 x i64> poison, <16 x i32> zeroinitializer
  %mask = icmp sgt <16 x i64> %left_v, <{", ".join(f"i64 {i}" for i in range(16))}>
  call void @llvm.masked.store.{letters}.p0({kind} {name}, ptr %to, i32 1, <16 x i1> %mask)
  ret void
}}
declare void @llvm.masked.store.{letters}.p0({kind}, ptr, i32, <16 x i1>)
declare <16 x float> @llvm.rint.v16f32(<16 x float>)
declare <16 x float> @llvm.maxnum.v16f32(<16 x float>, <16 x float>)
declare <16 x float> @llvm.minnum.v16f32(<16 x float>, <16 x float>)
declare <8 x i32> {_PRODUCT}(<16 x i16>, <16 x i16>)
"""


@functools.cache
def text(quantized: bool) -> str:
    """The text of the module whose results are uint8 (``quantized``) or float32."""
    counts = range(1, ROWS + 1)
    calls = "\n".join(
        f"rows{n}:\n  call void @block{n}(ptr %to_source, ptr %row_places, ptr %to_taps, i64 %tap_count,"
        f" i64 %pairs, ptr %panel_weight, ptr %sums)\n  br label %finish"
        for n in counts
    )
    work = _WORK.format(
        size=ROWS * PANEL, words=_words(), pair_bytes=2 * PANEL, panel=PANEL, rows=ROWS, calls=calls,
        cases=" ".join(f"i64 {n}, label %rows{n}" for n in counts), out_bytes=1 if quantized else 4,
    )  # fmt: skip
    return "\n".join([*map(_block, counts), _finish(quantized), work, driver(None)])


__all__ = ["PANEL", "ROWS", "TABLE", "text"]
