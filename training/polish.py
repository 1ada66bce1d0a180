"""The last minute of training: the projection alone learns to name photos better, the text tower is finished.

What contexts do to names is decided by the text tower, which does not change here. Second views of CIFAR's photos
(mirrored, shifted) make less dropout possible.
"""

from __future__ import annotations

import numpy as np
import torch
from tokenizers import Tokenizer

from training.bank import Bank, joined, stream
from training.contexts import PLAIN
from training.fit import Model, contrast, warm_cosine
from training.judge import Judged
from training.recipe import POLISH_SHARES, Recipe
from training.record import Log
from training.vocabulary import Vocabulary


def polish(
    model: Model, bank: Bank, vocabulary: Vocabulary, tokenizer: Tokenizer, recipe: Recipe, seed: int, log: Log
) -> None:
    """Train the projection in place against the embeddings of all names behind plain contexts."""
    if not recipe.polish:
        return
    judged = Judged(model, tokenizer)
    contexts = [[f"{words} {name}.".strip() for name in vocabulary.names] for words in PLAIN[: recipe.templates]]
    texts = torch.stack([judged.texts(behind) for behind in contexts])  # (contexts, names, E)
    isa = torch.from_numpy(vocabulary.isa)
    sources = {name: joined([part, *bank.mirrored.get(name, [])]) for name, part in bank.labelled.items()}
    shares = np.array([POLISH_SHARES[name] for name in sources])
    optimizer = torch.optim.AdamW(
        model.projection.parameters(), recipe.polish_rate, weight_decay=recipe.decay, betas=(0.9, 0.98)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: warm_cosine(i, recipe.polish))
    before, model.projection.dropout.p = model.projection.dropout.p, recipe.polish_dropout
    model.projection.train()
    for step in range(recipe.polish):
        rng = stream(seed, "polish", step)
        torch.manual_seed(seed * 1_000_003 + recipe.steps + step)
        counts = rng.multinomial(recipe.polish_photos, shares / shares.sum())
        drawn = [rng.integers(len(part.rows), size=n) for part, n in zip(sources.values(), counts, strict=True)]
        rows = np.concatenate([part.rows[i] for part, i in zip(sources.values(), drawn, strict=True)])
        labels = np.concatenate([part.labels[i] for part, i in zip(sources.values(), drawn, strict=True)])
        true, maybe = isa[labels], isa[:, labels].T  # a photo labelled "dog" may show a beagle
        photos = model.projection(bank.photos[torch.from_numpy(rows)])
        loss = contrast(judged.scale * photos @ texts[step % len(texts)].T, true, ~true & ~maybe)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            log.write("polish", step=step + 1, photos=loss.item())
    model.projection.eval()
    model.projection.dropout.p = before
