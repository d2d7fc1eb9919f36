// Draw the lanes of a trace on a canvas, and find the span at a point.

import { tickText, ticks, unit } from "./units.js";

export const GUTTER = 128;
const RULER = 24,
  ROW = 17,
  GAP = 8;

const CATEGORIES = {
  cpu_op: "compute",
  tenon_wait: "wait",
  tenon_transfer: "communication",
  python_function: "module",
  kernel: "optimizer",
  runtime: "other",
};

function kindOf(category, name) {
  if (/^(gloo|nccl|mpi):/.test(name)) return "communication";
  if (name.startsWith("enumerate(DataLoader)#")) return "data";
  if (name.startsWith("Optimizer.step#")) return "optimizer";
  return CATEGORIES[category] ?? "annotation";
}

/** Black or white, whichever has more contrast on a colour like "#0072b2": always 4.5 to 1 at least. */
export function inkOn(back) {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const share = parseInt(back.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

/** A name without its common prefix, as bars are narrow. */
const shortened = (name) => name.replace(/^(tenon::|aten::|nn\.Module: )/, "");

/** The top of each lane, and the height of all of them. */
export function layout(lanes) {
  let y = RULER;
  const tops = lanes.map((lane) => {
    const top = y;
    y += Math.max(lane.levels.length, 1) * ROW + GAP;
    return top;
  });
  return { tops, height: y };
}

function colours() {
  const style = getComputedStyle(document.documentElement),
    known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, style.getPropertyValue(`--${name}`).trim());
    return known.get(name);
  };
}

/** Draw the response `data` for the window of `view`, with a frame around `chosen`. */
export function draw(canvas, data, view, chosen) {
  const ratio = window.devicePixelRatio || 1,
    width = canvas.clientWidth,
    { tops, height } = layout(data.lanes);
  canvas.style.height = `${height}px`;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d"),
    colour = colours(),
    scale = (width - GUTTER) / (view.end - view.begin);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colour("back");
  pen.fillRect(0, 0, width, height);
  ruler(pen, view, width, height, scale, colour);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  data.lanes.forEach((lane, i) => {
    pen.fillStyle = colour("raised");
    pen.fillRect(0, tops[i] - GAP / 2, GUTTER, 1);
    pen.fillStyle = colour("text");
    const title = `rank ${lane.rank}${lane.levels.length > 1 ? "" : ` ${lane.name}`}`;
    pen.fillText(title, 8, tops[i] + ROW / 2, GUTTER - 12);
    pen.fillStyle = colour("faint");
    if (lane.levels.length > 1) pen.fillText(lane.name, 8, tops[i] + ROW * 1.5, GUTTER - 12);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, RULER, width - GUTTER, height);
    pen.clip();
    lane.levels.forEach((level, depth) =>
      level.forEach((span) =>
        bar(
          pen,
          span,
          data.names,
          tops[i] + depth * ROW,
          view,
          scale,
          width,
          colour,
          chosen && chosen.lane === i && chosen.depth === depth && chosen.span[0] === span[0],
        ),
      ),
    );
    pen.restore();
  });
}

function ruler(pen, view, width, height, scale, colour) {
  const [factor, name] = unit(Math.max(view.end, 1), "time");
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (const value of ticks(view.begin / factor, view.end / factor, Math.max(2, width / 130))) {
    const x = GUTTER + (value * factor - view.begin) * scale;
    if (x > width - 40) break;
    pen.fillStyle = colour("grid");
    pen.fillRect(x, RULER - 4, 1, height);
    pen.fillStyle = colour("faint");
    pen.fillText(`${tickText(value)} ${name}`, x + 3, 11);
  }
}

function bar(pen, [start, duration, name, category, detail], names, y, view, scale, width, colour, framed) {
  const left = Math.max(GUTTER + (start - view.begin) * scale, GUTTER - 2);
  const right = Math.min(GUTTER + (start + duration - view.begin) * scale, width + 2);
  const wide = Math.max(right - left - 0.5, 0.7);
  pen.fillStyle = colour(name < 0 ? "joined" : kindOf(names[category], names[name]));
  pen.fillRect(left, y, wide, ROW - 2);
  if (framed) {
    pen.strokeStyle = colour("text");
    pen.lineWidth = 2;
    pen.strokeRect(left + 1, y + 1, Math.max(wide - 2, 1), ROW - 4);
  }
  if (wide < 26) return;
  pen.fillStyle = inkOn(pen.fillStyle);
  const text = fitted(pen, name < 0 ? `${detail} short ones` : shortened(names[name]), wide - 8);
  pen.fillText(text, left + 4, y + ROW / 2 - 0.5);
}

/** As much of a text as fits. */
function fitted(pen, text, room) {
  const wide = pen.measureText(text).width;
  if (wide <= room) return text;
  const kept = Math.floor((text.length * room) / wide) - 1;
  return kept > 1 ? `${text.slice(0, kept)}…` : "";
}

/** The span under a point of the canvas, as {lane, depth, span}. */
export function spanAt(data, view, width, x, y) {
  const { tops } = layout(data.lanes),
    at = view.begin + ((x - GUTTER) / (width - GUTTER)) * (view.end - view.begin);
  const near = ((view.end - view.begin) / width) * 2;
  for (let lane = tops.length - 1; lane >= 0; lane--) {
    const depth = Math.floor((y - tops[lane]) / ROW);
    if (depth < 0) continue;
    const level = data.lanes[lane].levels[depth] ?? [];
    const span =
      level.find(([start, duration]) => start <= at && at < start + duration) ??
      level.find(([start, duration]) => start - near <= at && at < start + duration + near);
    return span && x >= GUTTER ? { lane, depth, span } : null;
  }
  return null;
}
