"""The image tower of OpenAI's ResNet CLIPs (RN50 … RN50x64): a ResNet with three stem convolutions, average pooling
before every stride, and attention instead of the last pooling.

Parameters have OpenAI's names, so that a file's weights load as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unsee.errors import ModelError
from unsee.models.fast.checkpoint_record import Checkpoint
from unsee.models.fast.vision import PixelTower
from unsee.models.fast.weights import Weights

EXPANSION = 4  # how much wider a block's output is than its inside


class Block(nn.Module):
    """A bottleneck block; a stride is average pooling before the last convolution."""

    def __init__(self, wide: int, inside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(wide, inside, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inside)
        self.conv2 = nn.Conv2d(inside, inside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inside)
        self.conv3 = nn.Conv2d(inside, inside * EXPANSION, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(inside * EXPANSION)
        self.stride = stride
        self.downsample: nn.ModuleDict | None = None
        if stride > 1 or wide != inside * EXPANSION:
            conv = nn.Conv2d(wide, inside * EXPANSION, 1, bias=False)
            self.downsample = nn.ModuleDict({"0": conv, "1": nn.BatchNorm2d(inside * EXPANSION)})

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(self._pooled(y)))
        if self.downsample is not None:
            x = self.downsample["1"](self.downsample["0"](self._pooled(x)))
        return F.relu(y + x)

    def _pooled(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.stride) if self.stride > 1 else x


class AttentionPool(nn.Module):
    """The mean of all positions looks at them all and at itself."""

    def __init__(self, positions: int, wide: int, heads: int, out: int) -> None:
        super().__init__()
        self.positional_embedding = nn.Parameter(torch.empty(positions, wide))
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(wide, wide) for _ in range(3))
        self.c_proj = nn.Linear(wide, out)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)  # (n, positions, wide)
        x = torch.cat([x.mean(dim=1, keepdim=True), x], dim=1) + self.positional_embedding

        def apart(y: Tensor) -> Tensor:
            return y.view(len(y), -1, self.heads, y.shape[-1] // self.heads).transpose(1, 2)

        q, k, v = apart(self.q_proj(x[:, :1])), apart(self.k_proj(x)), apart(self.v_proj(x))
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        found: Tensor = self.c_proj(seen[:, 0])
        return found


class ResNet(nn.Module):
    """Pixels (n, 3, side, side) in, embeddings (n, E) out."""

    def __init__(self, width: int, depths: Sequence[int], heads: int, positions: int, out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width // 2, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width // 2)
        self.conv2 = nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width // 2)
        self.conv3 = nn.Conv2d(width // 2, width, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)
        wide = width
        for number, depth in enumerate(depths):
            inside, blocks = width * 2**number, []
            for i in range(depth):
                blocks.append(Block(wide, inside, 2 if number and not i else 1))
                wide = inside * EXPANSION
            self.add_module(f"layer{number + 1}", nn.Sequential(*blocks))
        self.stages = len(depths)
        self.attnpool = AttentionPool(positions, wide, heads, out)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(1, 4):
            x = F.relu(self.get_submodule(f"bn{i}")(self.get_submodule(f"conv{i}")(x)))
        x = F.avg_pool2d(x, 2)
        for i in range(self.stages):
            x = self.get_submodule(f"layer{i + 1}")(x)
        found: Tensor = self.attnpool(x)
        return found


def depths_of(state: Weights) -> tuple[int, ...]:
    """How many blocks each of the four stages has, by the weights' names."""
    stages = (f"visual.layer{number}." for number in range(1, 5))
    return tuple(len({key.split(".")[2] for key in state if key.startswith(stage)}) for stage in stages)


class ResNetEncoder(PixelTower):
    """The image tower of a ResNet checkpoint."""

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        assert checkpoint.resnet is not None  # the caller chose by it
        weights, sizes = checkpoint.resnet, checkpoint.vision
        depths = depths_of({f"visual.{key}": value for key, value in weights.items()})
        positions = (checkpoint.image // checkpoint.patch) ** 2 + 1
        with torch.device("meta"):
            model = ResNet(sizes.width, depths, sizes.heads, positions, checkpoint.embedding)
        try:
            model.load_state_dict(weights, assign=True)
        except RuntimeError as error:  # weights that are missing, too many, or of a wrong shape, on many lines
            reason = str(error).splitlines()[-1].strip()
            raise ModelError(f"{checkpoint.source}: not a ResNet CLIP: {reason[:200]}") from None
        ready = model.to(device=device, dtype=dtype).eval().requires_grad_(False)
        super().__init__(ready, checkpoint.preprocess, f"{sizes}|resnet", weights, device, dtype)
