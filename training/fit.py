"""The training loop: projection and text tower together, by CLIP's contrastive loss with known truths.

A photo picks its true texts out of all that are false of it, and a text its true photos. Texts that are true of no photo
of the step ("no cat: cat") only stand among the false ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.bank import Bank
from training.batches import Batches, Step
from training.projection import Projection
from training.recipe import Recipe
from training.record import Log
from training.text_tower import TextSizes, TextTower

LARGEST_SCALE = 100.0
WIDTH = 256
"""Of the embeddings where a projection is trained; without one they are as wide as the features."""
EVERY = 50


@dataclass(frozen=True)
class Model:
    """The two trained parts."""

    projection: Projection
    tower: TextTower

    @staticmethod
    def new(recipe: Recipe, components: int, tokens: int) -> Model:
        """Parts with random weights."""
        sizes = TextSizes(
            vocab_size=tokens,
            hidden_size=recipe.width,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.width // 32,
            intermediate_size=4 * recipe.width,
            max_position_embeddings=recipe.positions,
            projection_dim=WIDTH if recipe.hidden else components,
        )
        projection = Projection(components, sizes.projection_dim, recipe.hidden, recipe.dropout)
        return Model(projection, TextTower(sizes, recipe.logit_scale))

    def parameters(self) -> list[nn.Parameter]:
        return [*self.projection.parameters(), *self.tower.parameters()]


def fit(bank: Bank, batches: Batches, recipe: Recipe, seed: int, checkpoint: Path, log: Log) -> Model:
    """The trained model; resumes from the checkpoint if there is one."""
    torch.manual_seed(seed)
    model = Model.new(recipe, bank.photos.shape[1], batches.tokenizer.get_vocab_size())
    model.tower.logit_scale.requires_grad_(not recipe.fixed_scale)
    table = model.tower.table
    matrices = [p for p in model.parameters() if p.ndim > 1 and p is not table]
    others = [p for p in model.parameters() if p.ndim <= 1 or p is table]
    groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, recipe.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: warm_cosine(i, recipe.steps))
    first = _resume(model, optimizer, schedule, checkpoint)
    model.projection.train()
    for number in range(first, recipe.steps):
        torch.manual_seed(seed * 1_000_003 + number)  # dropout of a resumed run is that of an unbroken one
        weight = recipe.context_weight if number >= recipe.context_start else 0.0
        losses = step_losses(model, bank, batches.draw(number), weight)
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            model.tower.logit_scale.clamp_(max=math.log(LARGEST_SCALE))
        if number % EVERY == EVERY - 1 or number + 1 == recipe.steps:
            scale = model.tower.logit_scale.exp().item()
            log.write("fit", step=number + 1, scale=scale, **{k: v.item() for k, v in losses.items()})
            _save(model, optimizer, schedule, number + 1, checkpoint)
    model.projection.eval()
    return model


def warm_cosine(step: int, steps: int, warm: float = 0.06) -> float:
    """Share of the full rate: a short linear rise, then half a cosine down to nearly nothing."""
    rise = max(1, int(warm * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise))) + 1e-3


def step_losses(model: Model, bank: Bank, step: Step, context_weight: float) -> dict[str, Tensor]:
    """The losses of one step."""
    scale = model.tower.logit_scale.exp()
    n = len(step.photos)
    embedded = model.projection(bank.photos[torch.cat([step.photos, step.captioned])])
    photos, captioned = embedded[:n], embedded[n:]
    stems, past = model.tower.read(step.stems)
    texts = [stems[step.contexts : len(stems) - len(captioned)]]
    if step.suffixes is not None:
        c = step.contexts
        before = step.stems.lengths[:c]
        past = [(k[:c, :, : int(before.max())], v[:c, :, : int(before.max())]) for k, v in past]
        texts.insert(0, model.tower.read_behind(step.suffixes, step.owner, before, past))
    losses = {}
    if len(captioned):
        logits = scale * captioned @ stems[len(stems) - len(captioned) :].T
        same = torch.arange(len(captioned))
        losses["captions"] = (F.cross_entropy(logits, same) + F.cross_entropy(logits.T, same)) / 2
    if n:
        logits = scale * photos @ torch.cat(texts).T
        losses["photos"] = contrast(logits, step.true, step.false)
        told = step.ruled_out.any(1)
        if context_weight and told.any():
            losses["contexts"] = context_weight * contrast(logits[told], step.true[told], step.ruled_out[told])
        losses["texts"] = contrast(logits.T, step.true.T, step.false.T)
    return losses


def contrast(logits: Tensor, true: Tensor, false: Tensor) -> Tensor:
    """Mean over rows of: how well each true column is told from all false ones."""
    wrong = logits.masked_fill(~false, float("-inf")).logsumexp(1, keepdim=True)
    each = F.softplus(wrong - logits).masked_fill(~true, 0.0)
    counts = true.sum(1)
    return (each.sum(1) / counts.clamp(min=1))[counts > 0].mean()


def _resume(
    model: Model,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
    checkpoint: Path,
) -> int:
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, weights_only=True)
    model.tower.load_state_dict(state["tower"])
    model.projection.load_state_dict(state["projection"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    return int(state["step"])


def _save(
    model: Model,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
    step: int,
    checkpoint: Path,
) -> None:
    part = checkpoint.with_suffix(".part")
    torch.save(
        {
            "step": step,
            "tower": model.tower.state_dict(),
            "projection": model.projection.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
        },
        part,
    )
    part.rename(checkpoint)
