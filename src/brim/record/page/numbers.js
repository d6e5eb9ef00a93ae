// Numbers as texts, and axes for them.
const MiB = 2 ** 20, GiB = 2 ** 30;

const grouped = (value, digits = 0) => value.toLocaleString("en-US", { maximumFractionDigits: digits });
const exponent = (value, digits) => value.toExponential(digits).replace(/\.?0+e/, "e").replace("e+", "e");

function tidy(value, digits = 4) {
  if (value === null || value === undefined) return "not a number";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e9 || size < 1e-3)) return exponent(value, digits - 2);
  return size >= 1000 ? grouped(value) : String(Number(value.toPrecision(digits)));
}

function duration(seconds) {
  const pad = (value) => String(value).padStart(2, "0");
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60), hours = Math.floor(minutes / 60);
  if (hours === 0) return `${minutes} min ${pad(whole % 60)} s`;
  return hours < 48 ? `${hours} h ${pad(minutes % 60)} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// Ticks: steps of 1, 2 or 5 times a power of ten, about `count` of them.
function roundStep(span, count) {
  const power = 10 ** Math.floor(Math.log10(span / count));
  const times = span / count / power;
  return power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

function ticksBetween(low, high, step) {
  const ticks = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++) ticks.push(index * step);
  return ticks;
}

function tickText(value, step) {
  if (value === 0) return "0";
  if (step < 1e-4 || Math.abs(value) >= 1e9) return exponent(Number(value.toPrecision(6)), 3);
  return value.toLocaleString("en-US", { minimumFractionDigits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) });
}

function linearAxis(low, high, count, fromZero) {
  if (fromZero) low = Math.min(0, low), high = Math.max(0, high);
  if (fromZero && low === 0 && high === 0) high = 1;
  if (!(high > low)) low -= Math.abs(low) / 10 || 1, high += Math.abs(high) / 10 || 1;
  const step = roundStep(high - low, count);
  low = Math.floor(low / step + 1e-6) * step, high = Math.ceil(high / step - 1e-6) * step;
  const ticks = ticksBetween(low, high, step).map((value) => [value, tickText(value, step)]);
  return { ticks, place: (value) => (value - low) / (high - low), shows: () => true };
}

function logAxis(low, high, count) {
  low *= 0.93, high *= 1.07;
  const decades = Math.log10(high / low);
  const factors = decades > 4 ? [1] : decades > 2.2 ? [1, 3] : decades > 1.3 ? [1, 2, 5] : [1, 2, 3, 5, 7];
  const every = Math.ceil(decades / 7); // many decades: not all of them get a label
  let ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every === 0) ticks.push(...factors.map((factor) => factor * 10 ** power));
  }
  ticks = ticks.filter((value) => value >= low && value <= high).map((value) => [value, tidy(value, 3)]);
  if (ticks.length < 3) {
    const step = roundStep(high - low, count);
    ticks = ticksBetween(low, high, step).filter((value) => value > 0).map((value) => [value, tickText(value, step)]);
  }
  return { ticks, place: (value) => Math.log(value / low) / Math.log(high / low), shows: (value) => value > 0 };
}

function nearest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle; else high = middle;
  }
  return Math.abs(sorted[low] - value) <= Math.abs(sorted[high] - value) ? low : high;
}

function bytes(value) {
  return value >= GiB ? `${grouped(value / GiB, 2)} GiB` : `${grouped(value / MiB, 1)} MiB`;
}

// Moments of a run for an axis of time: whole seconds, minutes or hours, about `count` of them.
function timeTicks(seconds, count) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const step = steps.find((one) => seconds / one <= count) || roundStep(seconds / 86400, count) * 86400;
  return ticksBetween(0, seconds, step).map((value) => [value, value === 0 ? "0" : moment(value)]);
}

// A round duration without its noughts: "5 min", not "5 min 00 s".
function moment(seconds) {
  if (seconds < 60) return `${tidy(seconds, 3)} s`;
  return duration(seconds).replace(/ 00 (s|min)$/, "").replace(/ 0 h$/, "");
}
