// Operators: self and total time, calls, shapes, and the share of the machine's measured peak.

import { h, section, select } from "./dom.js";
import { table } from "./table.js";
import { byteRate, bytes, count, flopRate, percent, signed, time } from "./units.js";

const NAME = 0,
  SHAPES = 1,
  PHASE = 2,
  CALLS = 3,
  TOTAL = 4,
  SELF = 5,
  FLOPS = 6,
  BYTES = 7;
const GROUPS = [
  ["name", "name"],
  ["shapes", "name and shapes"],
  ["phase", "name and phase"],
];
let group = "shapes";

function grouped(rows, by) {
  const found = new Map();
  for (const row of rows) {
    const key =
      by === "name"
        ? [row[NAME], "", ""]
        : by === "shapes"
          ? [row[NAME], row[SHAPES], ""]
          : [row[NAME], "", row[PHASE]];
    const text = JSON.stringify(key),
      sum = found.get(text);
    if (sum) for (let i = CALLS; i <= BYTES; i++) sum[i] += row[i];
    else found.set(text, [...key, ...row.slice(CALLS)]);
  }
  return [...found.values()];
}

export function operators(data, run) {
  const place = h("div");
  const draw = () =>
    place.replaceChildren(
      section(
        "Operators",
        h(
          "div",
          { class: "tools" },
          select("Group by", GROUPS, group, (value) => {
            group = value;
            draw();
            place.querySelector("select").focus();
          }),
        ),
        peaks(data),
        list(data, run),
      ),
    );
  draw();
  return place;
}

function peaks(data) {
  if (!data.flops_per_second)
    return h("p", { class: "note" }, "This run's machine was not measured: no share of its peak is shown.");
  const beyond = data.rows.some((row) => ofPeak(row, data) > 1.05);
  return h(
    "p",
    { class: "note" },
    `Measured peak of a rank: ${flopRate(data.flops_per_second)}, ${byteRate(data.bytes_per_second)}. `,
    "“of peak” is the larger share of the two: near 100 %, only less work makes it faster.",
    beyond &&
      " More than 100 %: the machine was busy when it was measured, or an operator did less than is counted, as" +
        " convolutions by Winograd's algorithm do.",
  );
}

/** The share of the machine's peak that an operator reaches, in arithmetic or memory, whichever is more. */
function ofPeak(row, data) {
  if (!data.flops_per_second || !row[SELF] || (!row[FLOPS] && !row[BYTES])) return null;
  const seconds = row[SELF] / 1e9;
  return Math.max(row[FLOPS] / seconds / data.flops_per_second, row[BYTES] / seconds / data.bytes_per_second);
}

function list(data, run) {
  const rows = grouped(data.rows, group),
    total = rows.reduce((sum, row) => sum + row[SELF], 0);
  const about = {
    shapes: [{ label: "shapes", value: (row) => row[SHAPES], text: true }],
    phase: [{ label: "phase", value: (row) => row[PHASE], text: true }],
    name: [],
  };
  const columns = [
    { label: "operator", value: (row) => row[NAME], text: true },
    ...about[group],
    {
      label: "self",
      value: (row) => row[SELF],
      show: time,
      bar: true,
      title: "without the operators inside",
    },
    { label: "self %", value: (row) => row[SELF] / total, show: percent },
    { label: "total", value: (row) => row[TOTAL], show: time, title: "with the operators inside" },
    { label: "calls", value: (row) => row[CALLS], show: count },
    { label: "self per call", value: (row) => row[SELF] / row[CALLS], show: time },
    {
      label: "FLOP/s",
      value: (row) => (row[SELF] ? row[FLOPS] / (row[SELF] / 1e9) : 0),
      show: flopRate,
      spare: true,
    },
    {
      label: "bytes/s",
      value: (row) => (row[SELF] ? row[BYTES] / (row[SELF] / 1e9) : 0),
      show: byteRate,
      spare: true,
    },
    { label: "of peak", value: (row) => ofPeak(row, data), show: percent, spare: true },
    { label: "bytes", value: (row) => row[BYTES], show: (value) => (value ? bytes(value) : "") },
  ];
  const silent = (column) => column.spare && !rows.some(column.value);
  columns.splice(0, columns.length, ...columns.filter((column) => !silent(column)));
  const sort = columns.findIndex((column) => column.label === "self");
  return table({
    name: `${run} operators ${group}`,
    caption: "Operators over all steps and chosen ranks",
    columns,
    rows,
    sort,
    filter: true,
  });
}

/** Two runs in one table, with their differences. */
export function compared(answers, names) {
  const [first, second] = answers.map(
    (answer) => new Map(grouped(answer.rows, "name").map((row) => [row[NAME], row])),
  );
  const none = [0, 0, 0, 0, 0, 0, 0, 0];
  const rows = [...new Set([...first.keys(), ...second.keys()])].map((name) => [
    name,
    first.get(name) ?? none,
    second.get(name) ?? none,
  ]);
  const change = signed(time);
  return h(
    "div",
    { class: "whole" },
    section(
      "Operators of two runs",
      h(
        "p",
        { class: "note" },
        "A is ",
        h("strong", {}, names[0]),
        ", B is ",
        h("strong", {}, names[1]),
        ". Positive changes: B takes longer.",
      ),
      table({
        name: `${names} compared`,
        caption: "Self time and calls of each operator in both runs",
        columns: [
          { label: "operator", value: (row) => row[0], text: true },
          { label: "A self", value: (row) => row[1][SELF], show: time, bar: true },
          { label: "B self", value: (row) => row[2][SELF], show: time, bar: true },
          { label: "change", value: (row) => row[2][SELF] - row[1][SELF], show: change },
          {
            label: "B / A",
            value: (row) => (row[1][SELF] ? row[2][SELF] / row[1][SELF] : null),
            show: (value) => (value == null ? "only B" : value.toFixed(2)),
          },
          { label: "A calls", value: (row) => row[1][CALLS], show: count },
          { label: "B calls", value: (row) => row[2][CALLS], show: count },
        ],
        rows,
        sort: 1,
        filter: true,
      }),
    ),
  );
}
