"""The command line as a user meets it: help, errors, exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def call(*arguments: str, stdin: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / arguments[0]), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, cwd=cwd, timeout=300, check=False)


def test_help_lists_the_commands_and_is_light() -> None:
    result = call("mlirstack", "--help")
    assert result.returncode == 0
    for command in ("lower", "compare", "pipelines", "doctor"):
        assert command in result.stdout
    probe = (
        "import sys, mlirstack, mlirstack.cli.main; print([m for m in ('torch', 'torch_mlir', 'iree') if m in sys.modules])"
    )
    light = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert light.stdout.strip() == "[]"


def test_the_package_is_the_command() -> None:
    module = subprocess.run([sys.executable, "-m", "mlirstack", "--help"], capture_output=True, text=True, check=True)
    assert module.stdout == call("mlirstack", "--help").stdout


@pytest.mark.parametrize("command", ["lower", "compare", "pipelines", "doctor"])
def test_every_command_has_help(command: str) -> None:
    result = call("mlirstack", command, "--help")
    assert result.returncode == 0
    assert "--json" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        (("lower", "zoo:tiny_mpl", "--out", "d"), "tiny_mlp", 2),
        (("lower", "missing.py:Net", "--out", "d"), "missing.py", 2),
        (("lower", "missing.mlir", "--out", "d"), "missing.mlir", 2),
        (("lower", "zoo:tiny_mlp_small", "--out", "d", "--target", "cpux"), "nearest: cpu", 2),
        (("lower", "zoo:tiny_mlp_small", "--out", "d", "--to", "linlag"), "nearest: linalg", 2),
        (("lower", "zoo:tiny_mlp_small", "--out", "d", "--from", "linalg"), "holds no stage 'linalg'", 2),
        (("lower", "zoo:tiny_mlp_small", "--out", "/dev/null"), "is a file", 2),
        (("lower", "zoo:tiny_mlp_small", "--out", "d", "--override", "linalg"), "STAGE=FILE", 2),
        (("lower", "zoo:tiny_mlp_small", "--out", "d", "--route", "tsoa"), "tosa", 2),
        (("lower", "zoo:tiny_mlp_small", "--out", "d", "--dtype", "float15"), "float15", 2),
        (("pipelines", "cuda9"), "unknown target 'cuda9'", 2),
        (("compare", "zoo:tiny_mlp_small", "--targets", "cpu,nope"), "unknown target 'nope'", 2),
    ],
)
def test_wrong_use_is_one_short_block(arguments: tuple[str, ...], message: str, status: int, tmp_path: Path) -> None:
    result = call("mlirstack", *arguments, cwd=tmp_path)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) < 10
    assert result.returncode == status
    assert not list(tmp_path.iterdir()), "something is left behind"


def test_malformed_mlir_names_file_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "bad.mlir"
    file.write_text("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n  return %b : tensor<4xf32>\n}\n")
    result = call("mlirstack", "lower", str(file), "--out", "d", cwd=tmp_path)
    assert result.returncode == 2
    assert "bad.mlir:2:10" in result.stderr


def test_pipelines_print_text_that_opt_accepts(tmp_path: Path) -> None:
    result = call("mlirstack", "pipelines", "cpu", "--json", "-")
    assert result.returncode == 0
    table = json.loads(result.stdout)[0]
    names = [stage["name"] for stage in table["stages"]]
    assert names.index("linalg") < names.index("tiled") < names.index("vectorized") < names.index("llvm")
    source = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
    for stage in table["stages"]:
        if stage["level"] == "linalg":
            replay = call("mlirstack-opt", f"--pass-pipeline={stage['pipeline']}", stdin=source)
            assert replay.returncode == 0, replay.stderr


def test_lower_then_resume_then_override(tmp_path: Path) -> None:
    first = call("mlirstack", "lower", "zoo:tiny_mlp_small", "--out", "d", "--json", "r.json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    trace = json.loads((tmp_path / "d" / "trace.json").read_text())
    beside = ("trace.json", "sources.json")
    files = sorted(f.name for f in (tmp_path / "d").iterdir() if f.is_file() and f.name not in beside)
    assert files == [stage["file"] for stage in trace["stages"]]
    assert [f[:2] for f in files] == [f"{i:02d}" for i in range(len(files))]
    assembly = next(f for f in files if f.endswith(".s"))
    before = (tmp_path / "d" / assembly).read_text().splitlines()[1:]
    again = call("mlirstack", "lower", "zoo:tiny_mlp_small", "--out", "d", "--from", "fused", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "d" / assembly).read_text().splitlines()[1:] == before

    edited = tmp_path / "edited.mlir"
    linalg = next(f for f in files if f.endswith("-linalg.mlir"))
    edited.write_text((tmp_path / "d" / linalg).read_text().replace("arith.maximumf", "arith.minimumf"))
    overridden = call(
        "mlirstack", "lower", "zoo:tiny_mlp_small", "--out", "e", "--override", f"linalg={edited}", cwd=tmp_path
    )
    assert overridden.returncode == 0, overridden.stderr
    assert "arith.minimumf" in (tmp_path / "e" / linalg).read_text()


def test_opt_errors() -> None:
    source = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
    unknown = call("mlirstack-opt", "--pass-pipeline=builtin.module(canonicalise)", stdin=source)
    assert unknown.returncode == 1
    assert "nearest: canonicalize" in unknown.stderr
    broken = call("mlirstack-opt", stdin=source.replace("return %a", "return %b"))
    assert broken.returncode == 1
    assert "<stdin>:1:" in broken.stderr
    missing = call("mlirstack-opt", "nowhere.mlir")
    assert missing.returncode == 1
    assert "nowhere.mlir" in missing.stderr
