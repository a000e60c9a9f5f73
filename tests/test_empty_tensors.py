"""Tensors without elements: what eager makes of them, and none that a compiler has to count with."""

from __future__ import annotations

import pytest
import torch
from several import Several, assert_as_eager
from torch.nn import functional as F

from mlirstack.frontend.export import export
from mlirstack.frontend.graph import FxGraph, calls, target_name

pytestmark = pytest.mark.portable

X = torch.arange(12.0).reshape(3, 4)
NONE = torch.zeros(0, dtype=torch.int64)
ROWS = torch.zeros(0, 4)
NARROW = torch.zeros(3, 0)
IMAGES = torch.zeros(0, 2, 4, 4)


def test_writing_to_no_place_is_a_copy() -> None:
    """The sums and writes ended the process."""
    programs = {
        "index_add": lambda x, i, e: torch.index_add(x, 0, i, x[i]),
        "index_add to columns": lambda x, i, e: torch.index_add(x, 1, i, x[:, i]),
        "index_put": lambda x, i, e: x.index_put((i,), x[i], accumulate=True),
        "scatter": lambda x, i, e: torch.scatter(x, 1, e.long(), 1),
        "scatter_add": lambda x, i, e: torch.scatter_add(x, 1, e.long(), x),
        "slice_scatter": lambda x, i, e: torch.slice_scatter(x, x[:0], 0, 1, 1),
    }
    assert_as_eager(programs, X, NONE, NARROW)


def test_what_is_computed_from_nothing_is_a_constant() -> None:
    programs = {
        "sum": lambda r, n: r.sum(0),
        "mean": lambda r, n: r.mean(0),
        "prod": lambda r, n: r.prod(),
        "all": lambda r, n: r.all(0),
        "logsumexp": lambda r, n: torch.logsumexp(r, 0),
        "product of matrices": lambda r, n: n @ r,
        "with a bias": lambda r, n: torch.addmm(torch.ones(4, dtype=n.dtype), n, r),
        "padded": lambda r, n: F.pad(n, (1, 2), value=3.0) * 2,
        "new": lambda r, n: n.new_ones(3),
        "attention of heads of no size": lambda r, n: F.scaled_dot_product_attention(
            n[None], n[None], torch.ones(1, 3, 4).to(n)
        ),
    }
    assert_as_eager(programs, ROWS, NARROW)


def test_what_has_no_elements_keeps_its_shape_and_dtype() -> None:
    """Windows and slices of nothing were out of bounds, reshapes divided by zero, resampling as well."""
    programs = {
        "unfold": lambda r, m: r.unfold(1, 2, 1) <= 1,
        "diagonal": lambda r, m: r.to(torch.int8).diagonal(5),
        "slice": lambda r, m: torch.ones(4)[4:].abs(),
        "joined": lambda r, m: torch.cat([torch.ones(2, 4).to(r), r, r * 2]),
        "doubles": lambda r, m: (r.double() + 1).to(torch.bfloat16),
        "sums": lambda r, m: r.long() + 2**40,
        "sort": lambda r, m: torch.sort(r, 0).indices,
        "norm": lambda r, m: F.layer_norm(r, (4,)),
        "reshape": lambda r, m: r.reshape(4, 0, 1).transpose(0, 2),
        "attention": lambda r, m: F.scaled_dot_product_attention(r[None], r[None], r[None]),
        "resample": lambda r, m: F.interpolate(m, size=(2, 2), mode="bilinear"),
        "convolution": lambda r, m: F.conv2d(m, torch.ones(3, 2, 2, 2).to(m)),
        "written": lambda r, m: r.clone().add_(1),
    }
    assert_as_eager(programs, ROWS, IMAGES)


def test_nothing_is_computed_from_them() -> None:
    """The rewritten graph makes constants, and calls nothing that reads a tensor without elements."""
    model = Several({"sum": lambda r: r.sum(0) + 1, "sine": torch.sin})
    graph = export(model, (ROWS,)).payload
    assert isinstance(graph, FxGraph)
    empty = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
    assert not any(node in empty for call in calls(graph.module) for node in call.all_input_nodes)
    assert "aten.sin.default" not in {target_name(node) for node in calls(graph.module)}
