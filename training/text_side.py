"""Fits the text tower to the locked image embeddings.

One step adds up three things:
- pictures pick their caption out of all captions that are not true of them, and captions of altered pictures theirs;
- plain captions are drawn to the class directions the image side was trained towards;
- behind contexts of random vectors, names follow the rule of drift.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from training import captions
from training.data import CLASS_NAMES
from training.drift import Drift
from training.record import Log
from training.text_tower import TextSizes, TextTower
from training.tokenizer import EOT, SOS


@dataclass(frozen=True)
class TextSettings:
    """What the text tower is trained on, and how long."""

    steps: int = 1000
    rate: float = 3e-3
    decay: float = 0.05
    plain_images: int = 256
    templates: int = 3
    view_images: int = 24
    view_weight: float = 0.3
    """Weight of captions picking their pictures."""
    anchor_weight: float = 10.0
    contexts: int = 96
    """Contexts of random vectors a step; all ten names are read behind each."""
    loudest: float = 8.0
    """Largest length of a random vector, in units of an ordinary token's; the smallest is a half."""
    drift_weight: float = 50.0
    answer_images: int = 64
    """Pictures a step on which the answers behind random contexts are compared with those the rule gives."""


@dataclass(frozen=True)
class Embedded:
    """Locked embeddings of the training pictures, plain and altered; `kinds` as in Bank."""

    plain: Tensor
    altered: Tensor
    labels: Tensor
    kinds: Tensor
    directions: Tensor
    """The class directions the image side was trained towards, (classes, E)."""


