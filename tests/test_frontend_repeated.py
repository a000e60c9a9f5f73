"""Decomposing each kind of operation once gives the graph that decomposing all of them gives."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx, nn

from mlirstack.frontend import repeated


class Layer(nn.Module):
    """Attention and a hidden layer, as ops that decompose into many, that return several values, that do nothing, or that
    export checks."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.view(2, 4, 2, 4).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 4, 8)
        wide, _ = torch.max(torch.stack((x, self.out(y.contiguous()))), dim=0)
        return self.norm(x * 1 + (wide * 1.0).to(torch.float64).to(torch.float32)) * True


def captured(layers: int) -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(nn.Sequential(*(Layer() for _ in range(layers))).eval(), (torch.randn(2, 4, 8),))


def described(graph: fx.Graph) -> list[tuple[object, ...]]:
    """All of a graph that the rest of the front end sees: names, operators, arguments, values, source lines."""
    graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))
    return [
        (n.name, n.op, str(n.target), str((n.args, n.kwargs)), str(n.meta.get("val")), n.meta.get("stack_trace"))
        for n in graph.nodes
        if n.op == "call_function"
    ]


def test_repeated_layers_are_decomposed_as_a_whole_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    exported: list[int] = []
    templates = repeated._templates
    monkeypatch.setattr(repeated, "_templates", lambda kinds, *rest: exported.append(len(kinds)) or templates(kinds, *rest))
    rules = repeated.rules()
    with torch.no_grad():
        whole = captured(4).run_decompositions(dict(rules.table))
        by_kind = repeated.decompose(captured(4), rules)
    # What export adds to check dtypes is no operation.
    skipped = (operator.getitem, torch.ops.aten._assert_tensor_metadata.default)
    calls = [n for n in captured(1).graph.nodes if n.op == "call_function" and n.target not in skipped]
    assert exported == [len(calls) - 4]  # one layer's operations; q, k and v are viewed and transposed alike
    assert described(by_kind.graph) == described(whole.graph)
    modes = [n.meta["val"].fake_mode for n in by_kind.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    assert len(set(modes)) == 1  # so that rules can compute with any of the values together
    x = torch.randn(2, 4, 8)
    torch.testing.assert_close(by_kind.module()(x), whole.module()(x), rtol=0, atol=0)


def test_what_writes_or_is_dynamic_goes_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(20):
                x = (x + 1).relu_()
            return x

    monkeypatch.setattr(repeated, "_templates", lambda *_: pytest.fail("kinds were exported"))
    rules, x = repeated.rules(), torch.randn(4)
    batch = {"x": {0: torch.export.Dim("batch", min=2, max=9)}}
    for program in (
        torch.export.export(Writes(), (x,)),
        torch.export.export(Writes(), (x,), dynamic_shapes=batch),
    ):
        with torch.no_grad():
            assert len(repeated.decompose(program, rules).graph.nodes) > 3


def test_numbers_that_are_equal_but_not_the_same_are_of_two_kinds() -> None:
    program = captured(4)
    kinds = repeated._kinds(program.graph)
    assert kinds is not None
    scaled = {kind.leaves[1].text for node, kind in kinds.items() if node.target is torch.ops.aten.mul.Tensor}
    assert scaled == {"int 1", "float 1.0", "bool True"}


def test_what_only_checks_numbers_is_no_obstacle() -> None:
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv(x)

    with torch.no_grad():
        decomposed = repeated.decompose(torch.export.export(Inverse(), (torch.eye(3),)), repeated.rules())
    assert torch.ops.aten.linalg_inv_ex.default in [node.target for node in decomposed.graph.nodes]
