"""The four figures as Bokeh models without data.

The name of every renderer is its role (``focus``, ``other``, ``ideal``, …), by which the script of
the page colours it in light and dark mode. The script also fills the named sources for the chosen
level and methods.
"""

from typing import Any

#: The sources of all figures by name.
Sources = dict[str, Any]

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


def figure_items() -> dict[str, Any]:
    """Each figure as JSON that BokehJS draws into the element of that name."""
    from bokeh.embed import json_item

    source = {
        name: _models().ColumnDataSource({column: [] for column in columns.split()}, name=name)
        for name, columns in _SOURCES.items()
    }
    figures = {
        "curve": _curve(source),
        "parts": _parts(source),
        "widths": _widths(source),
        "points": _points(source),
    }
    item: Any = json_item
    return {name: item(figure, f"figure-{name}") for name, figure in figures.items()}


def _models() -> Any:
    """Bokeh's models, untyped because their stubs lack some parameters."""
    from bokeh import models

    return models


def _figure(
    name: str, x_label: str, y_label: str, *, height: int = 340, named: bool = False
) -> Any:
    from bokeh.plotting import figure

    drawn = figure(
        name=f"figure_{name}",
        height=height,
        x_range=_models().Range1d(0, 1),  # the script sets the ranges
        y_range=_models().Range1d(0, 1),
        sizing_mode="stretch_width",
        tools="pan,box_zoom,reset,save",
        active_drag=None,  # a finger on the figure scrolls the page
        toolbar_location="above",
        output_backend="canvas",
        min_border_left=10,
        min_border_right=14,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
    )
    drawn.xaxis.axis_label, drawn.yaxis.axis_label = x_label, y_label
    for axis in (drawn.xaxis, drawn.yaxis):
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = "13px"
        axis.major_label_text_font_size = "12px"
        axis.minor_tick_line_color = None
        axis.major_tick_in = 0
        axis.major_label_policy = _models().AllLabels()
    if named:  # ticks at 0, 1, 2, …, which the script names
        drawn.xaxis.ticker = _models().FixedTicker(ticks=[])
    drawn.xgrid.grid_line_color = None
    drawn.toolbar.autohide = True
    drawn.toolbar.logo = None
    return drawn


_DASHED: dict[str, Any] = {"line_dash": "dashed", "line_width": 1.3}
#: The colours of the page, which tooltips do not follow in dark mode.
_TIP = "margin:-5px;padding:6px 10px;background:var(--paper);color:var(--text);max-width:20rem"


def _hover(drawn: Any, renderers: list[Any], lines: list[tuple[str, str]]) -> None:
    """A tooltip of values written by the script, which are escaped."""
    rows = "".join(f"<div><b>{name}</b> @{column}</div>" for name, column in lines)
    tip: dict[str, Any] = {"mode": "mouse", "point_policy": "snap_to_data", "name": "hover"}
    tip["tooltips"] = f'<div style="{_TIP}">{rows}</div>'
    drawn.add_tools(_models().HoverTool(renderers=renderers, **tip))


def _bars(drawn: Any, source: Sources, which: str, x: str, y: str) -> list[Any]:
    """Points with error bars for the chosen method and the one to compare with."""
    caught = []
    for role, marker in (("other", "square"), ("focus", "circle")):
        data = source[f"{which}_{role}"]
        low, high = ("low", "high") if which == "curve" else ("lower", "upper")
        drawn.segment(x, low, x, high, source=data, line_width=1.5, name=f"{role} bar")
        drawn.line(x, y, source=data, line_width=1.5, line_alpha=0.55, name=f"{role} line")
        drawn.scatter(x, y, source=data, size=8, marker=marker, name=role)
        # As wide as a marker, so that bar and marker share a tooltip.
        caught.append(
            drawn.segment(x, low, x, high, source=data, line_width=12, line_alpha=0, name="catch")
        )
    return caught


def _curve(source: Sources) -> Any:
    drawn = _figure("curve", "coverage asked for", "found minus asked for (% points)", named=True)
    drawn.varea("level", "low", "high", source=source["curve_chance"], name="chance")
    _level_line(drawn, 0.0)
    shown = _bars(drawn, source, "curve", "level", "excess")
    _hover(drawn, shown, [("method", "method"), ("asked for", "asked"), ("found", "found")])
    return drawn


def _parts(source: Sources) -> Any:
    drawn = _figure("parts", "", "coverage (%)", height=380, named=True)
    _level_line(drawn, 90.0)
    shown = _bars(drawn, source, "parts", "x", "coverage")
    lines = [("method", "method"), ("where", "label"), ("coverage", "found"), ("test points", "n")]
    _hover(drawn, shown, lines)
    drawn.xaxis.major_label_orientation = 0.75
    drawn.yaxis.bounds = (0, 100)  # the frame extends above
    return drawn


def _level_line(drawn: Any, at: float) -> None:
    drawn.add_layout(_models().Span(location=at, dimension="width", name="level", **_DASHED))


def _widths(source: Sources) -> Any:
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
    _hover(drawn, caught, [("", "id"), ("", "told")])
    return drawn


def _points(source: Sources) -> Any:
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
    _hover(drawn, caught, [("", "id"), ("", "told"), ("at", "at")])
    return drawn
