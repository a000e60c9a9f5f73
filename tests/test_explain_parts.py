"""The parts of ``explain`` on values counted by hand: graphs, kernels, memory, the doctor's table, shapes, reports."""

from __future__ import annotations

import json
import time

import pytest
import torch
from explain_programs import straight, vector
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from typer.testing import CliRunner

import mlirstack as ms
from mlirstack import zoo
from mlirstack.cli.main import app
from mlirstack.dynamo.explain import breaks
from mlirstack.dynamo.explain.breaks import GraphBreak, graph_breaks
from mlirstack.dynamo.explain.capture import call_with, capture
from mlirstack.dynamo.explain.child import answer
from mlirstack.dynamo.explain.cost import cost_shares
from mlirstack.dynamo.explain.doctor import categorize, decision_table, diagnose
from mlirstack.dynamo.explain.graphs import Graph, graph_of_module, read_graph
from mlirstack.dynamo.explain.kernels import BufferLife, GeneratedModule, read_module
from mlirstack.dynamo.explain.optimizations import Fusion, constant_folding, dead_code, fusion_of, memory_of
from mlirstack.dynamo.explain.own_pipeline import measure_own_pipeline
from mlirstack.dynamo.explain.recompiles import explain_guard
from mlirstack.dynamo.explain.request import Request, checked_shapes
from mlirstack.dynamo.explain.shape_lab import inputs_of_shapes, shape_lab
from mlirstack.dynamo.explain.triton_code import code_of
from mlirstack.errors import UsageError
from mlirstack.frontend.export import export

GRAPH = """
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 8][8, 1]cpu", arg1_1: "f32[8][1]cpu"):
        # File: model.py:3 in forward, code: y = x + 1
        full: "f32[8][1]cpu" = torch.ops.aten.full.default([8], 1.0)
        mul: "f32[8][1]cpu" = torch.ops.aten.mul.Tensor(full, 2);  full = None
        add: "f32[4, 8][8, 1]cpu" = torch.ops.aten.add.Tensor(arg0_1, mul);  mul = None
        neg: "f32[4, 8][8, 1]cpu" = torch.ops.aten.neg.default(add)
        permute: "f32[8, 4][1, 8]cpu" = torch.ops.aten.permute.default(add, [1, 0])
        abs_1: "f32[8][1]cpu" = torch.ops.aten.abs.default(arg1_1);  arg1_1 = None
        sum_1: "f32[8, 1][1, 1]cpu" = torch.ops.aten.sum.dim_IntList(permute, [-1], True);  permute = None
        return (sum_1, abs_1)

 # graph id: 1
"""
CODE = '''
# AOT ID: ['0_inference']
cpp_fused_add_0 = async_compile.cpp_pybinding(['float*', 'const float*'], r"""
extern "C" void kernel(float* in_out_ptr0, const float* in_ptr0) {}
""")

class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        assert_size_stride(arg0_1, (4, 8), (8, 1), 'input')
        buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
        # Topologically Sorted Source Nodes: [y], Original ATen: [aten.neg, aten.mm]
        extern_kernels.mm(arg0_1, arg0_1, out=buf0)
        buf1 = buf0; del buf0  # reuse
        cpp_fused_add_0(buf1, arg1_1)
        del arg1_1
        buf2 = empty_strided_cpu((8, 1), (1, 1), torch.float64)
        extern_kernels.sum(buf1, out=buf2)
        del buf1
        return (buf2, )
'''


def graph() -> Graph:
    return read_graph(GRAPH, "post-grad", "0/0")


def module() -> GeneratedModule:
    return read_module(CODE, "0/0", graph(), {})


def test_read_graph() -> None:
    """Types, operands, lines, views and outputs; the note behind the class is none of it."""
    found = graph()
    assert [node.name for node in found.calls] == ["full", "mul", "add", "neg", "permute", "abs_1", "sum_1"]
    assert found.outputs == ("sum_1", "abs_1")
    add = found.by_name["add"]
    assert (add.op, add.operands, str(add.type), add.line) == ("add", ("arg0_1", "mul"), "f32[4, 8]", 3)
    assert add.type is not None
    assert add.type.bytes == 4 * 8 * 4
    assert [node.name for node in found.calls if node.is_view] == ["permute"]
    symbolic = read_graph(GRAPH.replace("f32[4, 8]", "f32[s0, 8]"), "dynamo", "0/0").by_name["add"].type
    assert symbolic is not None
    assert symbolic.bytes is None


