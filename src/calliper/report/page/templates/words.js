// What the figures say, in words and in tables, for those who cannot or need not see them.

function tableOf(name, caption, heads, rows) {
  const table = document.getElementById(`numbers-${name}`);
  const line = (cells, tag, first) => {
    const row = document.createElement("tr");
    cells.forEach((text, i) => {
      const cell = document.createElement(i === 0 ? first : tag);
      cell.textContent = text;
      if (cell.tagName === "TH") cell.scope = tag === "th" ? "col" : "row";
      row.append(cell);
    });
    return row;
  };
  const title = document.createElement("caption");
  title.textContent = caption;
  const head = document.createElement("thead"), body = document.createElement("tbody");
  head.append(line(heads, "th", "th"));
  body.append(...rows.map((cells) => line(cells, "td", "th")));
  table.replaceChildren(title, head, body);
}

const say = (name, text) => {
  document.getElementById(`words-${name}`).textContent = text;
};
const both = () => [focusNow(), otherNow()].filter((method) => method !== null);
const atLevel = () => `At ${percent(levelNow())}`;

function showLegends() {
  for (const legend of document.querySelectorAll("[data-legend]")) {
    legend.replaceChildren();
    for (const [role, method] of [["focus", focusNow()], ["other", otherNow()]]) {
      if (method === null) continue;
      const entry = document.createElement("span"), key = document.createElement("i");
      key.className = `key ${role}`;
      entry.append(key, method);
      legend.append(entry);
    }
  }
}

function describeCurve() {
  const words = both().map((method) => {
    const all = values.levels.map((level) => recordOf(method, level));
    const low = all.filter((r) => r.coverage < r.chance_low).map((r) => percent(r.level));
    const high = all.filter((r) => r.coverage > r.chance_high).map((r) => percent(r.level));
    if (!low.length && !high.length) return `${method} is within chance at every level.`;
    const parts = [];
    if (low.length) parts.push(`covers less than chance allows at ${low.join(", ")}`);
    if (high.length) parts.push(`covers more than chance allows at ${high.join(", ")}`);
    return `${method} ${parts.join(" and ")}.`;
  });
  say("curve", `${words.join(" ")} Shaded: where chance puts an honest method in 99 cases of 100. Bars: one standard error.`);
  const rows = values.levels.flatMap((level) =>
    both().map((method) => {
      const r = recordOf(method, level);
      const range = `${percent(r.chance_low)} to ${percent(r.chance_high)}`;
      return [percent(level), method, `${percent(r.coverage)} ± ${(100 * r.coverage_error).toFixed(1)}`, range];
    }),
  );
  tableOf("curve", "Coverage at every level", ["asked for", "method", "found", "by chance"], rows);
}

function describeParts() {
  const words = both().map((method) => {
    const part = partOf(method);
    if (!part) return `${method} has one width for all, so there are no tenths of it.`;
    const low = Math.min(...part.coverage), high = Math.max(...part.coverage);
    const where = part.labels[part.coverage.indexOf(low)];
    return `${method} covers between ${percent(low)} (${titleOfPart() || state.by}: ${where}) and ${percent(high)}.`;
  });
  say("parts", `${atLevel()}: ${words.join(" ")} Bars: 68 % bounds; the dashed line is what was asked for.`);
  const rows = both().flatMap((method) => {
    const part = partOf(method);
    return (part?.labels ?? []).map((label, i) => [
      label, method, part.n[i].toLocaleString("en"), percent(part.coverage[i]),
      `${percent(part.lower[i])} to ${percent(part.upper[i])}`, number(part.mean_width[i]),
    ]);
  });
  const heads = ["where", "method", "test points", "coverage", "68 % bounds", "mean width"];
  tableOf("parts", `${atLevel()}: coverage by ${titleOfPart() || state.by}`, heads, rows);
}

function describeWidths() {
  const method = focusNow(), { width, error } = decilesOf(method), record = recordOf(method, levelNow());
  const heads = ["width (middle of its tenth)", `error at ${percent(levelNow())}`, "width it asks for"];
  const rows = width.map((size, i) => [number(size), number(error[i]), number(2 * error[i])]);
  tableOf("widths", `${atLevel()}, ${method}: widths and errors`, heads, rows);
  if (record.fraction_infinite === 1) {
    say("widths", `${atLevel()}, ${method}: every interval is infinite, so there is nothing to draw.`);
    return;
  }
  const bare = record.fraction_infinite
    ? ` ${percent(record.fraction_infinite)} of the intervals are infinite and are not drawn.` : "";
  const drawnOf = points.n < values.n_test
    ? ` ${points.n.toLocaleString("en")} of ${values.n_test.toLocaleString("en")} test points are drawn${beyond ? `, ${beyond} of them beyond the frame` : ""}.` : "";
  const bins = width.length > 1
    ? `the diamonds are the error that ${percent(levelNow())} of the points do not exceed, in each tenth of the widths; on the dashed line, widths are right. R²_SQI is ${finite(record.r2_sqi) ? record.r2_sqi.toFixed(2) : "not defined"}.`
    : "all widths are the same, so they cannot follow the error.";
  say("widths", `${atLevel()}, ${method}: ${bins} Points above the line (crosses) are outside their interval: ${percent(1 - record.coverage)} of all.${bare}${drawnOf}`);
}

function describePoints() {
  const method = focusNow(), n = points.nIntervals;
  const half = points.halfWidth[method][state.level], inside = points.inside[method][state.level];
  let outside = 0, unbounded = 0;
  for (let i = 0; i < n; i++) {
    outside += inside[i] ? 0 : 1;
    unbounded += Number.isFinite(half[i]) ? 0 : 1;
  }
  const which = n < values.n_test ? `${n} test points drawn at random` : `all ${n} test points`;
  const bare = unbounded ? ` ${unbounded} intervals have no bound and are not drawn.` : "";
  say("points", `${atLevel()}, ${method}: ${which}; ${outside} of them lie outside their interval (crosses).${bare}`);
  const rows = [...Array(Math.min(n, 25)).keys()].map((i) => [
    points.ids[i], number(points.y[i]), number(points.yPred[i]),
    number(Number.isFinite(half[i]) ? points.yPred[i] - half[i] : "–"),
    number(Number.isFinite(half[i]) ? points.yPred[i] + half[i] : "–"), inside[i] ? "inside" : "outside",
  ]);
  const caption = `${atLevel()}, ${method}: the first ${rows.length} of the points drawn`;
  tableOf("points", caption, ["point", "target", "prediction", "lower", "upper", ""], rows);
}
