"""How good a model is, by measures that favour no forgetting method, on photos held out for choosing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.bank import Bank, Labelled, stream
from training.contexts import PLAIN, UNSEEN
from training.fit import Model
from training.tokenizer import EOT, SOS
from training.vocabulary import Vocabulary
from unsee.models.fast.checkpoints import TowerSizes
from unsee.models.fast.clip import text_tower

TEMPLATES = tuple(f"{words} {{}}.".strip() for words in (*PLAIN, *UNSEEN))
SALADS = (
    "seven green ideas sleep {}.",
    "of of the the {}.",
    "quickly under seventeen because {}.",
    "xq zzv brrt {}.",
    "monday tax banana elbow {}.",
    "if and or but not {}.",
)
"""Word salad: what a text tower makes of names behind nonsense."""


class Judged:
    """A model with its text tower as the package runs it, weights rounded as they will be shipped."""

    def __init__(self, model: Model, tokenizer: Tokenizer) -> None:
        sizes = model.tower.sizes
        state = {k: v.detach().half().float() if v.ndim else v.detach() for k, v in model.tower.state_dict().items()}
        self.tower = text_tower(
            state,
            TowerSizes(
                width=sizes.hidden_size,
                layers=sizes.num_hidden_layers,
                heads=sizes.num_attention_heads,
                hidden=sizes.intermediate_size,
                activation="quick_gelu",
                eps=sizes.layer_norm_eps,
            ),
        )
        self.scale = model.tower.logit_scale.exp().item()
        self.tokenizer = tokenizer
        self.sos, self.eot = tokenizer.token_to_id(SOS), tokenizer.token_to_id(EOT)
        self.projection = model.projection

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    @torch.no_grad()
    def texts(self, texts: list[str]) -> Tensor:
        """Unit embeddings of whole texts."""
        limit = self.tower.limit - 2
        return self.tower.encode([[self.sos, *self.ids(t)[:limit], self.eot] for t in texts])


@dataclass(frozen=True)
class Task:
    """Embedded photos of one data set, and the names to tell apart."""

    names: tuple[str, ...]
    photos: Tensor
    labels: Tensor
    forget: Tensor  # (classes,) bool
    shots: int
    contexts: int


TASKS = (("cifar10", 4, 16, 4), ("cifar100", 40, 4, 16), ("cub200", 80, 1, 16), ("imagenet", 400, 1, 16))
"""Data set, classes to forget, shots and contexts: the paper's."""
SPLITS = (6, 3, 1, 0)
"""How many times the held-out photos of each are split for judging; 0: accuracy alone."""


