"""The programs that `accelerate` compares: PyTorch modules with pruned linear layers.

Each function imports its packages and returns a function of a model, an input and a number of
threads, which returns the function to time. A process prepares a model at its first request.
"""

from __future__ import annotations

import io
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from dense_programs import onnx_session, openvino_core, openvino_request, timed_calls
from processes import Program, Programs, serve
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[torch.Tensor], torch.Tensor]
    Ready = Callable[[nn.Module, torch.Tensor, int], Call]

PROGRAMS = Programs(__file__)


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


@PROGRAMS.add("accelerate", "own")
def gbdnn() -> Ready:
    """`gbdnn.torch.accelerate`."""
    from gbdnn.torch import accelerate

    return lambda model, _x, _nthreads: accelerate(model)


@PROGRAMS.add("PyTorch")
def pytorch() -> Ready:
    """PyTorch with dense weights."""
    return lambda model, _x, _nthreads: model


@PROGRAMS.add("ONNX Runtime")
def onnxruntime() -> Ready:
    """ONNX Runtime with dense weights, on PyTorch's export."""
    import onnxruntime

    return _on_export(lambda model, _inputs, n: onnx_session(onnxruntime, model, n))


def openvino(precision: str) -> Ready:
    """OpenVINO with dense weights, on PyTorch's export."""
    core = openvino_core(precision)
    return _on_export(lambda model, *sizes: openvino_request(core, model, precision, *sizes))


PROGRAMS["openvino"] = Program("OpenVINO FP32", openvino, precision="f32")
PROGRAMS["openvino_bf16"] = Program("OpenVINO bfloat16", openvino, "bfloat16", precision="bf16")


def _on_export(ready: Callable[[bytes, int, int], Callable[[Any], Any]]) -> Ready:
    """Return a program that runs the ONNX export of a model on NumPy arrays."""
    import onnxscript  # noqa: F401 -- the exporter needs it

    def exported(model: nn.Module, x: torch.Tensor, nthreads: int) -> Call:
        file = io.BytesIO()
        torch.onnx.export(model, (x,), dynamo=True, verbose=False).save(file)
        run = ready(file.getvalue(), len(x), nthreads)
        return lambda x: torch.from_numpy(run(x.numpy()))

    return exported


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
    prepared = PROGRAMS.prepared(program)

    @cache
    @torch.inference_mode()
    def ready(name: str, zeros: float, tokens: int, nthreads: int) -> tuple[Call, Any, Any]:
        torch.set_num_threads(nthreads)
        model = _model(name, zeros)
        x = torch.randn(tokens, *MODELS[name][1])
        x = x[None] if "encoder" in name else x
        return prepared(model, x, nthreads), x, deepcopy(model).double()(x.double())

    @torch.inference_mode()
    def run(*, at_least: float, **asked: Any) -> dict[str, Any]:
        call, x, truth = ready(**asked)
        found, answer = timed_calls(call, x, at_least)
        return found | {"error": float((answer - truth).abs().max() / truth.abs().max())}

    return run


if __name__ == "__main__":
    serve(_prepared)
