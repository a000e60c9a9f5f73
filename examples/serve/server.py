"""Serves a bundle over HTTP: health, metadata, prediction, with a bounded queue and a graceful end.

    pip install 'mlirstack[serve]'
    python examples/serve/server.py net.bundle --port 8000

    curl localhost:8000/health
    curl localhost:8000/metadata
    curl localhost:8000/predict -H 'content-type: application/json' -d '{"inputs": {"x": [[0.1, 0.2]]}}'
    curl localhost:8000/predict -H 'content-type: application/x-npy' --data-binary @x.npy -o outputs.npz

Requests wait in one queue for the model, which has one thread: more would share the same cores.  When the queue is full, a
request is answered with 503 at once, instead of being kept until whoever asked has given up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import logging
import math
import socket
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import mlirstack as ms
from mlirstack.bundle.load import LoadedModel
from mlirstack.bundle.parameters import numpy_dtype
from mlirstack.errors import MlirstackError, RuntimeCheckError, SignatureError

NPY, NPZ, JSON = "application/x-npy", "application/x-npz", "application/json"


class RequestError(Exception):
    """What is wrong with a request: HTTP status and a message for whoever sent it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Service:
    """A loaded model, and the number of requests that wait for it: ``limit`` at most, each of ``largest`` bytes at most."""

    def __init__(self, model: LoadedModel, *, limit: int, largest: int) -> None:
        self.model, self.limit, self.largest = model, limit, largest
        self.waiting = 0
        self.served = 0
        self.stopping = False
        self.inputs = [spec for spec in model.manifest.signature.arguments if spec.kind == "input"]

    async def predict(self, request: Request) -> Response:
        """POST /predict."""
        if self.waiting >= self.limit or self.stopping:
            return JSONResponse({"error": "too many requests wait"}, 503, {"retry-after": "1"})
        self.waiting += 1
        try:
            arrays = self._arrays(request.headers.get("content-type", JSON), await self._body(request))
            output = await asyncio.wrap_future(self.model.submit(*arrays))
            self.served += 1
            return _response(request.headers.get("accept", ""), request.headers.get("content-type", JSON), _named(output))
        except RequestError as error:
            return JSONResponse({"error": error.message}, error.status)
        except (SignatureError, RuntimeCheckError) as error:  # the values given do not fit the model
            return JSONResponse({"error": error.message, "hint": error.hint}, 422)
        finally:
            self.waiting -= 1

    async def health(self, request: Request) -> Response:
        """GET /health: 200 while requests are taken."""
        status = "stopping" if self.stopping else "ok"
        return JSONResponse(
            {"status": status, "waiting": self.waiting, "served": self.served}, 503 if self.stopping else 200
        )

    async def metadata(self, request: Request) -> Response:
        """GET /metadata: what the manifest says of the model."""
        manifest, entry = self.model.manifest, self.model.entry
        inputs = [{"name": s.name, "shape": s.shape, "dtype": s.dtype} for s in self.inputs]
        outputs = [{"shape": r.shape, "dtype": r.dtype} for r in manifest.signature.results]
        return JSONResponse(
            {
                "model": manifest.model,
                "built": manifest.built,
                "target": entry.spec,
                "device": self.model.device,
                "choice": self.model.choice,
                "inputs": inputs,
                "outputs": outputs,
                "dynamic": {name: list(bounds) for name, bounds in manifest.signature.dynamic.items()},
            }
        )

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.largest:
                raise RequestError(413, f"the body is larger than {self.largest} bytes")
        return bytes(body)

    def _arrays(self, content_type: str, body: bytes) -> list[np.ndarray]:
        """The inputs in order, from a body in one of three forms."""
        kind = content_type.partition(";")[0].strip()
        try:
            if kind == NPY:
                found: dict[str, Any] = {self.inputs[0].name: np.load(io.BytesIO(body), allow_pickle=False)}
            elif kind == NPZ:
                with np.load(io.BytesIO(body), allow_pickle=False) as archive:
                    found = {name: archive[name] for name in archive.files}
            elif kind == JSON:
                given = json.loads(body)
                if not isinstance(given, dict) or not isinstance(given.get("inputs"), dict):
                    raise RequestError(400, 'the body must be {"inputs": {NAME: VALUES, …}}')
                dtypes = {spec.name: numpy_dtype(spec.dtype) for spec in self.inputs}
                found = {name: np.array(value, dtypes.get(name)) for name, value in given["inputs"].items()}
            else:
                raise RequestError(415, f"content-type is {kind}; {JSON}, {NPY} and {NPZ} are read")
        except (ValueError, KeyError, TypeError, EOFError, OverflowError, zipfile.BadZipFile) as error:
            raise RequestError(400, f"the body cannot be read as {kind}: {type(error).__name__}: {error}") from error
        names = [spec.name for spec in self.inputs]
        if set(found) != set(names):
            raise RequestError(400, f"inputs are {', '.join(found) or 'missing'}; the model takes {', '.join(names)}")
        return [found[name] for name in names]


def application(service: Service) -> Starlette:
    """The ASGI application; when it ends, it waits for what has been taken."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.stopping = True
        await asyncio.to_thread(service.model.close)

    routes = [
        Route("/health", service.health),
        Route("/metadata", service.metadata),
        Route("/predict", service.predict, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _named(output: Any) -> dict[str, np.ndarray]:
    """Outputs by name: the model's own where it returns a dictionary, else output0, output1, …"""
    if isinstance(output, dict):
        return {str(name): np.asarray(value) for name, value in output.items()}
    values = output if isinstance(output, (tuple, list)) else (output,)
    return {f"output{i}": np.asarray(value) for i, value in enumerate(values)}


def _response(accept: str, content_type: str, outputs: dict[str, np.ndarray]) -> Response:
    """As asked for; without a word about it, in the form that the request had (an .npy is answered with an .npz)."""
    wants_json = JSON in accept or (NPZ not in accept and content_type.startswith(JSON))
    if wants_json:
        return JSONResponse({"outputs": {name: _finite(array.tolist()) for name, array in outputs.items()}})
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **outputs)
    return Response(stream.getvalue(), media_type=NPZ)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    """Load the bundle, then listen: nothing is answered by a model that is not ready."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--device", help="cpu, cuda, a target, or a target:arch; default: the best here")
    parser.add_argument("--threads", type=int, default=1, help="of the processor")
    parser.add_argument("--waiting", type=int, default=64, help="requests that may wait; more are answered with 503")
    parser.add_argument("--largest", type=int, default=64 << 20, help="bytes of a body")
    arguments = parser.parse_args()
    try:
        model = ms.load(arguments.bundle, device=arguments.device, threads=arguments.threads)
    except MlirstackError as error:
        parser.exit(error.exit_status, f"error: {error}\n")
    service = Service(model, limit=arguments.waiting, largest=arguments.largest)
    listening = socket.create_server((arguments.host, arguments.port))
    host, port = listening.getsockname()[:2]
    print(f"{model.manifest.model} ({model.entry.spec}: {model.choice}) on http://{host}:{port}", flush=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    server = uvicorn.Server(uvicorn.Config(application(service), access_log=False, timeout_graceful_shutdown=30))
    server.run(sockets=[listening])


if __name__ == "__main__":
    main()
