"""ONNX files as models: the same answers as ONNX's reference evaluator, names and dynamic sizes kept, bad files refused.

They need the extra ``onnx``, which a plain test installation leaves out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mlirstack as ms
from mlirstack.errors import RuntimeCheckError, SignatureError, UnsupportedError, UsageError
from mlirstack.frontend.references import ModelSource, load

onnx = pytest.importorskip("onnx", reason="needs the extra 'onnx'")
helper, FLOAT, INT64 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def weight(name: str, *shape: int) -> Any:
    seed = sum(name.encode())
    return onnx.numpy_helper.from_array(np.random.default_rng(seed).random(shape, dtype=np.float32) - 0.3, name)


def numbers(name: str, *values: int) -> Any:
    return onnx.numpy_helper.from_array(np.array(values, dtype=np.int64), name)


def value(name: str, *shape: int | str, dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], stored: list[Any], opset: int = 21) -> Any:
    graph = helper.make_graph(nodes, "net", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def mlp() -> Any:
    node = helper.make_node
    return model(
        [
            node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["hidden"], transB=1),
            node("Relu", ["hidden"], ["active"]),
            node("Gemm", ["active", "fc2.weight", "fc2.bias"], ["logits"], transB=1),
            node("Softmax", ["logits"], ["y"], axis=-1),
        ],
        [value("x", "batch", 8)],
        [value("y", "batch", 4)],
        [weight("fc1.weight", 16, 8), weight("fc1.bias", 16), weight("fc2.weight", 4, 16), weight("fc2.bias", 4)],
    )


def cnn() -> Any:
    node = helper.make_node
    return model(
        [
            node("Conv", ["image", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
            node("Relu", ["n"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("GlobalAveragePool", ["p"], ["a"]),
            node("Flatten", ["a"], ["f"], axis=1),
            node("Gemm", ["f", "head.weight", "head.bias"], ["y"], transB=1),
        ],
        [value("image", 2, 3, 16, 16)],
        [value("y", 2, 10)],
        [
            weight("conv.weight", 8, 3, 3, 3), weight("conv.bias", 8), weight("scale", 8), weight("shift", 8),
            weight("mean", 8), onnx.numpy_helper.from_array(np.full(8, 1.5, dtype=np.float32), "variance"),
            weight("head.weight", 10, 8), weight("head.bias", 10),
        ],
    )  # fmt: skip


def attention() -> Any:
    """Two results of one input: the block's output, and how long the sequence is."""
    node = helper.make_node
    heads = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        heads += [
            node("MatMul", ["x", f"{name}.weight"], [f"{name}.flat"]),
            node("Reshape", [f"{name}.flat", "apart"], [f"{name}.heads"]),
            node("Transpose", [f"{name}.heads"], [name], perm=order),
        ]
    rest = [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Mul", ["scores", "factor"], ["scaled"]),
        node("Softmax", ["scaled"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "together"], ["joined"]),
        node("MatMul", ["joined", "out.weight"], ["projected"]),
        node("Add", ["projected", "x"], ["residual"]),
        node("LayerNormalization", ["residual", "norm.weight", "norm.bias"], ["y"], axis=-1),
        node("Shape", ["x"], ["length"], start=1, end=2),
    ]
    matrices = [weight(f"{name}.weight", 16, 16) for name in ("q", "k", "v", "out")]
    return model(
        [*heads, *rest],
        [value("x", "batch", "sequence", 16)],
        [value("y", "batch", "sequence", 16), value("length", 1, dtype=INT64)],
        [
            *matrices, weight("norm.weight", 16), weight("norm.bias", 16), numbers("apart", 0, 0, 4, 4),
            numbers("together", 0, 0, 16), onnx.numpy_helper.from_array(np.float32(0.5), "factor"),
        ],
    )  # fmt: skip


def saved(folder: Path, made: Any, name: str = "net.onnx") -> Path:
    onnx.save(made, folder / name)
    return folder / name


@pytest.mark.target
@pytest.mark.parametrize("build", [mlp, cnn, attention], ids=lambda build: build.__name__)
def test_a_model_gives_the_reference_evaluator_s_answer(build: Any, tmp_path: Path) -> None:
    report = ms.compare(str(saved(tmp_path, build())), targets=["cpu"])
    assert report["cpu"].status == "ok", report["cpu"].error


@pytest.mark.target
def test_names_and_dynamic_sizes_are_kept_and_guarded(tmp_path: Path) -> None:
    path = saved(tmp_path, attention())
    function = ms.compile(path)
    weights = {"q.weight", "k.weight", "v.weight", "out.weight", "norm.weight", "norm.bias"}
    assert set(function.parameters) == weights
    assert [(a.name, a.shape) for a in function.signature.arguments if a.kind == "input"] == [
        ("x", ("batch", "sequence", 16))
    ]
    source = load(str(path))
    assert isinstance(source, ModelSource)
    for batch, sequence in ((1, 1), (3, 7), (2, 33)):
        x = torch.randn(batch, sequence, 16)
        y, length = function(x)
        torch.testing.assert_close(y, source.eager(x)[0], rtol=1e-4, atol=1e-5)
        assert length.tolist() == [sequence]
    with pytest.raises(SignatureError, match="dimension 'sequence' is 0, allowed: 1 or more"):
        function(torch.randn(2, 0, 16))