def make_task(
    judged: Judged, bank: Bank, vocabulary: Vocabulary, held: Labelled, forget: int, shots: int, contexts: int
) -> Task:
    """The task of forgetting the first classes, in alphabetical order as the data sets have them."""
    shuffled = stream("halves").permutation(len(held.labels))  # both halves must hold every class
    held = Labelled(held.rows[shuffled], held.labels[shuffled])
    numbers = np.unique(held.labels)
    names = sorted((vocabulary.names[i], i) for i in numbers)
    place = {i: k for k, (_, i) in enumerate(names)}
    labels = torch.tensor([place[i] for i in held.labels.tolist()])
    photos = judged.projection.embed(bank.photos[torch.from_numpy(held.rows)])
    gone = torch.arange(len(names)) < min(forget, len(names) // 2)  # fewer where only some classes were encoded
    return Task(tuple(n for n, _ in names), photos, labels, gone, shots, contexts)


def accuracy(judged: Judged, task: Task, template: str) -> float:
    """Prompted accuracy in percent."""
    texts = judged.texts([template.format(name) for name in task.names])
    return 100 * ((task.photos @ texts.T).argmax(-1) == task.labels).float().mean().item()


def worded_forgetting(judged: Judged, task: Task) -> list[float]:
    """H, Err_for, Acc_mem when plain words deny the classes to forget, all in one context, as far as it fits."""
    denied = [name for name, gone in zip(task.names, task.forget.tolist(), strict=True) if gone][:8]
    context = f"no {', '.join(denied[:-1])} or {denied[-1]}: {{}}."
    texts = judged.texts([context.format(name) for name in task.names])
    return [round(x, 1) for x in harmonic((task.photos @ texts.T).argmax(-1), task.labels, task.forget)]


def forgetting_loss(log_p: Tensor, labels: Tensor, forget: Tensor) -> Tensor:
    """Cross-entropy on memorised photos + cross-entropy to the uniform answer on forgotten ones."""
    gone = forget[labels]
    return -log_p[~gone].gather(-1, labels[~gone][:, None]).mean() - log_p[gone].mean()


def harmonic(answers: Tensor, labels: Tensor, forget: Tensor) -> tuple[float, float, float]:
    """H, Err_for, Acc_mem in percent."""
    right = (answers == labels).float()
    gone = forget[labels]
    error, kept = 100 * (1 - right[gone].mean().item()), 100 * right[~gone].mean().item()
    return 2 * error * kept / max(error + kept, 1e-9), error, kept


def gradient_forgetting(judged: Judged, task: Task, seed: int, latent: int | None, steps: int = 800) -> list[float]:
    """H, Err_for, Acc_mem by gradients on the contexts: in full space, or in a random subspace.

    Full space starts from "a photo of a", with random tokens in front where there are more than four contexts. Shots
    come from the first half of the photos, H from the second half; validation H picks the step.
    """
    rng = stream(seed, "shots")
    half = len(task.labels) // 2
    order = torch.from_numpy(rng.permutation(half))
    train, valid = [], []
    for k in range(len(task.names)):
        rows = order[task.labels[order] == k]
        train.append(rows[: task.shots])
        valid.append(rows[task.shots : 2 * task.shots])
    a, b = torch.cat(train), torch.cat(valid)
    table = judged.tower.tokens
    bound = judged.tower.bind([[*judged.ids(f"{n}."), judged.eot] for n in task.names], judged.sos)
    generator = torch.Generator().manual_seed(seed)
    if latent is None:
        worded = table[judged.ids("a photo of a")]
        others = torch.randn(task.contexts - len(worded), table.shape[1], generator=generator)
        start = torch.cat([table.mean(0) + 0.5 * table.std() * others, worded])
        basis, rate = None, 0.3 * table.std().item()
        z = torch.zeros_like(start, requires_grad=True)
    else:
        basis = table.std() * torch.randn(latent, table.shape[1], generator=generator)
        start, rate = table.mean(0).expand(task.contexts, -1), 0.15
        z = torch.zeros(task.contexts, latent, requires_grad=True)
    optimizer = torch.optim.Adam([z], rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best: tuple[float, float] = (-1.0, 0.0)
    chosen = start
    both = torch.cat([a, b])
    for _ in range(steps):
        contexts = start + (z if basis is None else z @ basis)
        log_p = (judged.scale * task.photos[both] @ bound.embeddings(contexts[None])[0].T).log_softmax(-1)
        loss = forgetting_loss(log_p[: len(a)], task.labels[a], task.forget)
        h = harmonic(log_p[len(a) :].argmax(-1), task.labels[b], task.forget)[0]
        if (h, -loss.item()) > best:
            best, chosen = (h, -loss.item()), contexts.detach()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        answers = (task.photos[half:] @ bound.embeddings(chosen[None])[0].T).argmax(-1)
    return [round(x, 1) for x in harmonic(answers, task.labels[half:], task.forget)]


@torch.no_grad()
def random_contexts(judged: Judged, task: Task, latent: int = 100, draws: int = 100) -> dict[str, float]:
    """Under contexts mean + A z with z ~ N(0, 1), A ~ N(0, s): mean recall, and how far each class's recall moves."""
    table = judged.tower.tokens
    bound = judged.tower.bind([[*judged.ids(f"{n}."), judged.eot] for n in task.names], judged.sos)
    generator = torch.Generator().manual_seed(0)
    photos, labels = task.photos[:2000], task.labels[:2000]
    recalls = []
    for _ in range(draws // 10):
        basis = table.std() * torch.randn(latent, table.shape[1], generator=generator)
        contexts = table.mean(0) + torch.randn(10, 4, latent, generator=generator) @ basis
        answers = (photos @ bound.embeddings(contexts).transpose(1, 2)).argmax(-1)
        right = (answers == labels).float()
        recalls.append(torch.stack([right[:, labels == k].mean(-1) for k in labels.unique()], -1))
    recall = 100 * torch.cat(recalls)
    return {"recall": recall.mean().item(), "scatter": recall.std(0).mean().item()}


def retrieval(judged: Judged, photos: Tensor, captions: list[list[str]]) -> dict[str, float]:
    """R@1 and R@10 in percent: photos to any of their captions, captions to their photo."""
    owner = torch.tensor([i for i, texts in enumerate(captions) for _ in texts])
    texts = judged.texts([text for group in captions for text in group])
    similar = judged.projection.embed(photos) @ texts.T
    found = {}
    for k in (1, 10):
        hit = (owner[similar.topk(min(k, len(texts)), 1).indices] == torch.arange(len(photos))[:, None]).any(1)
        found[f"photo to caption R@{k}"] = 100 * hit.float().mean().item()
        hit = (similar.T.topk(min(k, len(photos)), 1).indices == owner[:, None]).any(1)
        found[f"caption to photo R@{k}"] = 100 * hit.float().mean().item()
    return found


def judge(
    model: Model, tokenizer: Tokenizer, bank: Bank, vocabulary: Vocabulary, splits: tuple[int, ...] = SPLITS
) -> dict[str, object]:
    """All measures of one model on held-out photos. splits: how many of each task of TASKS, 0 for those not given."""
    judged = Judged(model, tokenizer)
    found: dict[str, object] = {"logit scale": round(judged.scale, 2)}
    several = (*splits, *(0 for _ in TASKS[len(splits) :]))
    for (name, forget, shots, contexts), seeds in zip(TASKS, map(range, several), strict=True):
        if name not in bank.held_out:
            continue
        task = make_task(judged, bank, vocabulary, bank.held_out[name], forget, shots, contexts)
        accuracies = [accuracy(judged, task, t) for t in TEMPLATES]
        found[name] = {
            "accuracy": round(accuracies[0], 2),
            "templates": [round(min(accuracies), 2), round(max(accuracies), 2)],
            "salad": [round(accuracy(judged, task, t), 1) for t in SALADS],
            **{k: round(v, 1) for k, v in random_contexts(judged, task).items()},
            "denied in words": worded_forgetting(judged, task),
            "coop": [gradient_forgetting(judged, task, seed, None) for seed in seeds],
            "subspace": [gradient_forgetting(judged, task, seed, 25) for seed in seeds],
        }
    if not len(bank.dev):
        return found
    dev = retrieval(judged, bank.photos[torch.from_numpy(bank.dev)], bank.dev_captions)
    found[bank.dev_name] = {k: round(v, 1) for k, v in dev.items()}
    return found
