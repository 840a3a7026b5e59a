// What is on the page: numbers from its own JSON, points from bytes in base64.

const values = JSON.parse(document.getElementById("values").textContent);

function bytes(text) {
  const letters = atob(text);
  const array = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) array[i] = letters.charCodeAt(i);
  return array;
}

// Little-endian, as every browser's machine is.
const floats = (text) => Array.from(new Float32Array(bytes(text).buffer));

const points = (() => {
  const stored = values.points;
  const perLevel = (list) => {
    const rows = values.levels.map((_, i) => list.slice(i * stored.n, (i + 1) * stored.n));
    return rows;
  };
  const halfWidth = {}, inside = {};
  for (const method of values.methods) {
    halfWidth[method] = perLevel(floats(stored.half_width[method]));
    inside[method] = perLevel(Array.from(bytes(stored.inside[method])));
  }
  return {
    n: stored.n,
    nIntervals: stored.n_intervals,
    ids: stored.ids,
    y: floats(stored.y),
    yPred: floats(stored.y_pred),
    features: stored.features,
    Z: stored.Z.map(floats),
    halfWidth,
    inside,
  };
})();

// What is chosen: places in values.levels and values.methods, and what the figures go by.
const state = { level: 0, focus: 0, other: -1, by: "prediction", name: "", over: "rank" };

const levelNow = () => values.levels[state.level];
const focusNow = () => values.methods[state.focus];
const otherNow = () => (state.other < 0 ? null : values.methods[state.other]);

const recordOf = (method, level) =>
  values.records.find((r) => r.method === method && r.level === level);
const decilesOf = (method) =>
  values.deciles.find((d) => d.method === method && d.level === levelNow());
const partOf = (method) =>
  values.parts.find(
    (p) =>
      p.method === method && p.level === levelNow() && p.by === state.by && p.name === state.name,
  );

const percent = (share) => (100 * share).toFixed(1).replace(/\.0$/, "") + "\u00a0%";
const finite = (value) => typeof value === "number" && Number.isFinite(value);

function number(value) {
  if (!finite(value)) return value === "inf" ? "∞" : "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}