@pytest.mark.target
def test_dynamic_dimensions_are_merged_and_split_by_what_the_file_computes(tmp_path: Path) -> None:
    """Torch-mlir guesses from the sizes: of several batches of heads it read one, and beyond memory."""
    node = helper.make_node
    nodes = [
        node("Neg", ["x"], ["negative"]),
        node("Transpose", ["negative"], ["turned"], perm=[1, 0, 2, 3]),
        node("Reshape", ["turned", "joined"], ["rows"]),
        node("Reshape", ["rows", "apart"], ["columns"]),
        node("Flatten", ["negative"], ["flat"], axis=2),
        node("Reshape", ["negative", "wanted"], ["given"]),
    ]
    inputs = [value("x", "batch", "length", 2, 4), value("wanted", 2, dtype=INT64)]
    outputs = [value("rows", "n", 8), value("columns", 4, "m"), value("flat", "k", 8), value("given", "i", "j")]
    path = saved(tmp_path, model(nodes, inputs, outputs, [numbers("joined", -1, 8), numbers("apart", 4, -1)]))
    function, source = ms.compile(path), load(str(path))
    assert isinstance(source, ModelSource)
    for batch, length, wanted in ((2, 3, (6, 8)), (3, 2, (-1, 12)), (1, 1, (4, -1)), (4, 5, (0, -1))):
        given = torch.randn(batch, length, 2, 4), torch.tensor(wanted)
        for ours, expected in zip(function(*given), source.eager(*given), strict=True):
            assert torch.equal(ours, expected)
    for wanted in ((5, 8), (-1, 7), (-1, -1), (-6, -8)):
        with pytest.raises(RuntimeCheckError, match="new shape"):
            function(torch.randn(2, 3, 2, 4), torch.tensor(wanted))


@pytest.mark.parametrize(
    ("nodes", "refused"),
    [
        (
            [
                helper.make_node("MaxPool", ["x"], ["y", "at"], name="pool", kernel_shape=[2, 2], storage_order=1),
                helper.make_node("Relu", ["y"], ["r"]),
                helper.make_node("MaxPool", ["r"], ["z", "there"], name="again", kernel_shape=[2, 2], storage_order=1),
            ],
            ["onnx.MaxPool of node 'pool'", "onnx.MaxPool of node 'again'"],
        ),
        (
            [
                helper.make_node("RandomNormalLike", ["x"], ["y"], name="noise"),
                helper.make_node("Dropout", ["x", "half", "yes"], ["z"], name="thin"),
                helper.make_node("Dropout", ["x", "half"], ["w"], name="idle"),
            ],
            ["onnx.RandomNormalLike of node 'noise'", "onnx.Dropout of node 'thin'"],
        ),
        (
            [
                helper.make_node("Unique", ["x"], ["y"], name="once", axis=3),
                helper.make_node("Neg", ["y"], ["z"], name="minus"),
            ],
            ["onnx.Unique of node 'once'"],
        ),
    ],
    ids=["without a conversion", "random", "ends the process"],
)
def test_operators_that_cannot_be_lowered_are_named_with_their_nodes(
    nodes: list[Any], refused: list[str], tmp_path: Path
) -> None:
    stored = [onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")]
    stored += [onnx.numpy_helper.from_array(np.array(True), "yes")]
    path = saved(tmp_path, model(nodes, [value("x", 1, 2, 6, 6)], [value("y", *"nchw"), value("z", *"nchw")], stored))
    with pytest.raises(UnsupportedError) as raised:
        ms.lower(path)
    found = [re.sub(r"\(.*\)", "", op.op) for op in raised.value.ops]
    assert found == refused


def test_the_first_operator_that_a_later_step_cannot_lower_is_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="size"),
        helper.make_node("CumSum", ["a", "axis"], ["c"], name="scan"),
        helper.make_node("Neg", ["c"], ["y"], name="minus"),
    ]
    axis = value("axis", dtype=INT64)  # an argument: which axis it is, is known in the call only
    path = saved(tmp_path, model(nodes, [value("x", 4, 3), axis], [value("y", 4, 3)], []))
    with pytest.raises(UnsupportedError, match=r"onnx.CumSum.*of node 'scan'.*has no lowering in pass 'convert-torch-to"):
        ms.lower(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an ONNX model, or it is truncated"),
        (b"not a protocol buffer", "not an ONNX model, or it is truncated"),
        (mlp().SerializeToString()[:-40], "not an ONNX model, or it is truncated"),
        (model([], [], [value("y", 1)], [], opset=99).SerializeToString(), "needs opset 99"),
        (model([], [], [value("y", 1)], []).SerializeToString(), "no valid ONNX model"),
    ],
    ids=["empty", "text", "truncated", "too new", "no node makes the output"],
)
def test_a_bad_file_gets_one_short_error(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as raised:
        load(str(path))
    assert len(str(raised.value).splitlines()) <= 2


def test_weights_beside_the_file_are_read_and_missed(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(mlp(), path, save_as_external_data=True, location="weights.bin", size_threshold=16)
    source = load(str(path))
    assert isinstance(source, ModelSource)
    assert source.program().parameters["fc1.weight"].shape == (16, 8)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(UsageError, match="external data cannot be read"):
        load(str(path))


def test_the_sizes_are_those_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--dynamic does not apply"):
        load(str(saved(tmp_path, mlp())), dynamic={"x:0": "1..4"})
