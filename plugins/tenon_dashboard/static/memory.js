// Memory: allocated memory over time on each device, its peak, and its owners at the peak.

import { staircase } from "./charts.js";
import { h, section } from "./dom.js";
import { table } from "./table.js";
import { bytes, count, time } from "./units.js";

export function memory(data, run) {
  if (!data.devices.length)
    return h("p", { class: "note" }, "No allocation was recorded: profile with profile_memory=True.");
  const numbers = table({
    name: `${run} devices`,
    caption: "Memory of each rank and device",
    columns: [
      { label: "rank", value: (row) => row.rank, text: true },
      { label: "device", value: (row) => row.device, text: true },
      { label: "peak", value: (row) => row.peak, show: bytes, bar: true },
      { label: "at", value: (row) => row.peak_at, show: time, title: "since the run's first event" },
      { label: "at the start", value: (row) => row.start, show: bytes },
      { label: "at the end", value: (row) => row.end, show: bytes },
      { label: "allocations and releases", value: (row) => row.changes, show: count },
    ],
    rows: data.devices,
    sort: 2,
  });
  return h(
    "div",
    {},
    section("Peaks", numbers),
    data.devices.map((device, i) => one(device, run, i < 2)),
  );
}

function one(device, run, open) {
  const title = `Rank ${device.rank}, ${device.device}`,
    peak = device.curve.find((point) => point[1] === device.peak) ?? device.curve[0];
  return h(
    "details",
    { open },
    h("summary", {}, title),
    h(
      "div",
      { class: "grid2 owners" },
      staircase(
        device.curve,
        peak,
        `${title}: allocated memory over time, at most ${bytes(device.peak)} at ${time(device.peak_at)}`,
      ),
      table({
        name: `${run} owners ${title}`,
        caption: `${title}: who held memory at the peak of ${bytes(device.peak)}`,
        columns: [
          { label: "module", value: (row) => row[0] || "(none)", text: true },
          { label: "operator", value: (row) => row[1], text: true },
          { label: "phase", value: (row) => row[2], text: true },
          { label: "held", value: (row) => row[3], show: bytes, bar: true },
          {
            label: "of peak",
            value: (row) => row[3] / device.peak,
            show: (value) => `${(100 * value).toFixed(1)} %`,
          },
          { label: "blocks", value: (row) => row[4], show: count },
        ],
        rows: device.owners,
        sort: 3,
      }),
    ),
  );
}