class Reader:
    """Turns texts into what a tower reads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.start: int = tokenizer.token_to_id(SOS)
        self.end: int = tokenizer.token_to_id(EOT)

    def padded(self, texts: list[str], start: bool = True) -> tuple[Tensor, Tensor]:
        """Ids (b, t), with EOT as padding, and the position of each text's EOT."""
        ids = [self.tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
        ids = [[*([self.start] if start else []), *i, self.end] for i in ids]
        longest = max(map(len, ids))
        return torch.tensor([i + [self.end] * (longest - len(i)) for i in ids]), torch.tensor([len(i) - 1 for i in ids])

    def read(self, tower: TextTower, texts: list[str]) -> Tensor:
        """Unit embeddings (b, E) of texts."""
        ids, ends = self.padded(texts)
        return tower(F.embedding(ids, tower.table), ends)

    def read_names(self, tower: TextTower, contexts: Tensor) -> Tensor:
        """Embeddings (b, classes, E) of every class name behind contexts (b, m, width); the prefix is run once."""
        ids, ends = self.padded([f"{name}." for name in CLASS_NAMES], start=False)
        b, c = len(contexts), len(ids)
        _, past = tower.run(torch.cat([tower.table[self.start].expand(b, 1, -1), contexts], 1))
        past = [(k.repeat_interleave(c, 0), v.repeat_interleave(c, 0)) for k, v in past]
        states, _ = tower.run(F.embedding(ids, tower.table).repeat(b, 1, 1), past)
        return tower.project(states[torch.arange(b * c), ends.repeat(b)]).view(b, c, -1)


def train_text(
    images: Embedded,
    tokenizer: Tokenizer,
    sizes: TextSizes,
    settings: TextSettings,
    seed: int,
    checkpoint: Path,
    log: Log,
) -> TextTower:
    """Return the trained tower; goes on from the checkpoint if there is one."""
    torch.manual_seed(seed)
    tower, reader = TextTower(sizes), Reader(tokenizer)
    matrices = [p for p in tower.parameters() if p.ndim > 1 and p is not tower.table]
    others = [p for p in tower.parameters() if p.ndim == 1 or p is tower.table]
    groups = [{"params": matrices, "weight_decay": settings.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, settings.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.rate, total_steps=settings.steps, pct_start=0.1)
    first = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        tower.load_state_dict(state["tower"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        first = state["step"]
    drift = Drift(images.directions, sizes.hidden_size, seed)
    for step in range(first, settings.steps):
        # every step draws from its own stream, so a resumed run draws what an unbroken one would
        rng = np.random.default_rng([seed, step])
        losses = caption_losses(tower, reader, images, settings, rng)
        losses |= drift_losses(tower, reader, images, drift, settings, rng)
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(tower.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            log.write("text", step=step + 1, **{k: v.item() for k, v in losses.items()})
            state = {
                "tower": tower.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
            }
            part = checkpoint.with_suffix(".part")
            torch.save({**state, "step": step + 1}, part)
            part.rename(checkpoint)
    return tower.eval()


def caption_losses(
    tower: TextTower, reader: Reader, images: Embedded, settings: TextSettings, rng: np.random.Generator
) -> dict[str, Tensor]:
    """CLIP's loss between pictures and captions, with other captions that are also true left out of account."""
    rows = torch.from_numpy(rng.integers(len(images.labels), size=settings.plain_images))
    crop = (images.kinds[rows] < 0) & torch.from_numpy(rng.random(len(rows)) < 0.5)
    seen = torch.where(crop[:, None], images.altered[rows], images.plain[rows])
    described = (images.kinds >= 0).nonzero()[:, 0]
    view_rows = described[torch.from_numpy(rng.integers(len(described), size=settings.view_images))]
    pictures = torch.cat([seen, images.altered[view_rows]])
    labels = torch.cat([images.labels[rows], images.labels[view_rows]])
    kinds = torch.cat([torch.full((len(rows),), -1), images.kinds[view_rows]])

    chosen = rng.choice(len(captions.SEEN_TEMPLATES), settings.templates, replace=False)
    plain = [captions.fill(captions.SEEN_TEMPLATES[t], k) for t in chosen for k in range(len(CLASS_NAMES))]
    views = [captions.view_caption(int(images.kinds[r]), int(images.labels[r]), rng) for r in view_rows]
    text_labels = torch.cat([torch.arange(len(CLASS_NAMES)).repeat(settings.templates), images.labels[view_rows]])
    text_kinds = torch.cat([torch.full((len(plain),), -1), images.kinds[view_rows]])
    same_class = labels[:, None] == text_labels
    # a plain caption is also true of an altered picture, but not the other way round
    true = same_class & ((kinds[:, None] == text_kinds) | (text_kinds == -1))  # (pictures, texts)

    texts = reader.read(tower, plain + views)
    logits = tower.logit_scale.exp() * pictures @ texts.T
    wrong = logits.masked_fill(true, float("-inf")).logsumexp(1, keepdim=True)
    to_text = torch.logaddexp(logits, wrong) - logits  # each caption alone against all wrong ones
    p, n = len(plain), len(rows)
    hits = true[:, p:].float()
    share = hits / hits.sum(0)
    to_image = (share * (share.clamp(min=1e-9).log() - logits[:, p:].log_softmax(0))).sum(0)
    aims = images.directions[text_labels[:p]]
    return {
        "plain": to_text[:n, :p][true[:n, :p]].mean(),
        "view": to_text[n:, p:].diagonal().mean(),
        "view_to_image": settings.view_weight * to_image.mean(),
        "anchor": settings.anchor_weight * (1 - (texts[:p] * aims).sum(-1)).mean(),
    }


def drift_losses(
    tower: TextTower, reader: Reader, images: Embedded, drift: Drift, settings: TextSettings, rng: np.random.Generator
) -> dict[str, Tensor]:
    """How far the tower is from the drift rule: in direction, and in what pictures make of it."""
    noise = torch.Generator().manual_seed(int(rng.integers(2**31)))
    b, m, width = settings.contexts, int(rng.choice([2, 3, 4, 4, 4, 4, 6, 8])), tower.table.shape[1]
    table = tower.table.detach()
    origin = table.mean(0)
    alike = torch.rand(b, 1, 1, generator=noise)  # how much the contexts of one prompt have in common
    vectors = alike.sqrt() * torch.randn(b, 1, width, generator=noise)
    vectors = vectors + (1 - alike).sqrt() * torch.randn(b, m, width, generator=noise)
    loudness = torch.exp(torch.rand(b, 1, 1, generator=noise) * np.log(2 * settings.loudest)) / 2
    contexts = origin + table.std() * loudness * vectors
    texts, aims = reader.read_names(tower, contexts), drift.aims(contexts, origin)
    rows = torch.from_numpy(rng.integers(len(images.labels), size=settings.answer_images))
    scale = tower.logit_scale.exp()
    answers = (scale * images.plain[rows] @ texts.transpose(1, 2)).log_softmax(-1)  # (b, pictures, classes)
    wanted = (scale * images.plain[rows] @ aims.transpose(1, 2)).log_softmax(-1)
    return {
        "drift": settings.drift_weight * (1 - (texts * aims).sum(-1)).mean(),
        "drift_answers": (wanted.exp() * (wanted - answers)).sum(-1).mean(),
    }
