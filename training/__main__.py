"""From raw public files to the shipped folder: `python -m training --help`."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from training.card import write_card
from training.cost import costs
from training.data_folder import lay_out
from training.demo import cut_demo
from training.encoders import ENCODERS
from training.export import difference_from_transformers, export
from training.judge import SPLITS
from training.measure import measure, measure_package
from training.nearness import near, recognised
from training.recipe import Recipe, variants
from training.record import Log
from training.stages import Stages
from training.summary import summary
from training.tower_file import TOWERS, pack, pack_text, unpack, unpack_text
from unsee.models.features import FeatureCache


def main() -> None:
    """Run one command; work that is already done in the work folder is not done again."""
    options = parse()
    torch.set_num_threads(options.threads)
    stages = Stages(options.sources, options.work, options.threads, ENCODERS[options.encoder])
    options.name = options.name or ("seed" if options.encoder == "lite1" else options.encoder)
    COMMANDS[options.command](stages, options)


def features(stages: Stages, options: argparse.Namespace) -> None:
    """Encode all photos; a stopped run resumes."""
    stages.work.mkdir(parents=True, exist_ok=True)
    shared = FeatureCache(options.cache_dir) if options.cache_dir else None
    log = Log(stages.work / f"features{stages.encoder.work}.jsonl")
    stages.extract(log, options.limit, options.workers, shared, not options.without_tests)


def data(stages: Stages, options: argparse.Namespace) -> None:
    """Lay out the photos of the sources as the package reads them."""
    for made in lay_out(stages.sources):
        print(made)


def train(stages: Stages, options: argparse.Namespace) -> None:
    """Train the encoder's recipe and write the model folder."""
    if not options.as_cached:
        features(stages, options)
    whole = stages.encoder.recipe
    recipe = changed(replace(whole, steps=options.steps or whole.steps), options.set)
    name = f"{options.name}-{options.seed}"
    log = Log(stages.work / f"{name}.jsonl")
    judged = options.limit is None and not options.only_accuracy  # few photos have nothing to say about forgetting
    splits = SPLITS if judged else ()
    model, verdict = stages.train(recipe, options.seed, name, log, splits)
    folder = options.out / name
    export(folder, model, stages.tokenizer, stages.bank, recipe, options.seed, stages.encoder, stages.sources)
    bank, _ = stages.material(recipe)
    counts = {name: len(part.rows) for name, part in bank.labelled.items()} | {"captioned": len(bank.captioned)}
    without = {"without": recipe.without} if recipe.without else {}
    write_card(folder, stages.encoder.card, photos_trained_on=counts, held_out=verdict, **without)
    texts = ["a photo of a cat.", "no dog or ship: bus.", "a dark photo of two people on a beach."]
    log.write("exported", difference_from_transformers=difference_from_transformers(folder, texts))


def ablation(stages: Stages, options: argparse.Namespace) -> None:
    """Train every variant at the same number of steps."""
    for name, recipe in variants(options.steps or 400).items():
        if options.only and name not in options.only:
            continue
        key = f"ablation-{name.replace(',', '').replace(' ', '-')}"
        stages.train(recipe, options.seed, key, Log(stages.work / f"{key}.jsonl"), splits=(2, 1))
    print(summary(stages.work))


def test(stages: Stages, options: argparse.Namespace) -> None:
    """Measure a written folder on the test sets, once, and add it to its card."""
    folder = options.out / f"{options.name}-{options.seed}"
    if stages.encoder.name == "lite1":
        found = measure(folder, stages.sources, options.cache_dir)
    else:
        found = measure_package(folder, stages.sources, options.cache_dir, options.limit)
        print(json.dumps(found, indent=2))
    write_card(folder, stages.encoder.card, test=found)


def nearness(stages: Stages, options: argparse.Namespace) -> None:
    """Compare a written folder's text vectors with CLIP's own and add it to its card (see nearness.py)."""
    folder = options.out / f"{options.name}-{options.seed}"
    found = near(folder, stages.sources, options.cache_dir, options.limit)
    print(json.dumps(found, indent=2))
    write_card(folder, stages.encoder.card, nearness=found)


