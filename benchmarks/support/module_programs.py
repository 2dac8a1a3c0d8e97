"""The programs that `accelerate` compares: PyTorch modules with pruned linear layers.

The script runs one program in its own process; it prepares a model at its first request, and times
calls. Each function takes a model and an input, and returns the function to time.
"""

from __future__ import annotations

import io
import sys
from copy import deepcopy
from functools import cache
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from dense_programs import PRECISIONS, _timed
from processes import serve
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[torch.Tensor], torch.Tensor]

TITLES = {
    "gbdnn": "accelerate",
    "pytorch": "PyTorch",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO FP32",
    "openvino_bf16": "OpenVINO bfloat16",
}


class FeedForward(nn.Module):
    """The feed-forward block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output."""
        return self.down(self.act(self.up(x)))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 6)


def _classifier() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


MODELS = {  # with the shape of an input
    "feed-forward": (FeedForward, (768,)),
    "encoder of 6": (_encoder, (768,)),
    "classifier": (_classifier, (784,)),
}


def gbdnn(model: nn.Module, x: torch.Tensor) -> Call:
    """`gbdnn.torch.accelerate`."""
    from gbdnn.torch import accelerate

    return accelerate(model)


def pytorch(model: nn.Module, x: torch.Tensor) -> Call:
    """PyTorch with dense weights."""
    return model


def onnxruntime(model: nn.Module, x: torch.Tensor) -> Call:
    """ONNX Runtime with dense weights, on PyTorch's export."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    session = onnxruntime.InferenceSession(
        _exported(model, x), options, providers=["CPUExecutionProvider"]
    )
    (given,) = session.get_inputs()
    return lambda x: torch.from_numpy(session.run(None, {given.name: x.numpy()})[0])


def openvino(model: nn.Module, x: torch.Tensor) -> Call:
    """OpenVINO in FP32 with dense weights, on PyTorch's export."""
    return _openvino(model, x, "f32")


def openvino_bf16(model: nn.Module, x: torch.Tensor) -> Call:
    """OpenVINO in bfloat16, its default on processors with bfloat16 instructions."""
    return _openvino(model, x, "bf16")


def _openvino(model: nn.Module, x: torch.Tensor, precision: str) -> Call:
    import openvino

    options = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "NUM_STREAMS": 1}
    options |= {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    core = openvino.Core()
    network = core.compile_model(core.read_model(_exported(model, x)), "CPU", options)
    used = network.get_property("INFERENCE_PRECISION_HINT").to_string()
    if used != precision:
        raise ValueError(f"OpenVINO computes in {used}, not in {precision}")
    run = network.create_infer_request()
    return lambda x: torch.from_numpy(run.infer([x.numpy()], share_inputs=True)[0])


def _exported(model: nn.Module, x: torch.Tensor) -> bytes:
    file = io.BytesIO()
    torch.onnx.export(model, (x,), dynamo=True, verbose=False).save(file)
    return file.getvalue()


PROGRAMS = {each.__name__: each for each in (gbdnn, pytorch, onnxruntime, openvino, openvino_bf16)}
# Largest difference, of the largest value.
TOLERANCES = {name: 0.03 if name in PRECISIONS else 1e-4 for name in PROGRAMS}


@cache
def _model(name: str, zeros: float) -> nn.Module:
    """Return a model with this fraction of random linear weights set to 0."""
    torch.manual_seed(0)
    model = MODELS[name][0]()
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Linear):
                part.weight *= torch.rand_like(part.weight) >= zeros
    return model.eval()


def _prepared(program: str) -> Callable[..., dict[str, Any]]:
    """Return a function that times calls of a program and compares its result with FP64."""
    if program not in ("gbdnn", "pytorch"):
        for name in (program.removesuffix("_bf16"), "onnxscript"):  # required by the exporter
            import_module(name)
    if program == "openvino_bf16":
        capabilities = (
            import_module("openvino").Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        )
        if "BF16" not in capabilities:
            raise ImportError("the processor has no instructions for bfloat16")

    @cache
    @torch.inference_mode()
    def ready(name: str, zeros: float, tokens: int, nthreads: int) -> tuple[Call, Any, Any]:
        torch.set_num_threads(nthreads)
        model = _model(name, zeros)
        x = torch.randn(tokens, *MODELS[name][1])
        x = x[None] if "encoder" in name else x
        return PROGRAMS[program](model, x), x, deepcopy(model).double()(x.double())

    @torch.inference_mode()
    def run(*, at_least: float, **asked: Any) -> dict[str, Any]:
        call, x, truth = ready(**asked)
        calls, answer = _timed(call, x, at_least)
        error = float((answer - truth).abs().max() / truth.abs().max())
        return {"seconds": median(calls), "calls": calls, "error": error}

    return run


if __name__ == "__main__":
    serve(lambda: _prepared(sys.argv[1]))
