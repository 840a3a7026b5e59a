"""The radius of ``Split`` and of ``MADSplit(KNN(K))`` as an ONNX graph, in double precision.

``Split`` has one radius for all rows, so the graph is exact. ``MADSplit`` multiplies its threshold
by the mean training error of the K nearest, where points just as far as the K-th share its place;
the graph says the same, but sums in another order: radii agree up to rounding, unless two
distances that tie differ in their last digit there. See ``docs/save-and-serve.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from calliper.calibrators import MADSplit, Split

OPSET = 18


def radius_graph(method: Any, coverage: float) -> onnx.ModelProto:
    """A graph from ``Z`` (m, d) to ``radius`` (m,), of a fitted calibrator at one level."""
    if isinstance(method, Split):
        n_features, constants, nodes = method.n_features_in_, *_constant(method, coverage)
    elif isinstance(method, MADSplit) and hasattr(method.scale_, "search"):
        n_features, constants, nodes = method.n_features_in_, *_nearest_mean(method, coverage)
    else:
        raise TypeError(f"only Split() and MADSplit(KNN(…)) become graphs here; got {method!r}.")
    graph = helper.make_graph(
        [helper.make_node(kind, given, made.split(), **how) for kind, given, made, how in nodes],
        "radius",
        [helper.make_tensor_value_info("Z", TensorProto.DOUBLE, ["m", n_features])],
        [helper.make_tensor_value_info("radius", TensorProto.DOUBLE, ["m"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


Node = tuple[str, list[str], str, dict[str, Any]]


def _constant(method: Any, coverage: float) -> tuple[dict[str, Any], list[Node]]:
    """One radius for as many rows as there are."""
    (radius,) = method.predict_radius(np.zeros((1, method.n_features_in_)), coverage)
    constants = {"one": np.array([radius]), "first": np.array([0])}
    nodes: list[Node] = [
        ("Shape", ["Z"], "shape", {}),
        ("Gather", ["shape", "first"], "m", {}),
        ("Expand", ["one", "m"], "radius", {}),
    ]
    return constants, nodes


def _nearest_mean(method: Any, coverage: float) -> tuple[dict[str, Any], list[Node]]:
    """Threshold times mean error over those nearer than the K-th, and over those as far."""
    near = method.scale_
    if near.search.metric != "euclidean" or method.offset_:
        raise TypeError("only Euclidean distances without an offset become graphs here.")
    (at_one,) = _threshold(method, coverage)
    constants = {
        "points": near.search.points * near.search.unit,
        "errors": near.magnitudes[:, None],
        "ones": np.ones((len(near.magnitudes), 1)),
        "k": np.array([near.k]),
        "k_number": np.array(float(near.k)),
        "threshold": np.array(at_one),
        "middle": np.array([1]),
        "features": np.array([2]),
        "last": np.array([1]),
        "lowest": np.array([near.k - 1]),
    }
    nodes: list[Node] = [
        ("Unsqueeze", ["Z", "middle"], "rows", {}),
        ("Sub", ["rows", "points"], "apart", {}),
        ("Mul", ["apart", "apart"], "squares", {}),
        ("ReduceSum", ["squares", "features"], "distance", {"keepdims": 0}),
        ("TopK", ["distance", "k"], "nearest places", {"largest": 0}),
        ("Gather", ["nearest", "lowest"], "kth", {"axis": 1}),
    ]
    for name, kind in (("inner", "Less"), ("edge", "Equal")):
        nodes += [
            (kind, ["distance", "kth"], f"is_{name}", {}),
            ("Cast", [f"is_{name}"], name, {"to": TensorProto.DOUBLE}),
            ("MatMul", [name, "errors"], f"{name}_sum", {}),
            ("MatMul", [name, "ones"], f"{name}_count", {}),
        ]
    nodes += [
        ("Sub", ["k_number", "inner_count"], "seats", {}),
        ("Div", ["edge_sum", "edge_count"], "edge_mean", {}),
        ("Mul", ["seats", "edge_mean"], "shared", {}),
        ("Add", ["inner_sum", "shared"], "sum", {}),
        ("Div", ["sum", "k_number"], "mean", {}),
        ("Mul", ["mean", "threshold"], "column", {}),
        ("Squeeze", ["column", "last"], "radius", {}),
    ]
    return constants, nodes


def _threshold(method: Any, coverage: float) -> Any:
    """What the local mean is multiplied by: the radius at a row, over the mean there."""
    Z = method.scale_.search.points * method.scale_.search.unit
    radius, scale = method.predict_radius(Z, coverage), method.scale_.predict(Z)
    largest = np.argmax(scale)
    return radius[[largest]] / scale[[largest]]
