// Numbers with units, three significant digits.

function digits(value, whole) {
  const size = Math.abs(Number(value.toPrecision(3)));
  return value.toFixed(whole && Number.isInteger(value) ? 0 : size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

function scaled(value, steps) {
  let [factor, name] = steps[0];
  for (const [f, n] of steps) if (Math.abs(value) >= f) [factor, name] = [f, n];
  return [factor, name];
}

const TIMES = [
  [1, "ns"],
  [1e3, "µs"],
  [1e6, "ms"],
  [1e9, "s"],
];
const SIZES = [
  [1, "B"],
  [2 ** 10, "KiB"],
  [2 ** 20, "MiB"],
  [2 ** 30, "GiB"],
  [2 ** 40, "TiB"],
];
const THOUSANDS = [
  [1, ""],
  [1e3, "k"],
  [1e6, "M"],
  [1e9, "G"],
  [1e12, "T"],
  [1e15, "P"],
];

function written(value, steps) {
  const [factor, name] = scaled(value, steps);
  return `${digits(value / factor, factor === 1)} ${name}`.trim();
}

/** Format nanoseconds. */
export const time = (value) => (value ? written(value, TIMES) : "0");
export const bytes = (value) => (value ? written(value, SIZES) : "0");
export const flops = (value) => (value ? `${written(value, THOUSANDS)}FLOP` : "");
export const flopRate = (value) => (value ? `${written(value, THOUSANDS)}FLOP/s` : "");
export const byteRate = (value) => (value ? `${written(value, SIZES)}/s` : "");
export const count = (value) => value.toLocaleString("en");
export const percent = (value) => (value == null ? "" : `${(100 * value).toFixed(1)} %`);
export const signed = (format) => (value) =>
  value > 0 ? `+${format(value)}` : value < 0 ? `−${format(-value)}` : "0";

/** The unit that suits an axis up to `most`, as [factor, name]; kind is "time" or "bytes". */
export function unit(most, kind) {
  return scaled(most, kind === "time" ? TIMES : SIZES);
}

/** Round numbers from `low` to `high`, about `wanted` of them, 1, 2, 2.5 or 5 times a power of ten. */
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(i * step);
  return found;
}

export const tickText = (value) =>
  Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
