"""What the engine is compared with: ``llama_cpp.Llama`` with its cache, and a llama-server of the same build."""

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.support.engine_rig import Rig

_START_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Served:
    """One answer of a rival: seconds to its first token, and to its last."""

    first_token_seconds: float
    seconds: float


def run_llama_with_cache(rig: Rig, prompts: Sequence[Sequence[int]], *, limit: int) -> float:
    """Seconds for all of them, one after the other, as the binding's own high level does it."""
    binding = import_module("llama_cpp")
    model = binding.Llama(
        str(rig.model_path), n_ctx=4096, n_batch=512, n_threads=rig.threads, n_threads_batch=rig.threads,
        flash_attn=True, verbose=False,
    )  # fmt: skip
    model.set_cache(binding.LlamaRAMCache(2**30))
    never = dict.fromkeys(rig.weights.end_tokens, -100.0)
    started = time.perf_counter()
    for prompt in prompts:
        model.create_completion(list(prompt), max_tokens=limit, temperature=0.0, logit_bias=never)
    seconds = time.perf_counter() - started
    model.close()
    return seconds


@contextmanager
def llama_server(binary: Path, rig: Rig, *, slots: int | None) -> Iterator[int]:
    """A server's port. ``slots`` None: as one would start it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [str(binary), "-m", str(rig.model_path), "--port", str(port), "-t", str(rig.threads), "-fa", "on"]
    command += ["-c", "8192", "-np", str(slots)] if slots else ["-c", str(16 * 2048), "-np", "16"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(port)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=60)


def serve(port: int, prompts: Sequence[Sequence[int]], *, limit: int) -> list[Served]:
    """Asks a server for all of them at once."""
    with ThreadPoolExecutor(max_workers=len(prompts)) as pool:
        return list(pool.map(lambda prompt: _complete(port, prompt, limit), prompts))


def _complete(port: int, prompt: Sequence[int], limit: int) -> Served:
    body = {
        "prompt": list(prompt), "n_predict": limit, "ignore_eos": True, "temperature": 0, "cache_prompt": True,
        "stream": True,
    }  # fmt: skip
    started = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    first = 0.0
    while line := response.readline():
        if line.startswith(b"data:") and not first:
            first = time.perf_counter() - started
    connection.close()
    return Served(first_token_seconds=first, seconds=time.perf_counter() - started)


def _wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/health")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError("llama-server did not become ready")
