"""Forgetting on photos of your own, with the embedded model: one folder per class, everyday names.

    python examples/own_photos.py photos apple,banana

Prints which names the model knows, what it takes each class for before and after, and keeps a prompt to deploy.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import unsee


def main(folder: str, forget: str, out: str = "runs/own-photos", **settings: int) -> None:
    """Tunes a prompt that forgets these classes, and shows what it does to each."""
    model = unsee.load_model("mini", cache=unsee.FeatureCache("features"))  # photos are encoded once
    data = unsee.load_data(folder)  # <class>/*.jpg, halved into images to tune on and to test on
    tuner = unsee.PromptTuner(forget.split(","), seed=0, **settings).fit(model, data)

    found = tuner.evaluate(data.test)
    print(f"{len(data.test)} test photos of {len(data.class_names)} classes")
    for label, name in enumerate(data.class_names):
        mine = data.test.labels == label
        now = [data.class_names[i] for i in found.answers_after[mine]]
        most, count = Counter(now).most_common(1)[0] if now else ("-", 0)
        fate = "forget" if name in tuner.prompt.forget else "keep"
        print(
            f"{fate:7}{name:16} known {100 * found.before[label]:3.0f} % -> {100 * found.after[label]:3.0f} %, "
            f"mostly taken for {most} ({count} of {mine.sum()})"
        )
    print(f"H {found.zero_shot.h:.3f} -> {found.tuned.h:.3f}")

    tuner.save(out)
    print(f"prompt: {Path(out) / 'prompt.safetensors'}; use it with: unsee classify {out} PHOTO")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
