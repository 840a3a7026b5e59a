// The figures in words and in tables, for readers who cannot see them.

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

// What each mark is, figure by figure; only what is drawn.
function showLegends() {
  const methods = [["focus", focusNow()], ["other", otherNow()]].filter(([, method]) => method !== null);
  const asked = ["dashed", "asked for"];
  const sides = [["inside", "inside"], ["outside", "outside its interval"]];
  const entries = {
    parts: [...methods, asked],
    widths: [...sides, ["tenth", `tenths of ${focusNow()}'s widths`], ["dashed", "error = half the width"]],
    points: [["bar", `interval of ${focusNow()}`], ["dot", "target inside"], ["outside", "target outside"]],
    curve: [...methods, ["chance", "by chance"], ["dashed", "as asked for"]],
  };
  for (const [name, marks] of Object.entries(entries)) {
    const legend = document.getElementById(`legend-${name}`);
    legend.replaceChildren(
      ...marks.map(([role, text]) => {
        const entry = document.createElement("span"), key = document.createElement("i");
        key.className = `key ${role}`;
        entry.append(key, text);
        return entry;
      }),
    );
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
  say("curve", `${words.join(" ")} Shaded: the range of a valid method in 99 of 100 cases.`);
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
    if (!part) return `${method} has the same width everywhere, so there are no tenths of it.`;
    const low = Math.min(...part.coverage), high = Math.max(...part.coverage);
    if (low === high) return `${method} covers ${percent(low)} everywhere.`;
    const where = part.labels[part.coverage.indexOf(low)];
    return `${method} covers between ${percent(low)} (${titleOfPart()} ${where}) and ${percent(high)}.`;
  });
  say("parts", `${atLevel()}: ${words.join(" ")}`);
  const rows = both().flatMap((method) => {
    const part = partOf(method);
    return (part?.labels ?? []).map((label, i) => [
      label, method, count(part.n[i]), percent(part.coverage[i]),
      `${percent(part.lower[i])} to ${percent(part.upper[i])}`, number(part.mean_width[i]),
    ]);
  });
  const heads = [titleOfPart(), "method", "test points", "coverage", "68 % bounds", "mean width"];
  tableOf("parts", `${atLevel()}: coverage by ${titleOfPart()}`, heads, rows);
}

function describeWidths() {
  const method = focusNow(), { width, error } = decilesOf(method), record = recordOf(method, levelNow());
  const heads = ["width (middle of its tenth)", `error at ${percent(levelNow())}`, "width it needs"];
  const rows = width.map((size, i) => [number(size), number(error[i]), number(2 * error[i])]);
  tableOf("widths", `${atLevel()}, ${method}: widths and errors`, heads, rows);
  if (allInfinite(method)) {
    say("widths", `${atLevel()}, ${method}: every interval is infinite: it always covers and says nothing.`);
    return;
  }
  const bare = record.fraction_infinite
    ? ` ${percent(record.fraction_infinite)} of the intervals are infinite and are not drawn.` : "";
  const far = beyond ? ` ${count(beyond)} of the points drawn lie beyond the frame.` : "";
  const drawnOf = points.n < values.n_test
    ? ` ${count(points.n)} of ${count(values.n_test)} test points are drawn.` : "";
  const r2 = finite(record.r2_sqi) ? record.r2_sqi.toFixed(2).replace("-", "−") : "undefined";
  const bins = width.length > 1
    ? `a diamond is the error that ${percent(levelNow())} of the points in its tenth of the widths do not exceed; below the dashed line widths are larger than needed, above it too small. R²_SQI is ${r2} (1 is best, negative no better than a constant width).`
    : "all widths are the same, so they cannot follow the errors.";
  say("widths", `${atLevel()}, ${method}: ${bins} Outside their interval: ${percent(1 - record.coverage)} of all.${bare}${drawnOf}${far}`);
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
  const lie = outside === 1 ? "lies outside its" : "lie outside their";
  const bare = unbounded ? ` ${unbounded} have an infinite interval, which is not drawn.` : "";
  say("points", `${atLevel()}, ${method}: ${which}; ${outside} of them ${lie} interval.${bare}`);
  const rows = [...Array(Math.min(n, 25)).keys()].map((i) => {
    const known = Number.isFinite(half[i]), scale = known ? half[i] : Math.abs(points.error[i]);
    return [
      points.ids[i], near(points.y[i], scale), near(points.yPred[i], scale),
      known ? near(points.yPred[i] - half[i], scale) : "−∞",
      known ? near(points.yPred[i] + half[i], scale) : "∞", inside[i] ? "inside" : "outside",
    ];
  });
  const caption = `${atLevel()}, ${method}: the first ${rows.length} of the points drawn`;
  tableOf("points", caption, ["point", "target", "prediction", "lower", "upper", ""], rows);
}
