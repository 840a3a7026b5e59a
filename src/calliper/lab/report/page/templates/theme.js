// Colours of the figures, from the same variables as the page, in light and in dark.

const darkness = matchMedia("(prefers-color-scheme: dark)");

function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    text: read("--text"),
    quiet: read("--quiet"),
    line: read("--line"),
    panel: read("--panel"),
    focus: read("--focus-colour"),
    other: read("--other-colour"),
    outside: read("--outside"),
    inside: read("--inside"),
    chance: read("--chance"),
  };
}

function paintGlyph(glyph, colour) {
  for (const property of ["line_color", "fill_color"]) {
    if (property in glyph) glyph[property] = { value: colour };
  }
}

function paint(figure) {
  const colours = palette(), isPoints = figure.name === "figure_points";
  const ofPart = { ...colours, ideal: colours.text, level: colours.text };
  for (const renderer of figure.renderers) {
    const part = (renderer.name ?? "").split(" ")[0];
    if (part === "chance") {
      renderer.glyph.fill_color = colours.chance;
    } else if (part in ofPart) {
      const onBar = { "inside bar": colours.focus, inside: isPoints ? colours.text : colours.inside };
      const dimmed = onBar[renderer.name] ?? ofPart[part];
      for (const glyph of [renderer.glyph, renderer.nonselection_glyph]) {
        if (glyph?.properties) paintGlyph(glyph, dimmed);
      }
    }
  }
  // A colour of its own, since a canvas without one keeps traces of what it showed before.
  figure.border_fill_color = colours.panel;
  for (const axis of [...figure.below, ...figure.left]) {
    axis.axis_label_text_color = colours.quiet;
    axis.major_label_text_color = colours.quiet;
    axis.axis_line_color = colours.line;
    axis.major_tick_line_color = colours.line;
  }
  for (const item of figure.center) {
    if ("grid_line_color" in item) item.grid_line_color = item.dimension === 1 ? colours.line : null;
    if (item.name === "level") item.line_color = colours.text;
  }
}

const paintAll = () => Object.values(drawn).forEach((entry) => paint(entry.figure));
