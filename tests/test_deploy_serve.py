"""The serving example on loopback: right answers under load, a bounded queue, bad requests, an end that loses nothing."""

from __future__ import annotations

import http.client
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mlirstack as ms

SERVER = Path(__file__).parent.parent / "examples" / "serve" / "server.py"


class Slow(nn.Module):
    """Some milliseconds a call, so that requests meet."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(512, 512) / 23)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.weight
        for _ in range(4):
            y = torch.tanh(y) @ self.weight
        return y.sum(1)


@dataclass(frozen=True)
class Served:
    """A running server: its port, its process, and the model that it serves."""

    port: int
    process: subprocess.Popen[str]
    model: nn.Module

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str, bytes]:
        """Status, content type and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        found = answer.status, answer.headers.get("content-type", ""), answer.read()
        connection.close()
        return found

    def predict(self, x: np.ndarray) -> tuple[int, np.ndarray | None]:
        """Status, and the output of a prediction as .npy."""
        stream = io.BytesIO()
        np.save(stream, x)
        status, _, body = self.ask("POST", "/predict", stream.getvalue(), content_type="application/x-npy")
        if status != 200:
            return status, None
        with np.load(io.BytesIO(body)) as archive:
            return status, archive["output0"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module]:
    torch.manual_seed(0)
    model, path = Slow().eval(), tmp_path_factory.mktemp("serve") / "slow.bundle"
    ms.build(
        model, (torch.randn(4, 512),), targets=["cpu"], path=path, dynamic_shapes=({0: torch.export.Dim("batch", max=64)},)
    )
    return path, model


@pytest.fixture(scope="module")
def served(bundle: tuple[Path, nn.Module]) -> Iterator[Served]:
    path, model = bundle
    command = [sys.executable, str(SERVER), str(path), "--port", "0", "--waiting", "6", "--largest", "300000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
    assert found, line + process.communicate(timeout=60)[1]
    yield Served(int(found[1]), process, model)
    process.kill()
    process.communicate(timeout=60)


def inputs(count: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal((1 + i % 16, 512), np.float32) for i in range(count)]


def answer(model: nn.Module, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = model(torch.tensor(x)).numpy()
    return found


def test_answers_are_right_and_bad_requests_are_told_why(served: Served) -> None:
    status, _, body = served.ask("GET", "/health")
    assert (status, json.loads(body)) == (200, {"status": "ok", "waiting": 0, "served": 0})
    metadata = json.loads(served.ask("GET", "/metadata")[2])
    assert metadata["model"] == "Slow" and metadata["target"] == "cpu" and metadata["dynamic"] == {"batch": [0, 64]}
    assert metadata["inputs"] == [{"name": "x", "shape": ["batch", 512], "dtype": "float32"}]

    x = inputs(3)[2]
    status, kind, body = served.ask(
        "POST", "/predict", json.dumps({"inputs": {"x": x.tolist()}}).encode(), content_type="application/json"
    )
    assert (status, kind) == (200, "application/json")
    np.testing.assert_allclose(json.loads(body)["outputs"]["output0"], answer(served.model, x), rtol=1e-4, atol=1e-4)
    x[1] = np.nan
    status, _, body = served.ask("POST", "/predict", json.dumps({"inputs": {"x": x.tolist()}}).encode())
    assert [value is None for value in json.loads(body)["outputs"]["output0"]] == [False, True, False]

    wrong: list[tuple[bytes, str, int, str]] = [
        (b"{", "application/json", 400, "cannot be read as application/json"),
        (b'{"x": [1]}', "application/json", 400, 'must be {"inputs": {NAME: VALUES'),
        (b"[1]", "application/json", 400, 'must be {"inputs": {NAME: VALUES'),
        (b'{"inputs": {"y": [1]}}', "application/json", 400, "the model takes x"),
        (b'{"inputs": {"x": [[1, 2]]}}', "application/json", 422, "argument 'x' has shape [1, 2]"),
        (b"nothing", "application/x-npy", 400, "cannot be read as application/x-npy"),
        (b"nothing", "application/x-npz", 400, "cannot be read as application/x-npz"),
        (b"nothing", "text/plain", 415, "content-type is text/plain"),
        (b"0" * 300_001, "application/json", 413, "larger than 300000 bytes"),
    ]
    for content, content_type, expected, message in wrong:
        status, _, body = served.ask("POST", "/predict", content, content_type=content_type)
        assert (status, message in json.loads(body)["error"]) == (expected, True), body
    assert served.ask("GET", "/predict")[0] == 405 and served.ask("GET", "/nowhere")[0] == 404


def test_load_is_answered_rightly_or_refused_at_once(served: Served) -> None:
    requests = inputs(60)
    expected = [answer(served.model, x) for x in requests]
    before = json.loads(served.ask("GET", "/health")[2])["served"]
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(served.predict, requests))
    counts = Counter(status for status, _ in found)
    assert set(counts) == {200, 503} and counts[200] >= 6, counts
    for (status, output), wanted in zip(found, expected, strict=True):
        if status == 200:
            assert output is not None
            np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4)
    assert json.loads(served.ask("GET", "/health")[2]) == {"status": "ok", "waiting": 0, "served": before + counts[200]}


def test_what_was_taken_is_answered_before_the_end(served: Served) -> None:
    x = np.ones((64, 512), np.float32)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(served.predict, x) for _ in range(4)]
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and json.loads(served.ask("GET", "/health")[2])["waiting"] == 0:
            if all(future.done() for future in futures):
                futures = [pool.submit(served.predict, x) for _ in range(4)]
        served.process.send_signal(signal.SIGTERM)
        found: list[Any] = [future.result(60) for future in futures]
    assert [status for status, _ in found] == [200] * 4
    assert served.process.wait(30) in (0, -signal.SIGTERM)  # uvicorn ends with the signal that asked for it


def test_a_damaged_bundle_is_not_served(bundle: tuple[Path, nn.Module], tmp_path: Path) -> None:
    import shutil

    bad = Path(shutil.copytree(bundle[0], tmp_path / "bad"))
    (bad / "cpu" / "main.o").write_bytes(b"")
    done = subprocess.run([sys.executable, str(SERVER), str(bad)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3 and "main.o is damaged" in done.stderr and "Traceback" not in done.stderr
