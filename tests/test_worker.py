"""The compile worker: results, errors and crashes of another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mlirstack import zoo
from mlirstack.bundle.store import read_bundle
from mlirstack.cli.common import run_command
from mlirstack.errors import StageError, StorageError, UsageError
from mlirstack.lowering import LowerOptions
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.registry import create_target
from mlirstack.worker import Job, Worker

MODEL = "zoo:tiny_mlp_small"


def options(directory: Path) -> LowerOptions:
    return LowerOptions("cpu", dump=directory, crash_safe=True)


def test_a_job_that_nobody_waits_for_ends_with_the_next_one(tmp_path: Path) -> None:
    with Worker() as worker:
        worker.start()
        worker.begin(Job(MODEL, LowerOptions("cpu", to="torch")))
        done = worker.run(Job(MODEL, LowerOptions("cpu", to="tosa")))
    assert [stage.name for stage in done.stages][-1] == "tosa"


def test_bundle_of_the_worker_runs_here_and_equals_eager(tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    with Worker() as worker:
        done = worker.run(Job(MODEL, options(tmp_path / "dump"), bundle=tmp_path / "bundle", seed=3))
    assert done.route == "tosa"
    assert [s.index for s in done.stages] == list(range(len(done.stages)))
    bundle = read_bundle(tmp_path / "bundle")
    executable = create_target("cpu").load(bundle.artifact, bundle.signature, bundle.parameters)
    function = CompiledFunction(executable, bundle.signature, bundle.parameters)
    model = zoo.get("tiny_mlp_small", 3)
    torch.testing.assert_close(function(*model.inputs), model.module(*model.inputs), rtol=1e-5, atol=1e-5)
    assert not list((tmp_path / "dump").glob("reproducer-*"))


def test_a_killed_compile_costs_a_stage_and_the_next_job_runs(tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()

    def kill(event: str, stage: str, seconds: float) -> None:
        if (event, stage) == ("before", "bufferized"):
            assert worker._process is not None
            os.kill(worker._process.pid or 0, signal.SIGKILL)

    with Worker() as worker:
        with pytest.raises(StageError) as caught:
            worker.run(Job(MODEL, options(tmp_path / "dump"), bundle=tmp_path / "bundle"), kill)
        error = caught.value
        assert error.stage == "bufferized"
        assert "SIGKILL" in error.message
        assert not (tmp_path / "bundle").exists()
        assert any(f.name.endswith("-fused.mlir") for f in (tmp_path / "dump").iterdir())
        assert not any(f.name.endswith("-loops.mlir") for f in (tmp_path / "dump").iterdir())
        (tmp_path / "second").mkdir()
        assert worker.run(Job(MODEL, options(tmp_path / "second"), bundle=tmp_path / "bundle")).artifact
    assert error.reproducer is not None
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    command = ["sh", str(error.reproducer / "command.sh")]
    replay = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert replay.returncode == 0, replay.stderr
    assert "memref" in replay.stdout


def test_a_full_disk_is_no_defect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wherever it is met: what the compile process writes, and what the command writes itself."""
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "trace.json.new").symlink_to("/dev/full")
    with Worker() as worker, pytest.raises(StorageError, match="No space left on device"):
        worker.run(Job(MODEL, options(tmp_path / "dump")))
    with pytest.raises(SystemExit) as ended:
        run_command(lambda: Path("/dev/full").write_text("answers"))
    assert ended.value.code == 3
    told = capsys.readouterr().err
    assert told.startswith("error: No space left on device\nhint: free space") and "Traceback" not in told


def test_errors_of_the_worker_arrive_with_their_kind() -> None:
    with Worker() as worker, pytest.raises(UsageError, match="tiny_mlp"):
        worker.run(Job("zoo:tiny_mpl", LowerOptions("cpu")))