def test_any_graph_module_can_be_read() -> None:
    """Not only what comes from a trace."""
    made = make_fx(lambda x: torch.relu(x + 1).sum())(torch.ones(4, 8))
    found = graph_of_module(made)
    assert [node.op for node in found.calls] == ["add", "relu", "sum"]
    assert [str(node.type) for node in found.calls] == ["f32[4, 8]", "f32[4, 8]", "f32[]"]


def test_read_module() -> None:
    """Bytes: whole tensors, once each, twice where they are changed in place; a buffer that is reused is one memory."""
    found = module()
    assert [(k.name, k.kind, k.bytes) for k in found.kernels] == [
        ("extern_kernels.mm", "library", 128 + 128),
        ("cpp_fused_add_0", "c++", 2 * 128 + 32),
        ("extern_kernels.sum", "library", 128 + 64),
    ]
    assert found.kernels[1].fused_ops == ("add",)
    memory = memory_of(found)
    assert (memory.without, memory.with_reuse) == (128 + 128 + 64, 128 + 64)


def test_results_that_are_tuples() -> None:
    """topk gives values and indices: what it moves are both, and a kernel behind it reads one of them."""
    text = """
class G(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 8][8, 1]cpu"):
        topk = torch.ops.aten.topk.default(arg0_1, 2)
        getitem: "f32[4, 2][2, 1]cpu" = topk[0]
        getitem_1: "i64[4, 2][2, 1]cpu" = topk[1];  topk = None
        neg: "f32[4, 2][2, 1]cpu" = torch.ops.aten.neg.default(getitem);  getitem = None
        return (neg, getitem_1)
"""
    code = '''
cpp_fused_neg_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r"""
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) {}
""")
def call(args):
    arg0_1, = args
    buf0 = torch.ops.aten.topk.default(arg0_1, 2)
    buf1 = buf0[0]
    buf2 = buf0[1]
    del buf0
    buf3 = empty_strided_cpu((4, 2), (2, 1), torch.float32)
    cpp_fused_neg_0(buf1, buf3)
    return (buf3, buf2, )
'''
    found = read_module(code, "0/0", read_graph(text, "post-grad", "0/0"), {})
    assert [kernel.bytes for kernel in found.kernels] == [128 + 32 + 64, 32 + 32]


def test_result_of_a_library_call_is_that_of_its_own_op() -> None:
    """Not of a view of its operand that the trace counts in; ops have no namespace, whose ever it is."""
    text = """
class G(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 8][8, 1]cpu"):
        view: "f32[32][1]cpu" = torch.ops.aten.reshape.default(arg0_1, [32])
        pick: "f32[4][1]cpu" = torch.ops.mylib.pick.default(view)
        return (pick,)
"""
    code = """
def call(args):
    arg0_1, = args
    # [Provenance debug handles] torch.ops.mylib.pick.default:1
    buf0 = torch.ops.mylib.pick.default(arg0_1)
    return (buf0, )
"""
    graph = read_graph(text, "post-grad", "0/0")
    found = read_module(code, "0/0", graph, {"torch.ops.mylib.pick.default:1": ("view", "pick")})
    assert [(kernel.fused_ops, kernel.bytes) for kernel in found.kernels] == [(("pick",), 128 + 16)]
    assert read_module(code, "0/0", graph, {}).kernels[0].fused_ops == ("pick",)


def test_triton_code_is_read() -> None:
    """Ops in the order of the comment (the kernel's name lists them by the alphabet), also with a stream fetched between
    comment and call; a kernel that nobody calls by its name has none."""
    text = """
class G(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 8][8, 1]cuda:0"):
        relu: "f32[4, 8][8, 1]cuda:0" = torch.ops.aten.relu.default(arg0_1)
        mul: "f32[4, 8][8, 1]cuda:0" = torch.ops.aten.mul.Tensor(relu, 2);  relu = None
        return (mul,)
"""
    code = """
triton_poi_fused_mul_relu_0 = async_compile.triton('triton_poi_fused_mul_relu_0', 'def …')
def call(args):
    arg0_1, = args
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((4, 8), (8, 1), torch.float32)
        # Topologically Sorted Source Nodes: [relu, mul], Original ATen: [aten.relu, aten.mul]
        raw_stream0 = get_raw_stream(0)
        triton_poi_fused_mul_relu_0.run(arg0_1, buf0, 32, stream=raw_stream0)
    return (buf0, )
"""
    kernels = [{"name": name, "source": "def …", "ptx": ".version 8.4"} for name in ("triton_poi_fused_mul_relu_0", "other")]
    found = code_of({"code": code, "graph": text, "kernels": kernels})
    assert [(one.fused_ops, one.bytes) for one in found.kernels] == [(("relu", "mul"), 128 + 128), ((), None)]
    assert found.fusion == Fusion(kernels_without=2, kernels_with=1, bytes_without=4 * 128, bytes_with=2 * 128)


