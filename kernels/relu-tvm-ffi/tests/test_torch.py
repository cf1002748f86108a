"""PyTorch's tensors beyond the kit's cases: autograd, special views, and the layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_ci.testing.kit import not_covered

pytestmark = [pytest.mark.kernels_ci, pytest.mark.needs("torch")]

dtypes = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])


@pytest.fixture(scope="module")
def torch(kernel: Any, kit_device: Any) -> Any:
    import torch

    if kit_device.torch is None:
        not_covered(f"PyTorch knows no {kit_device.backend} device")
    with torch.device(kit_device.torch):
        x = torch.ones(1)
        kernel.relu(x, out=x)  # From the second call on, plain tensors go a shorter way.
        yield torch


def test_channels_last(kernel: Any, torch: Any) -> None:
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    with pytest.raises(ValueError, match=r"relu: `x` has shape .* needs to be contiguous"):
        kernel.relu(x)
    with pytest.raises(ValueError, match=r"relu: `out` has shape .* needs to be contiguous"):
        kernel.relu(torch.zeros(x.shape), out=x)


def test_gradients(kernel: Any, torch: Any) -> None:
    x = torch.randn(5, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"relu: `x` requires grad.*no backward pass"):
        kernel.relu(x)
    with pytest.raises(RuntimeError, match="relu: `x` requires grad"):
        kernel.relu(x, out=torch.empty(5))
    with pytest.raises(RuntimeError, match="relu: `out` requires grad"):
        kernel.relu(x.detach(), out=x)
    wanted = torch.relu(x.detach())
    assert torch.equal(kernel.relu(x.detach()), wanted)
    with torch.no_grad():
        assert torch.equal(kernel.relu(x), wanted)
    with torch.inference_mode():
        assert torch.equal(kernel.relu(x), wanted)
        y = torch.randn(5)
        kernel.relu(y, out=y)
        assert (y >= 0).all()


def test_autograd_notices_what_was_overwritten(kernel: Any, torch: Any) -> None:
    weight = torch.randn(5, requires_grad=True)
    x = torch.randn(5)
    product = (weight * x).sum()
    kernel.relu(x, out=x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_negated_views(kernel: Any, torch: Any) -> None:
    # A view that says "negate this when read"; DLPack cannot.
    x = torch.tensor([1 + 2j]).conj().imag
    assert x.is_neg()
    with pytest.raises(ValueError, match="relu: `x` is a negated view"):
        kernel.relu(x)
    with pytest.raises(ValueError, match="relu: `x` is a negated view"):
        kernel.relu(x, out=torch.empty(1))
    with pytest.raises(ValueError, match="relu: `out` is a negated view"):
        kernel.relu(torch.empty(1), out=x)
    assert kernel.relu(x.resolve_neg()).item() == 0


@dtypes
def test_the_layer(kernel: Any, torch: Any, dtype: str) -> None:
    x = torch.linspace(-1, 1, 72).reshape(8, 9).to(getattr(torch, dtype))
    layer = kernel.layers.ReLU()
    assert torch.equal(layer(x), torch.relu(x))
    assert layer.has_backward is False
    assert layer.can_torch_compile is False


@pytest.mark.parametrize("inplace", [False, True])
def test_the_layer_in_place_of_another(kernel: Any, torch: Any, inplace: bool) -> None:
    import kernels

    @kernels.use_kernel_forward_from_hub("ReLU")
    class ReLU(torch.nn.ReLU):
        pass

    repository = kernels.LocalLayerRepository(Path(kernel.__file__).parent, layer_name="ReLU")
    model = torch.nn.Sequential(ReLU(inplace=inplace))
    with kernels.use_kernel_mapping({"ReLU": {"cpu": repository}}, inherit_mapping=False):
        model = kernels.kernelize(
            model, mode=kernels.Mode.INFERENCE, device="cpu", use_fallback=False
        )
    assert model[0].forward.__func__ is kernel.layers.ReLU.forward
    x = torch.linspace(-1, 1, 10)
    wanted = torch.relu(x)
    result = model(x)
    assert torch.equal(result, wanted)
    assert (result is x) == inplace
