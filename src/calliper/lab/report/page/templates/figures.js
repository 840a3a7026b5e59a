// Four figures; each fills its sources from what is chosen.

const drawn = {}; // name -> { document, figure }

async function drawAll() {
  const items = JSON.parse(document.getElementById("figure-items").textContent);
  for (const [name, item] of Object.entries(items)) {
    await Bokeh.embed.embed_item(item);
    const owner = Bokeh.documents[Bokeh.documents.length - 1];
    drawn[name] = { document: owner, figure: owner.get_model_by_name(`figure_${name}`) };
  }
}

// In place of a drawing that would be empty; nothing to say shows it again.
function blank(name, text) {
  const words = document.getElementById(`nothing-${name}`);
  words.textContent = text;
  words.hidden = text === "";
  document.getElementById(`figure-${name}`).classList.toggle("blank", text !== "");
}

const fill = (name, data) => {
  drawn[name.split("_")[0]].document.get_model_by_name(name).data = data;
};
const columns = (names) => Object.fromEntries(names.map((name) => [name, []]));

// A zero-width space keeps the name of a column from being read as a formula.
const safe = (text) => text.replaceAll("$$", "$\u200b$").replace(/\\([[(])/g, "\\\u200b$1");
const shortened = (text) => safe(text.length > 22 ? text.slice(0, 21) + "…" : text);

// Names in place of 0, 1, 2, …
function ticks(axis, labels) {
  axis.ticker.ticks = labels.map((_, i) => i);
  axis.major_label_overrides = new Map(labels.map((label, i) => [i, label]));
}

// The frame of a figure around its numbers, with some room.
function frame(range, numbers, room = 0.05) {
  const known = numbers.filter(Number.isFinite);
  let low = Math.min(...known), high = Math.max(...known);
  if (!known.length) [low, high] = [0, 1];
  const gap = room * (high - low) || Math.abs(high) || 1;
  range.setv({ start: low - gap, end: high + gap });
}

const quantile = (numbers, share) => {
  const sorted = numbers.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
};

// Distance of the two methods' points, so that their error bars do not hide each other.
const beside = (role) => (otherNow() === null ? 0 : role === "focus" ? -0.12 : 0.12);

function showCurve() {
  const chance = columns(["level", "low", "high"]);
  values.levels.forEach((level, i) => {
    const record = recordOf(focusNow(), level);
    chance.level.push(i);
    chance.low.push(100 * (record.chance_low - level));
    chance.high.push(100 * (record.chance_high - level));
  });
  fill("curve_chance", chance);
  const { figure } = drawn.curve, heights = [...chance.low, ...chance.high];
  for (const [role, method] of [["focus", focusNow()], ["other", otherNow()]]) {
    const data = columns(["level", "excess", "low", "high", "asked", "found", "method"]);
    (method === null ? [] : values.levels).forEach((level, i) => {
      const { coverage, coverage_error: error } = recordOf(method, level);
      const excess = 100 * (coverage - level);
      data.level.push(i + beside(role) / 2);
      data.excess.push(excess);
      data.low.push(excess - 100 * error);
      data.high.push(excess + 100 * error);
      data.asked.push(percent(level));
      data.found.push(`${percent(coverage)} ± ${(100 * error).toFixed(1)}`);
      data.method.push(method);
    });
    fill(`curve_${role}`, data);
    heights.push(...data.low, ...data.high);
  }
  ticks(figure.below[0], values.levels.map(percent));
  figure.x_range.setv({ start: -0.4, end: values.levels.length - 0.6 });
  frame(figure.y_range, heights, 0.1);
}

// Tenths of each method's own widths are told by number: their ranges differ between methods.
const partLabels = (part) => (state.by === "width" ? part.labels.map((_, i) => String(i + 1)) : part.labels);

function showParts() {
  const { figure } = drawn.parts;
  let labels = [], lowest = levelNow();
  for (const [role, method] of [["focus", focusNow()], ["other", otherNow()]]) {
    const data = columns(["x", "coverage", "lower", "upper", "label", "found", "n", "method"]);
    const part = method === null ? undefined : partOf(method);
    (part?.labels ?? []).forEach((label, i) => {
      data.x.push(i + beside(role));
      for (const name of ["coverage", "lower", "upper"]) data[name].push(100 * part[name][i]);
      data.label.push(`${titleOfPart()} ${label}`);
      data.found.push(`${percent(part.coverage[i])} (${percent(part.lower[i])} to ${percent(part.upper[i])})`);
      data.n.push(count(part.n[i]));
      data.method.push(method);
      lowest = Math.min(lowest, part.lower[i]);
    });
    if (part && part.labels.length > labels.length) labels = partLabels(part);
    fill(`parts_${role}`, data);
  }
  // Groups have no order that a line could follow.
  for (const renderer of figure.renderers) {
    if ((renderer.name ?? "").endsWith("line")) renderer.visible = state.by !== "group";
  }
  const axis = figure.below[0];
  ticks(axis, labels.map(shortened));
  axis.axis_label = safe(state.by === "width" ? "tenth of the method's own widths (1: narrowest)" : titleOfPart());
  figure.x_range.setv({ start: -0.6, end: Math.max(labels.length, 1) - 0.4 });
  figure.y_range.setv({ start: Math.max(0, 100 * lowest - 2), end: 101 });
  const line = figure.center.find((item) => item.name === "level");
  line.location = 100 * levelNow();
  blank("parts", labels.length ? "" : "Both have the same width everywhere, so there are no tenths of it.");
}

const titleOfPart = () => ({ prediction: "prediction", width: "width" })[state.by] ?? state.name;
const allInfinite = (method) => recordOf(method, levelNow()).fraction_infinite === 1;
const nothingToDraw = (method) => `Every interval of ${method} at ${percent(levelNow())} is infinite: there is nothing to draw.`;
let beyond = 0; // points outside the frame of the widths

function showWidths() {
  const method = focusNow(), { figure } = drawn.widths;
  const half = points.halfWidth[method][state.level], inside = points.inside[method][state.level];
  const sides = { inside: null, outside: null };
  let top = 0;
  for (const side of Object.keys(sides)) sides[side] = columns(["width", "error", "id", "told"]);
  for (let i = 0; i < points.n; i++) {
    if (!Number.isFinite(half[i])) continue;
    const data = sides[inside[i] ? "inside" : "outside"];
    data.width.push(2 * half[i]);
    data.error.push(Math.abs(points.error[i]));
    data.id.push(points.ids[i]);
    data.told.push(told(i, half[i]));
    top = Math.max(top, 2 * half[i]);
  }
  for (const side of Object.keys(sides)) fill(`widths_${side}`, sides[side]);
  const { width, error } = decilesOf(method);
  fill("widths_deciles", { width, error });
  fill("widths_ideal", { width: [0, 2 * top], error: [0, top] });
  // A few points far out would press all others into a corner; the words count them.
  const sizes = [...sides.inside.width, ...sides.outside.width];
  const errors = [...sides.inside.error, ...sides.outside.error];
  const right = Math.max(quantile(sizes, 0.995), ...width);
  const up = Math.max(quantile(errors, 0.995), ...error);
  frame(figure.x_range, [0, right]);
  frame(figure.y_range, [0, up]);
  const { end: farX } = figure.x_range, { end: farY } = figure.y_range;
  beyond = sizes.filter((size, i) => size > farX || errors[i] > farY).length;
  blank("widths", allInfinite(method) ? nothingToDraw(method) : "");
}

// One point in words: target, prediction, error and width, with the digits that matter.
function told(i, half) {
  const scale = Math.max(Math.abs(points.error[i]), Number.isFinite(half) ? half : 0);
  const width = Number.isFinite(half) ? number(2 * half) : "∞";
  return `target ${near(points.y[i], scale)}, predicted ${near(points.yPred[i], scale)}, error ${number(points.error[i])}, width ${width}`;
}

function showPoints() {
  const method = focusNow(), n = points.nIntervals, { figure } = drawn.points;
  const half = points.halfWidth[method][state.level], inside = points.inside[method][state.level];
  const feature = points.features.indexOf(state.over.replace(/^feature:/, ""));
  const value = state.over.startsWith("feature:") ? points.Z[feature] : points.yPred;
  const order = [...Array(n).keys()].sort((a, b) => value[a] - value[b]);
  const spread = value[order[n - 1]] - value[order[0]];
  const ranks = [];
  order.forEach((row, rank) => (ranks[row] = rank + 1));
  const sides = { inside: null, outside: null };
  for (const side of Object.keys(sides)) sides[side] = columns(["x", "y", "lower", "upper", "id", "told", "at"]);
  for (let i = 0; i < n; i++) {
    const data = sides[inside[i] ? "inside" : "outside"];
    data.x.push(state.over === "rank" ? ranks[i] : value[i]);
    data.y.push(points.y[i]);
    // Without a bound nothing is drawn but the point; the words below count them.
    data.lower.push(Number.isFinite(half[i]) ? points.yPred[i] - half[i] : NaN);
    data.upper.push(Number.isFinite(half[i]) ? points.yPred[i] + half[i] : NaN);
    data.id.push(points.ids[i]);
    data.told.push(told(i, half[i]));
    data.at.push(`${overTitle()} ${near(value[i], spread)}`);
  }
  for (const side of Object.keys(sides)) fill(`points_${side}`, sides[side]);
  const ranked = state.over === "rank", both = [sides.inside, sides.outside];
  frame(figure.x_range, both.flatMap((data) => data.x), 0.02);
  frame(figure.y_range, both.flatMap((data) => [...data.lower, ...data.upper, ...data.y]));
  figure.below[0].axis_label = ranked ? "test points, in order of their prediction" : safe(overTitle());
  blank("points", allInfinite(method) ? nothingToDraw(method) : "");
}

const overTitle = () =>
  state.over.startsWith("feature:") ? state.over.slice("feature:".length) : "prediction";

// Tables and sentences say all that the drawings do, so these are no stops for the keyboard.
function leaveTabOrder() {
  const leave = (element) => {
    if (element.tabIndex >= 0) element.tabIndex = -1;
    [...element.children, ...(element.shadowRoot?.children ?? [])].forEach(leave);
  };
  document.querySelectorAll(".drawing").forEach(leave);
}
