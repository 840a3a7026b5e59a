"""The four figures as Bokeh models without data.

The name of every renderer is its role (``focus``, ``other``, ``ideal``, …), by which the script of
the page colours it in light and dark mode. The script also fills the named sources for the chosen
level and methods.
"""

from importlib import import_module
from typing import Any

#: Columns of each source; the script of the page fills them.
_SOURCES = {
    "curve_chance": "level low high",
    "widths_deciles": "width error",
    "widths_ideal": "width error",
    **dict.fromkeys(("curve_focus", "curve_other"), "level excess low high asked found method"),
    **dict.fromkeys(("parts_focus", "parts_other"), "x coverage lower upper label found n method"),
    **dict.fromkeys(("widths_inside", "widths_outside"), "width error id told"),
    **dict.fromkeys(("points_inside", "points_outside"), "x y lower upper id told at"),
}
_DASHED: dict[str, Any] = {"line_dash": "dashed", "line_width": 1.3}
#: The colours of the page, which tooltips do not follow in dark mode.
_TIP = "margin:-5px;padding:6px 10px;background:var(--paper);color:var(--text);max-width:20rem"


def figure_items() -> dict[str, Any]:
    """Each figure as JSON that BokehJS draws into the element of that name."""
    source = {
        name: _bokeh("models").ColumnDataSource({key: [] for key in columns.split()}, name=name)
        for name, columns in _SOURCES.items()
    }
    drawings = {"curve": _curve, "parts": _parts, "widths": _widths, "points": _points}
    item = _bokeh("embed").json_item
    return {name: item(draw(source), f"figure-{name}") for name, draw in drawings.items()}


def _bokeh(part: str) -> Any:
    """A module of Bokeh, untyped because its stubs lack some parameters."""
    return import_module(f"bokeh.{part}")


def _figure(name: str, x_label: str, y_label: str, *, height: int = 340) -> Any:
    drawn = _bokeh("plotting").figure(
        name=f"figure_{name}",
        height=height,
        x_range=_bokeh("models").Range1d(0, 1),  # the script sets the ranges
        y_range=_bokeh("models").Range1d(0, 1),
        sizing_mode="stretch_width",
        tools="pan,box_zoom,reset,save",
        active_drag=None,  # a finger on the figure scrolls the page
        toolbar_location="above",
        output_backend="canvas",
        min_border_left=10,
        min_border_right=14,
        **dict.fromkeys(("background_fill_color", "border_fill_color", "outline_line_color")),
    )
    for axis, label in ((drawn.xaxis, x_label), (drawn.yaxis, y_label)):
        axis.axis_label = label
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = "13px"
        axis.major_label_text_font_size = "12px"
        axis.minor_tick_line_color = None
        axis.major_tick_in = 0
        axis.major_label_policy = _bokeh("models").AllLabels()
    drawn.xgrid.grid_line_color = None
    drawn.toolbar.autohide = True
    drawn.toolbar.logo = None
    return drawn


def _hover(drawn: Any, renderers: list[Any], lines: dict[str, str]) -> Any:
    """The figure with a tooltip: columns of the script, which escapes them, after their names."""
    rows = "".join(f"<div><b>{name}</b> @{column}</div>" for column, name in lines.items())
    tip: dict[str, Any] = {"mode": "mouse", "point_policy": "snap_to_data", "name": "hover"}
    tip["tooltips"] = f'<div style="{_TIP}">{rows}</div>'
    drawn.add_tools(_bokeh("models").HoverTool(renderers=renderers, **tip))
    return drawn


def _bars(drawn: Any, source: dict[str, Any], which: str, columns: str, level: float) -> list[Any]:
    """Points with error bars for the chosen method and the one to compare with, and the level."""
    models = _bokeh("models")
    drawn.xaxis.ticker = models.FixedTicker(ticks=[])  # 0, 1, 2, …, which the script names
    drawn.add_layout(models.Span(location=level, dimension="width", name="level", **_DASHED))
    caught, (x, y, low, high) = [], columns.split()
    for role, marker in (("other", "square"), ("focus", "circle")):
        data = source[f"{which}_{role}"]
        drawn.segment(x, low, x, high, source=data, line_width=1.5, name=f"{role} bar")
        drawn.line(x, y, source=data, line_width=1.5, line_alpha=0.55, name=f"{role} line")
        drawn.scatter(x, y, source=data, size=8, marker=marker, name=role)
        # As wide as a marker, so that bar and marker share a tooltip.
        wide: dict[str, Any] = {"line_width": 12, "line_alpha": 0, "name": "catch"}
        caught.append(drawn.segment(x, low, x, high, source=data, **wide))
    return caught


def _curve(source: dict[str, Any]) -> Any:
    drawn = _figure("curve", "coverage asked for", "found minus asked for (% points)")
    drawn.varea("level", "low", "high", source=source["curve_chance"], name="chance")
    caught = _bars(drawn, source, "curve", "level excess low high", 0.0)
    return _hover(drawn, caught, {"method": "method", "asked": "asked for", "found": "found"})


def _parts(source: dict[str, Any]) -> Any:
    drawn = _figure("parts", "", "coverage (%)", height=380)
    caught = _bars(drawn, source, "parts", "x coverage lower upper", 90.0)
    drawn.xaxis.major_label_orientation = 0.75
    drawn.yaxis.bounds = (0, 100)  # the frame extends above
    lines = {"method": "method", "label": "where", "found": "coverage", "n": "test points"}
    return _hover(drawn, caught, lines)


def _widths(source: dict[str, Any]) -> Any:
    drawn = _figure("widths", "width of the interval", "size of the error |y − ŷ|")
    xy, inside, outside = ("width", "error"), source["widths_inside"], source["widths_outside"]
    caught = [
        drawn.scatter(*xy, source=inside, size=4, alpha=0.45, name="inside"),
        drawn.scatter(*xy, source=outside, size=6, marker="x", name="outside"),
    ]
    drawn.line(*xy, source=source["widths_ideal"], name="ideal", **_DASHED)
    deciles = source["widths_deciles"]
    drawn.line(*xy, source=deciles, line_width=2, name="focus")
    drawn.scatter(*xy, source=deciles, size=9, marker="diamond", name="focus")
    return _hover(drawn, caught, {"id": "", "told": ""})


def _points(source: dict[str, Any]) -> Any:
    drawn = _figure("points", "", "target", height=400)
    caught = []
    for role, size, marker in (("inside", 4, "circle"), ("outside", 8, "x")):
        data = source[f"points_{role}"]
        ends: dict[str, Any] = {"line_width": 2, "alpha": 0.5, "name": f"{role} bar"}
        dot: dict[str, Any] = {"size": size, "marker": marker, "line_width": 1.5, "name": role}
        bar = drawn.segment("x", "lower", "x", "upper", source=data, **ends)
        target = drawn.scatter("x", "y", source=data, **dot)
        # A target inside lies on its bar: one tooltip serves both.
        caught += [bar] if role == "inside" else [bar, target]
    return _hover(drawn, caught, {"id": "", "told": "", "at": "at"})
