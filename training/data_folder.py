"""Lays out the photos of the sources as the package reads them: `data` in the sources, a folder for `--data-dir`.

Nothing is copied that is there already, so any part of it may also be a link to a folder of your own.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from training import photos
from training.clip_bank import load_clip_vocabulary
from training.package_photos import FOLDER
from training.repository import git_folder
from unsee.data.imagenet_six import SAMPLES, VAL

CHECKOUTS = {
    "cifar100": ("cifar100", ("train", "test")),
    "cub200": ("cub200", ("train", "test")),
    "tiny-imagenet": ("tiny-imagenet", ("tiny-imagenet-200",)),
    f"imagenet-six/{VAL}": ("imagenet-val", ("ILSVRC2012_img_val_subset", "imagenet_class_index.json")),
    f"imagenet-six/{SAMPLES}": ("imagenet-samples", (".",)),
}
"""Folder of the package -> source, and what is taken out of it."""
NAMES = "imagenet-six/classnames.txt"


def lay_out(sources: Path) -> list[str]:
    """Make what is missing and can be made; return the names of the folders made."""
    root = sources.resolve() / FOLDER
    root.mkdir(exist_ok=True)
    made = []
    if (sources / "cifar10").exists() and not (root / "cifar10").exists():
        (root / "cifar10").symlink_to((sources / "cifar10").resolve())
        made.append("cifar10")
    for folder, (source, parts) in CHECKOUTS.items():
        if (sources / source).exists() and not (root / folder).exists():
            _check_out(sources / source, parts, root / folder)
            made.append(folder)
    if (root / "imagenet-six").exists() and not (root / NAMES).exists():
        (root / NAMES).write_text("".join(f"{synset} {name}\n" for synset, name in _imagenet_names(sources)))
        made.append(NAMES)
    return made


def _check_out(repository: Path, parts: tuple[str, ...], folder: Path) -> None:
    """Parts of a repository's newest commit, in a folder that appears only when it is whole."""
    begun = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    archive = ["git", "--git-dir", str(git_folder(repository)), "archive", "HEAD", *parts]
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as process:
        subprocess.run(["tar", "-x", "-C", str(begun)], stdin=process.stdout, check=True)
    if process.returncode:
        raise OSError(f"git archive failed on {repository}")
    begun.rename(folder)


def _imagenet_names(sources: Path) -> list[tuple[str, str]]:
    """Synset and name of ImageNet's classes, as training reads them."""
    vocabulary = load_clip_vocabulary(sources)
    names = [vocabulary.names[i].replace(",", "") for i in vocabulary.imagenet]
    return list(zip(photos.imagenet_ids(sources), names, strict=True))
