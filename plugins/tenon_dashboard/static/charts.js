// Bars, columns and curves as SVG, with units on every axis. A table beside each shows its numbers.

import { h, s } from "./dom.js";
import { bytes, tickText, ticks, time, unit } from "./units.js";

const LEFT = 62,
  RIGHT = 14,
  TOP = 8,
  BOTTOM = 36;

/** A legend of the parts, whose marks distinguish them without colours, too. */
export function legend(parts) {
  return h(
    "ul",
    { class: "legend" },
    parts.map((part) => h("li", {}, h("span", { class: `swatch part-${part}` }), part)),
  );
}

function axisX(low, high, width, y, kind, label) {
  const [factor, name] = kind === "number" ? [1, ""] : unit(high, kind);
  const scale = (width - LEFT - RIGHT) / (high - low || 1);
  const marks = ticks(low / factor, high / factor, Math.max(2, width / 110)).map((value) => {
    const x = LEFT + (value * factor - low) * scale;
    return s(
      "g",
      {},
      s("line", { class: "grid", x1: x, x2: x, y1: TOP, y2: y }),
      s("text", { class: "tick", x, y: y + 15, "text-anchor": "middle" }, tickText(value)),
    );
  });
  const title = name ? `${label} (${name})` : label;
  return s(
    "g",
    { "aria-hidden": "true" },
    marks,
    s("text", { class: "axis", x: (LEFT + width - RIGHT) / 2, y: y + 31, "text-anchor": "middle" }, title),
  );
}

function axisY(high, width, height, kind, label) {
  const [factor, name] = unit(high, kind);
  const scale = (height - TOP - BOTTOM) / (high || 1);
  const marks = ticks(0, high / factor, 4).map((value) => {
    const y = height - BOTTOM - value * factor * scale;
    return s(
      "g",
      {},
      s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
      s("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, tickText(value)),
    );
  });
  const middle = (TOP + height - BOTTOM) / 2;
  return s(
    "g",
    { "aria-hidden": "true" },
    marks,
    s(
      "text",
      { class: "axis", transform: `translate(14 ${middle}) rotate(-90)`, "text-anchor": "middle" },
      `${label} (${name})`,
    ),
  );
}

function frame(width, height, label, ...children) {
  return s(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...children,
  );
}

/** One bar per row, its parts side by side; rows: {label, parts: nanoseconds}. */
export function stackedBars(rows, parts, label, width = 620) {
  const bar = Math.min(26, Math.max(8, 320 / rows.length)),
    gap = bar > 12 ? 6 : 2;
  const height = TOP + rows.length * (bar + gap) + BOTTOM;
  const most = Math.max(...rows.map((row) => row.parts.reduce((a, b) => a + b, 0)), 1);
  const scale = (width - LEFT - RIGHT) / most;
  const drawn = rows.map((row, i) => {
    let x = LEFT;
    const y = TOP + i * (bar + gap);
    const pieces = row.parts.map((value, part) => {
      const piece = s(
        "rect",
        { class: `part-${parts[part]}`, x, y, width: value * scale, height: bar },
        s("title", {}, `${row.label}: ${parts[part]} ${time(value)}`),
      );
      x += value * scale;
      return piece;
    });
    return s(
      "g",
      {},
      s("text", { class: "tick", x: LEFT - 6, y: y + bar / 2 + 4, "text-anchor": "end" }, row.label),
      pieces,
    );
  });
  return frame(width, height, label, axisX(0, most, width, height - BOTTOM, "time", "time"), drawn);
}

/** One column per step, its parts stacked; many steps are joined, so that columns are two pixels wide. */
export function stackedColumns(steps, parts, label, width = 620, height = 230) {
  const join = Math.ceil(steps.length / 300),
    columns = [];
  for (let i = 0; i < steps.length; i += join) {
    const group = steps.slice(i, i + join);
    columns.push({
      step: group[0].step,
      parts: parts.map((_, p) => group.reduce((sum, g) => sum + g.parts[p], 0) / group.length),
    });
  }
  const most = 1.05 * Math.max(...columns.map((column) => column.parts.reduce((a, b) => a + b, 0)), 1);
  const scale = (height - TOP - BOTTOM) / most,
    wide = (width - LEFT - RIGHT) / columns.length;
  const gap = wide > 6 ? Math.min(4, wide / 5) : 0.5;
  const drawn = columns.map((column, i) => {
    let y = height - BOTTOM;
    return column.parts.map((value, part) => {
      y -= value * scale;
      return s(
        "rect",
        {
          class: `part-${parts[part]}`,
          x: LEFT + i * wide,
          y,
          width: Math.max(wide - gap, 0.5),
          height: value * scale,
        },
        s("title", {}, `step ${column.step}: ${parts[part]} ${time(value)}`),
      );
    });
  });
  const every = Math.ceil(columns.length / 12);
  const marks = columns.map(
    (column, i) =>
      i % every === 0 &&
      s(
        "text",
        { class: "tick", x: LEFT + (i + 0.5) * wide, y: height - BOTTOM + 15, "text-anchor": "middle" },
        String(column.step),
      ),
  );
  const title = join > 1 ? `step (mean of ${join})` : "step";
  return frame(
    width,
    height,
    label,
    axisY(most, width, height, "time", "time"),
    drawn,
    marks.filter(Boolean),
    s(
      "text",
      { class: "axis", x: (LEFT + width - RIGHT) / 2, y: height - 5, "text-anchor": "middle" },
      title,
    ),
  );
}

/** A step curve over time: points [nanoseconds, bytes]; `mark` is a labelled one. */
export function staircase(points, mark, label, width = 620, height = 240) {
  const [first, last] = [points[0][0], Math.max(points.at(-1)[0], points[0][0] + 1)];
  const most = 1.1 * Math.max(...points.map((p) => p[1]), 1);
  const x = (at) => LEFT + ((at - first) / (last - first)) * (width - LEFT - RIGHT);
  const y = (size) => height - BOTTOM - (size / most) * (height - TOP - BOTTOM);
  let line = `M${x(points[0][0])},${y(points[0][1])}`;
  for (const [at, size] of points.slice(1)) line += `H${x(at).toFixed(1)}V${y(size).toFixed(1)}`;
  const area = `${line}V${y(0)}H${x(first)}Z`;
  const side = x(mark[0]) > width / 2 ? "end" : "start";
  return frame(
    width,
    height,
    label,
    axisX(first, last, width, height - BOTTOM, "time", "since the run's first event"),
    axisY(most, width, height, "bytes", "allocated"),
    s("path", { class: "area", d: area }),
    s("path", { class: "line", d: line }),
    s("circle", { class: "mark", cx: x(mark[0]), cy: y(mark[1]), r: 4 }),
    s(
      "text",
      {
        class: "tick strong",
        x: x(mark[0]) + (side === "end" ? -8 : 8),
        y: y(mark[1]) + 4,
        "text-anchor": side,
      },
      `peak ${bytes(mark[1])}`,
    ),
  );
}