def recognise(stages: Stages, options: argparse.Namespace) -> None:
    """Check CLIP's image tower and our preprocessing by CLIP's own text vectors (see nearness.py)."""
    encode = stages.encoder.open(stages.sources, stages.cache, options.threads)
    began = time.process_time()
    right, photos = recognised(stages.sources, lambda i: encode(stages.encoder.prepare(i)[None])[0])
    print(
        f"{right} of {photos} photos recognised; {(time.process_time() - began) / photos:.3f} s of processor time a photo"
    )


def cost(stages: Stages, options: argparse.Namespace) -> None:
    """Measure what a photo, a training step and a candidate cost here (for clip-b16)."""
    for line in costs(stages):
        print(line, flush=True)


def table(stages: Stages, options: argparse.Namespace) -> None:
    """Print a Markdown table of everything judged so far."""
    print(summary(stages.work))


def demo(stages: Stages, options: argparse.Namespace) -> None:
    """Cut the demo's pictures out of CIFAR-10."""
    cut_demo(stages.sources / "cifar10", options.out / "demo")


def keep(stages: Stages, options: argparse.Namespace) -> None:
    """Keep a written folder as one small file in `towers/`."""
    name = f"{options.name}-{options.seed}"
    packing = pack if stages.encoder.name == "lite1" else pack_text
    packing(options.out / name, TOWERS / f"{name}.safetensors")


def restore(stages: Stages, options: argparse.Namespace) -> None:
    """Write the folder of a tower that is kept in `towers/`."""
    name = f"{options.name}-{options.seed}"
    if stages.encoder.name == "lite1":
        unpack(TOWERS / f"{name}.safetensors", options.out / name)
    else:
        unpack_text(TOWERS / f"{name}.safetensors", options.out / name, stages.sources)


def changed(recipe: Recipe, settings: list[str]) -> Recipe:
    """The recipe with some of its numbers set anew, from KEY=VALUE texts."""
    for setting in settings:
        key, _, value = setting.partition("=")
        kind = type(getattr(recipe, key))
        if kind not in (int, float, str):
            raise ValueError(f"{key} cannot be set; edit recipe.py")
        recipe = replace(recipe, **{key: kind(value)})
    return recipe


COMMANDS = {
    "data": data,
    "features": features,
    "train": train,
    "ablation": ablation,
    "test": test,
    "nearness": nearness,
    "recognise": recognise,
    "cost": cost,
    "table": table,
    "keep": keep,
    "restore": restore,
    "demo": demo,
}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("command", choices=COMMANDS, help="; ".join(f"{k}: {v.__doc__}" for k, v in COMMANDS.items()))
    parser.add_argument(
        "--sources", type=Path, default=Path("sources"), help="folder with the raw sets (see README.md)"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("work"), help="caches, checkpoints, logs; a second run resumes"
    )
    parser.add_argument("--out", type=Path, default=Path("export"), help="where the model folder goes")
    parser.add_argument("--encoder", choices=ENCODERS, default="lite1", help="the frozen image encoder")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N photos of each set, for a quick trial")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="instead of the recipe's own number")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a field of the recipe")
    parser.add_argument(
        "--name", help="what the model's files are called, before the seed (default: seed, or the encoder)"
    )
    parser.add_argument("--only", action="append", help="a variant of the ablation; may be repeated")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that encode; each has --threads")
    parser.add_argument("--without-tests", action="store_true", help="encode only the photos that training reads")
    parser.add_argument("--only-accuracy", action="store_true", help="judge by accuracy alone: forgetting takes longer")
    parser.add_argument("--as-cached", action="store_true", help="train on the features that are there already")
    parser.add_argument("--cache-dir", type=Path, help="feature cache of the package, shared with `unsee compare`")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
