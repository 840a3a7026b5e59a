// The controls: what they change, and in which order.

const controls = document.getElementById("controls");

function showVerdict() {
  const verdict = values.verdicts[state.level];
  document.getElementById("headline").textContent = verdict.headline;
  for (const element of document.querySelectorAll("[data-verdict]")) {
    element.textContent = verdict[element.dataset.verdict];
  }
  for (const element of document.querySelectorAll("[data-level]")) {
    element.textContent = percent(levelNow());
  }
}

// Rows keep the order that they were sorted into; only their cells change with the level.
function showTable() {
  const body = document.querySelector("#methods tbody");
  for (const row of values.tables[state.level]) {
    const line = [...body.rows].find((entry) => entry.dataset.method === row.method);
    line.classList.toggle("chosen", row.note === "use this");
    const [head, ...cells] = line.cells;
    head.textContent = row.method + (row.note ? " " : "");
    if (row.note) {
      const tag = document.createElement("span");
      tag.className = "tag";
      tag.textContent = row.note;
      head.append(tag);
    }
    cells.forEach((cell, i) => (cell.textContent = row.cells[i].text));
  }
}

function sortTable(button) {
  const column = Number(button.dataset.column), head = button.closest("th");
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = new Map(values.tables[state.level].map((row) => [row.method, row]));
  const key = (line) => {
    const value = column < 0 ? line.dataset.method : rows.get(line.dataset.method).cells[column].value;
    return value === "inf" ? Infinity : value;
  };
  const body = document.querySelector("#methods tbody");
  const lines = [...body.rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return (x === null) - (y === null); // no number: last
    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  });
  body.append(...lines);
}

function option(value, text) {
  const entry = document.createElement("option");
  entry.value = value;
  entry.textContent = text;
  return entry;
}

function offerParts() {
  const seen = new Map();
  const title = { width: "tenths of the width", prediction: "prediction", group: "group" };
  for (const part of values.parts) {
    const key = `${part.by}:${part.name}`;
    if (!seen.has(key)) seen.set(key, option(key, title[part.by] ?? part.name));
  }
  const order = (key) => ["prediction", "width", "group", "feature"].indexOf(key.split(":")[0]);
  const keys = [...seen.keys()].sort((a, b) => order(a) - order(b));
  document.getElementById("by").append(...keys.map((key) => seen.get(key)));
  const over = [option("rank", "rank of the prediction"), option("prediction", "prediction")];
  const features = points.features.map((name) => option(`feature:${name}`, name));
  document.getElementById("over").append(...over, ...features);
  // With one feature there is one natural order.
  if (features.length === 1) document.getElementById("over").value = features[0].value;
}

function readControls() {
  state.level = Number(controls.elements.level.value);
  state.focus = Number(controls.elements.focus.value);
  state.other = Number(controls.elements.other.value);
  if (state.other === state.focus) state.other = -1;
  const by = document.getElementById("by").value, cut = by.indexOf(":");
  [state.by, state.name] = [by.slice(0, cut), by.slice(cut + 1)];
  state.over = document.getElementById("over").value;
}

const shows = {
  curve: [showCurve, describeCurve],
  parts: [showParts, describeParts],
  widths: [showWidths, describeWidths],
  points: [showPoints, describePoints],
};

function show(names = Object.keys(shows)) {
  readControls();
  showLegends();
  for (const name of names) shows[name].forEach((step) => step());
}

async function start() {
  const chosen = values.verdicts[values.levels.indexOf(values.coverage)].method;
  const places = values.methods.map((_, i) => i);
  const yardstick = values.methods.indexOf(values.yardstick);
  let focus = chosen === null ? 0 : values.methods.indexOf(chosen);
  const other = focus === yardstick ? (places.find((i) => i !== yardstick) ?? -1) : yardstick;
  controls.elements.focus.value = focus;
  controls.elements.other.value = other;
  offerParts();
  readControls();
  await drawAll();
  show();
  paintAll();
  controls.addEventListener("change", (event) => {
    if (event.target.name === "level") {
      readControls();
      showVerdict();
      showTable();
    }
    show();
  });
  document.getElementById("by").addEventListener("change", () => show(["parts"]));
  document.getElementById("over").addEventListener("change", () => show(["points"]));
  controls.addEventListener("submit", (event) => event.preventDefault());
  document.querySelectorAll("#methods button").forEach((button) =>
    button.addEventListener("click", () => sortTable(button)),
  );
  darkness.addEventListener("change", paintAll);
  document.documentElement.dataset.ready = "yes";
}

window.calliper = { values, state, drawn };
start();