def test_memory_of_a_view() -> None:
    """A view of a buffer that is still in use is no buffer of its own."""
    lives = (BufferLife("a", 64, 0, 2), BufferLife("b", 64, 1, 2, reuses="a"), BufferLife("c", 16, 1, 1))
    memory = memory_of(GeneratedModule("inference", "0/0", module().kernels, lives, None, ""))
    assert (memory.without, memory.with_reuse) == (64 + 16, 64 + 16)


def test_optimizations_by_hand() -> None:
    """2 * ones is folded, neg is dead, permute is a view; seven numbers of bytes were added up by hand."""
    before = graph()
    after = read_graph(
        GRAPH.replace("        mul:", "        full_1:").replace(", mul);  mul", ", full_1);  full_1"), "post-grad", "0/0"
    )
    folding = constant_folding(before, [after], frozenset({"arg1_1"}))
    assert [node.name for node in folding.folded] == ["mul"]
    assert folding.parameters_only == 1  # abs of a parameter
    gone = dead_code(before, before, [after])
    assert [(node.name, node.why) for node in gone.gone] == [("mul", "folded")]
    assert [node.name for node in gone.unused] == ["neg"]
    fusion = fusion_of([module()])
    # full writes 32, mul 64, add 128 + 32 + 128, abs 64, sum 128 + 32; neg is dead, permute moves nothing
    assert (fusion.kernels_without, fusion.bytes_without) == (5, 32 + 64 + 288 + 64 + 160)
    assert (fusion.kernels_with, fusion.bytes_with) == (3, 256 + 288 + 192)


@pytest.mark.parametrize(
    ("guard", "kind", "what"),
    [
        ("tensor 'x' stride mismatch at index 1. expected 1, actual 8", "stride", "x, stride 1"),
        ("tensor 'L['x']' size mismatch at index 0. expected 8, actual 9", "dimension", "x, dimension 0"),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=1", "requires_grad", "x"),
        ("L['self'].power == 2", "attribute", "self.power"),
        ("L['n'] == 3", "argument", "n"),
        ("G['SCALE'] == 2", "global", "SCALE"),
        ("2 <= x.size()[0]", "dimension", "x, dimension 0"),
        ("___check_type_id(L['x'], 94), type=<class 'int'>", "type", "x"),
        ("___check_obj_id(self.layer, 140)", "object", "self.layer"),
        ("GLOBAL_STATE changed: grad_mode autocast_state", "mode", "grad_mode autocast_state"),
        ("something of a later version", "other", "something of a later version"),
    ],
)
def test_guards_of_all_dialects(guard: str, kind: str, what: str) -> None:
    """What changed is never blank."""
    found = explain_guard(guard, "not given")
    assert (found.kind, found.what) == (kind, what)
    assert found.before
    assert found.after


def test_lines_of_torch_are_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever torch lies: a build from source is in no site-packages."""
    monkeypatch.setattr(breaks, "_TORCH", "/src/pytorch/torch/")
    assert breaks.is_library("/src/pytorch/torch/_library/custom_ops.py")
    assert breaks.is_library(torch.__file__)
    assert not breaks.is_library("/src/pytorch/train.py")


def test_decision_table() -> None:
    """Every category ends with a row without conditions, so that each break gets an action; costs change it."""
    for category in decision_table():
        last = category.decisions[-1]
        assert (last.skipped, last.share_below, last.reason) == (None, None, None)
    call = GraphBreak("Unsupported function call", "GB0147", "", (), "m.py", 1, "y = f(y)")
    cheap, dear, unknown = diagnose([call] * 3, {0: 0.001, 1: 0.4})
    assert (cheap.action, dear.action, unknown.action) == ("accept", "isolate", "isolate")
    assert categorize(GraphBreak("Strange", "GB9999", "", (), "m.py", 1, "y = f(y)")).name == "other"
    assert categorize(GraphBreak("Strange", None, "", (), "m.py", 1, "log.info('x')")).name == "debug"


def test_cost_of_a_break_is_what_passes_between_graphs() -> None:
    """A break that sleeps for 20 ms between two small graphs is nearly all of the run time."""

    def slow(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        time.sleep(0.02)
        return y * 2

    found = capture(slow, [call_with((vector(),), {}, backward=False)], generate_code=False)
    breaks = graph_breaks(found.trace)
    assert len(breaks) == 1
    shares, outside = cost_shares(found, breaks)
    assert shares[0] is not None
    assert outside is not None
    assert 0.8 < shares[0] <= outside <= 1.0


def test_shape_lab() -> None:
    """Three sizes: by default the second makes the dimension dynamic; static compiles each; dynamic and marked once."""
    inputs = [(vector(8),), (vector(9),), (vector(10),)]
    lab = shape_lab(straight, inputs)
    assert lab.shapes == ("8", "9", "10")
    assert {run.way: run.compiled for run in lab.runs} == {
        "default": (0, 1),
        "dynamic=True": (0,),
        "mark_dynamic": (0,),
        "dynamic=False": (0, 1, 2),
    }
    assert lab.runs[0].recompiles[0].what == "x, dimension 0"


def test_inputs_of_shapes_keep_values_in_range() -> None:
    """Other shapes repeat the example's own values."""
    (indices, scale) = inputs_of_shapes((torch.tensor([3, 1]), 2.0), [{0: (2, 3)}])[0]
    assert indices.tolist() == [[3, 1, 3], [1, 3, 1]]
    assert scale == 2.0
    with pytest.raises(UsageError, match="no list of shapes"):
        checked_shapes("8y2")


