// Kernels: the kernels of compiled programs with their operators, and kernels on GPUs.

import { h, section } from "./dom.js";
import { table } from "./table.js";
import { byteRate, count, flopRate, time } from "./units.js";

const KIND = 0,
  NAME = 1,
  SOURCES = 2,
  WHERE = 3,
  GRID = 4,
  BLOCK = 5,
  CALLS = 6,
  TOTAL = 7,
  OCCUPANCY = 8,
  FLOPS = 9,
  BYTES = 10;
const rate = (column) => (row) => (row[TOTAL] ? row[column] / (row[TOTAL] / 1e9) : 0);
const timing = [
  { label: "total", value: (row) => row[TOTAL], show: time, bar: true },
  { label: "calls", value: (row) => row[CALLS], show: count },
  { label: "per call", value: (row) => row[TOTAL] / row[CALLS], show: time },
];

export function kernels(data, run) {
  const of = (...kinds) => data.rows.filter((row) => kinds.includes(row[KIND]));
  const total = (label) => label.findIndex((column) => column.label === "total");
  const compiled = [
    { label: "kernel", value: (row) => row[NAME], text: true },
    { label: "made of", value: (row) => row[SOURCES] || row[NAME], text: true },
    ...timing,
    { label: "FLOP/s", value: rate(FLOPS), show: flopRate },
    { label: "bytes/s", value: rate(BYTES), show: byteRate },
    {
      label: "written at",
      value: (row) => row[WHERE],
      show: (value) => value.split("/").pop(),
      text: true,
      tight: true,
    },
  ];
  const gpu = [
    { label: "kernel", value: (row) => row[NAME], text: true },
    { label: "device", value: (row) => row[WHERE], text: true },
    ...timing,
    { label: "grid", value: (row) => row[GRID], text: true },
    { label: "block", value: (row) => row[BLOCK], text: true },
    {
      label: "occupancy",
      value: (row) => row[OCCUPANCY],
      show: (value) => (value ? `${value.toFixed(0)} %` : ""),
    },
  ];
  return h(
    "div",
    {},
    section(
      "Kernels of compiled programs",
      table({
        name: `${run} fused`,
        caption: "Each kernel of a compiled program, with the operators that it was fused from",
        columns: compiled,
        rows: of("fused", "op"),
        sort: total(compiled),
        filter: true,
        empty: "No compiled program ran: tenon.compile a model or a step to have its operators fused.",
      }),
    ),
    of("program").length > 0 &&
      section(
        "Compiled programs",
        table({
          name: `${run} programs`,
          caption: "Runs of each compiled program",
          columns: [{ label: "program", value: (row) => row[NAME], text: true }, ...timing],
          rows: of("program"),
          sort: 1,
        }),
      ),
    section(
      "GPU kernels",
      table({
        name: `${run} gpu`,
        caption: "Kernels on GPUs",
        columns: gpu,
        rows: of("gpu"),
        sort: total(gpu),
        filter: true,
        empty: "Nothing ran on a GPU.",
      }),
    ),
  );
}
