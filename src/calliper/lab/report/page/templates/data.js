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

// Told from a centre that has all digits.
const fromCentre = ({ centre, from_centre }) => floats(from_centre).map((x) => centre + x);

const points = (() => {
  const stored = values.points;
  const perLevel = (list) =>
    values.levels.map((_, i) => list.slice(i * stored.n, (i + 1) * stored.n));
  const halfWidth = {}, inside = {};
  for (const method of values.methods) {
    halfWidth[method] = perLevel(floats(stored.half_width[method]));
    inside[method] = perLevel(Array.from(bytes(stored.inside[method])));
  }
  const error = floats(stored.error), yPred = fromCentre(stored.y_pred);
  return {
    n: stored.n,
    nIntervals: stored.n_intervals,
    ids: stored.ids,
    error, // y − ŷ, never computed from the two again
    y: yPred.map((x, i) => x + error[i]),
    yPred,
    features: stored.features,
    Z: stored.Z.map(fromCentre),
    halfWidth,
    inside,
  };
})();

// What is chosen: indices in values.levels and values.methods, and what the figures go by.
const state = { level: 0, focus: 0, other: -1, by: "prediction", name: "", over: "rank" };

const levelNow = () => values.levels[state.level];
const focusNow = () => values.methods[state.focus];
const otherNow = () => (state.other < 0 ? null : values.methods[state.other]);
const verdictNow = () => values.verdicts[state.level];

const recordOf = (method, level) =>
  values.records.find((r) => r.method === method && r.level === level);
const decilesOf = (method) =>
  values.deciles.find((d) => d.method === method && d.level === levelNow());
const partOf = (method) =>
  values.parts.find(
    (p) =>
      p.method === method && p.level === levelNow() && p.by === state.by && p.name === state.name,
  );

const finite = (value) => typeof value === "number" && Number.isFinite(value);
const count = (whole) => whole.toLocaleString("en");

// To a tenth, or as many digits as keep it from being rounded to 0 or 100.
function percent(share) {
  if (!finite(share)) return "–";
  let text = "";
  for (let digits = 1; digits < 8; digits++) {
    text = (100 * share).toFixed(digits);
    if (share === 0 || share === 1 || (Number(text) > 0 && Number(text) < 100)) break;
  }
  return text.replace(/\.?0+$/, "") + "\u00a0%";
}

const decimals = (value, n) =>
  value.toLocaleString("en", { minimumFractionDigits: n, maximumFractionDigits: n }).replace("-", "−");

// Four digits.
function number(value) {
  if (!finite(value)) return value === "inf" ? "∞" : "–";
  if (value === 0) return "0";
  const digits = 3 - Math.floor(Math.log10(Math.abs(value)));
  if (digits < -3 || digits > 7) return value.toExponential(3).replaceAll("-", "−");
  return decimals(value, Math.max(digits, 0));
}

// As many digits as tell apart what differs by a hundredth of the scale, however large the offset.
function near(value, scale) {
  if (!finite(value)) return number(value);
  if (!finite(scale) || scale <= 0) return number(value);
  const digits = 2 - Math.floor(Math.log10(scale));
  return digits > 9 || digits < -9 ? number(value) : decimals(value, Math.max(digits, 0));
}