def test_own_pipeline() -> None:
    """A small MLP: fewer kernels than ops of linalg, weights are packed once, temporaries share an arena."""
    example = zoo.get("tiny_mlp_small")
    own = measure_own_pipeline(export(example.module, example.inputs, {}, name="mlp"))
    assert 0 < own.fusion.kernels_with < own.fusion.kernels_without
    assert own.fusion.bytes_with is not None
    assert own.fusion.bytes_without is not None
    assert own.fusion.bytes_with < own.fusion.bytes_without
    assert own.folded > 0
    assert own.launches is not None
    assert own.memory is not None
    assert own.memory.with_reuse is not None
    assert own.memory.without is not None
    assert own.memory.with_reuse <= own.memory.without


def test_model_that_fails_in_eager() -> None:
    """Is the model's own mistake, told as such."""
    with pytest.raises(UsageError, match=r"without torch\.compile, too: RuntimeError"):
        capture(lambda x: x @ x, [call_with((torch.ones(2, 3),), {}, backward=False)], generate_code=False)


class Printing(nn.Module):
    """One break and one fold."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of shape [8]."""
        y = torch.relu(x + 1)
        print("half way")
        return y * 2

    def example_inputs(self) -> tuple[torch.Tensor]:
        """Eight numbers."""
        return (torch.ones(8),)


@pytest.mark.slow
def test_explain_and_its_reports() -> None:
    """The whole way with Inductor: interface of the JSON, text, and a page that needs nothing else."""
    report = ms.explain(Printing(), torch.ones(8))
    data = json.loads(json.dumps(report.to_json()))
    assert {"graphs", "breaks", "recompiles", "kernels", "passes"} <= set(data)
    assert data["graphs"] == 2
    (one,) = data["breaks"]
    assert {"reason", "id", "file", "line", "source", "category", "action", "cost_share"} <= set(one)
    assert (one["category"], one["action"], one["source"]) == ("debug", "remove now", 'print("half way")')
    assert 0 < one["cost_share"] < 1
    assert {"name", "fused_ops", "bytes"} <= set(data["kernels"][0])
    assert [kernel["fused_ops"] for kernel in data["kernels"]] == [["add", "relu"], ["mul"]]
    assert [kernel["bytes"] for kernel in data["kernels"]] == [64, 64]
    assert data["passes"]["fusion"]["bytes_without"] == 3 * 64
    assert {"fusion", "constant_folding", "dce", "memory"} == set(data["passes"])
    assert report.times is not None
    assert report.times.whole is not None
    text = str(report)
    assert "print, logging, debugging" in text
    assert "remove now" in text
    page = report.to_html()
    assert "half way" in page
    assert "http" not in page.replace("https://meta-pytorch.github.io", "")


def test_child_answers_errors_of_the_user() -> None:
    """A wrong reference is an answer with the exit status of a wrong call; the process goes on."""
    failed = answer({**vars(Request("nothing.py:X"))}, lambda doing: None)["failed"]
    assert failed["exit_status"] == 2
    assert "no file nothing.py" in failed["message"]


def test_command_line_refuses_bad_shapes() -> None:
    """At once, before a process is started."""
    result = CliRunner().invoke(app, ["explain", "zoo:tiny_mlp_small", "--shapes", "3y"])
    assert result.exit_code == 2
