// The controls: what they change, and in which order.

const controls = document.getElementById("controls");

function showVerdict() {
  const verdict = verdictNow();
  document.getElementById("headline").textContent = verdict.headline;
  for (const element of document.querySelectorAll("[data-verdict]")) {
    element.textContent = verdict[element.dataset.verdict];
    // A question without an answer is not asked.
    const box = element.closest("[data-optional]");
    if (box) box.hidden = element.textContent === "";
  }
  for (const element of document.querySelectorAll("[data-level]")) {
    element.textContent = percent(levelNow());
  }
  const use = document.getElementById("use"), command = values.use[state.level];
  use.hidden = command === "";
  keepWords(use.querySelector("pre"), command);
}

// Lines break between the words of a command: a browser would also break after each hyphen.
function keepWords(box, command) {
  const words = command.split(/(\s+)/).map((text) => {
    const word = document.createElement("span");
    word.textContent = text;
    return text.trim() ? word : text;
  });
  box.replaceChildren(...words);
}

// The promise of the method that is looked at; none where nothing can be recommended.
function showPromise() {
  const verdict = verdictNow(), none = verdict.method === null;
  document.getElementById("promise").textContent =
    none ? verdict.promise : recordOf(focusNow(), levelNow()).guarantee;
  document.getElementById("h-promise").textContent =
    none ? "What is guaranteed" : `What ${focusNow()} guarantees`;
  const hint = document.getElementById("recommended");
  hint.textContent = none ? "none recommended" : verdict.method === focusNow() ? "recommended" : `recommended: ${verdict.method}`;
}

function showTable() {
  const body = document.querySelector("#methods tbody");
  for (const row of values.tables[state.level]) {
    const line = [...body.rows].find((entry) => entry.dataset.method === row.method);
    line.classList.toggle("chosen", row.note === "use this");
    const [head, ...cells] = line.cells;
    const tag = document.createElement("span");
    tag.className = "tag";
    tag.textContent = row.note;
    head.replaceChildren(head.firstElementChild, ...(row.note ? [" ", tag] : []));
    cells.forEach((cell, i) => (cell.textContent = row.cells[i].text));
  }
  sortTable();
}

// By a column with its better end first, then the other way round, then as given.
const sorting = { head: null, times: 0 };

function chooseSorting(button) {
  const head = button.closest("th");
  sorting.times = sorting.head === head ? (sorting.times + 1) % 3 : 1;
  sorting.head = sorting.times ? head : null;
  sortTable();
}

function sortTable() {
  const body = document.querySelector("#methods tbody"), { head, times } = sorting;
  for (const other of document.querySelectorAll("#methods thead th")) other.removeAttribute("aria-sort");
  let lines = values.methods.map((method) => [...body.rows].find((row) => row.dataset.method === method));
  if (head !== null) {
    const { column, best } = head.querySelector("button").dataset, index = Number(column);
    const up = (best === "low") === (times === 1);
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = new Map(values.tables[state.level].map((row) => [row.method, row]));
    const key = (line) => {
      const value = index < 0 ? line.dataset.method : rows.get(line.dataset.method).cells[index].value;
      return value === "inf" ? Infinity : value;
    };
    lines = lines.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null); // no number: last
      return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
    });
  }
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
  const title = { width: "tenths of the width", prediction: "prediction" };
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
  showPromise();
  for (const name of names) shows[name].forEach((step) => step());
  leaveTabOrder();
}

// The recommendation, beside a constant width; beside the next method where it is the constant one.
function recommend() {
  const { focus, other } = controls.elements, { method } = verdictNow();
  const yardstick = values.methods.indexOf(values.yardstick);
  const chosen = method === null ? 0 : values.methods.indexOf(method);
  focus.value = chosen;
  other.value = chosen !== yardstick ? yardstick : (values.methods.findIndex((_, i) => i !== yardstick));
}

// The level is changed: what was recommended and still looked at gives way to what is now.
function changeLevel() {
  const followed = verdictNow().method ?? values.methods[0], looked = focusNow();
  readControls();
  if (followed === looked) recommend();
  showVerdict();
  showTable();
}

async function start() {
  document.querySelectorAll("pre").forEach((box) => keepWords(box, box.textContent));
  state.level = values.levels.indexOf(values.coverage);
  recommend();
  offerParts();
  readControls();
  await drawAll();
  show();
  paintAll();
  controls.addEventListener("change", (event) => {
    if (event.target.name === "level") changeLevel();
    show();
  });
  document.getElementById("by").addEventListener("change", () => show(["parts"]));
  document.getElementById("over").addEventListener("change", () => show(["points"]));
  controls.addEventListener("submit", (event) => event.preventDefault());
  document.querySelectorAll("#methods button").forEach((button) =>
    button.addEventListener("click", () => chooseSorting(button)),
  );
  darkness.addEventListener("change", paintAll);
  // Parts of a drawing that are made later than the rest.
  for (const { document: owner } of Object.values(drawn)) owner.idle.connect(() => leaveTabOrder());
  setTimeout(leaveTabOrder, 500);
  document.documentElement.dataset.ready = "yes";
}

window.calliper = { values, state, drawn, points, percent, number };
start();
