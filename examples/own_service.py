"""Forgetting through a service of your own: all that `unsee` needs is a card and confidences.

Here the service is played by the embedded model; put your API call where `answer` is called.
"""

from __future__ import annotations

import numpy as np

import unsee

backend = unsee.load_model("mini")  # behind your API


class Service:
    """Your side of the border."""

    card = backend.card  # name, fingerprint, token width, mean and std, token limit: published by the provider

    def bind(self, images, class_names):
        """Called once for each set of images: a good moment to upload them."""
        return BoundService(images, class_names)


class BoundService:
    """The service with images and class names at hand."""

    def __init__(self, images, class_names) -> None:
        self.answer = backend.bind(images, class_names)

    def confidences(self, contexts: np.ndarray) -> np.ndarray:
        """(candidates, tokens, width) -> (candidates, images, classes); rows sum to 1."""
        return self.answer.confidences(contexts)

    def zero_shot(self, template: str) -> np.ndarray:
        """(images, classes) under a plain-text prompt, for the table."""
        return self.answer.zero_shot(template)


def main(iterations: int = 40) -> None:
    """Forgets dogs through the service, with at most 16,000 image queries."""
    data = unsee.load_data("demo")
    tuner = unsee.PromptTuner(["dog"], seed=0, iterations=iterations, image_queries=16_000)
    tuner.fit(Service(), data)
    found = tuner.evaluate(data.test)
    print(f"before: H {found.zero_shot.h:.3f}   after: H {found.tuned.h:.3f}")
    print(f"cost: {tuner.ledger_.candidates} candidates, {tuner.ledger_.image_queries} image queries")


if __name__ == "__main__":
    main()
