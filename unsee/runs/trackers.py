"""Ready callbacks that send a run to an experiment tracker: TensorBoard, MLflow, Weights & Biases.

Each imports its library when it is made, and names the install line if it is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from unsee.errors import InputError, MissingExtra, unknown
from unsee.runs.callbacks import Callback
from unsee.runs.records import ConfigRecord, ResultRecord
from unsee.settings import Settings
from unsee.types import Generation

PROJECT = "unsee"  # the experiment or project that runs are put into unless another is named


class TensorBoard:
    """Writes event files into a folder; see them with: tensorboard --logdir FOLDER."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("tensorboard", "tensorboard") from None
        self.folder = Path(folder)
        self._make: Callable[[str], Any] = SummaryWriter
        self._writer: Any = None
        self._parameters: dict[str, str] = {}

    def on_start(self, config: ConfigRecord) -> None:
        self._parameters = run_parameters(config)

    def on_generation(self, generation: Generation, settings: Settings) -> None:
        if self._writer is None:  # now and not at the start: a run that fails before leaves no folder behind
            self._writer = self._make(str(self.folder))
            rows = "".join(f"| {name} | {value} |\n" for name, value in self._parameters.items())
            self._writer.add_text("settings", f"| name | value |\n|---|---|\n{rows}")
        for name, value in generation_metrics(generation).items():
            self._writer.add_scalar(name, value, generation.number)

    def on_end(self, result: ResultRecord | None, error: BaseException | None) -> None:
        if self._writer is None:
            return
        for name, value in result_metrics(result).items():
            self._writer.add_scalar(name, value)
        self._writer.close()
        self._writer = None


class MLflow:
    """Makes a run in an MLflow experiment; uri is where, by default as MLflow's own settings have it."""

    def __init__(self, experiment: str = PROJECT, *, uri: str | None = None, name: str | None = None) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise MissingExtra("mlflow", "mlflow") from None
        # A client, not mlflow.start_run: that one is global, and would end a run that the caller has begun.
        self._client: Any = MlflowClient(tracking_uri=uri)
        self.experiment, self.name = experiment, name
        self.run_id: str | None = None

    def on_start(self, config: ConfigRecord) -> None:
        known = self._client.get_experiment_by_name(self.experiment)
        place = self._client.create_experiment(self.experiment) if known is None else known.experiment_id
        self.run_id = self._client.create_run(place, run_name=self.name or run_title(config)).info.run_id
        for name, value in run_parameters(config).items():
            self._client.log_param(self.run_id, name, value)

    def on_generation(self, generation: Generation, settings: Settings) -> None:
        for name, value in generation_metrics(generation).items():
            self._client.log_metric(self.run_id, name, value, step=generation.number)

    def on_end(self, result: ResultRecord | None, error: BaseException | None) -> None:
        if self.run_id is None:
            return
        for name, value in result_metrics(result).items():
            self._client.log_metric(self.run_id, name, value)
        self._client.set_terminated(self.run_id, status="FINISHED" if error is None else "FAILED")


class WandB:
    """Makes a run in a Weights & Biases project; further options are those of `wandb.init`, as mode="offline"."""

    def __init__(self, project: str = PROJECT, **options: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtra("wandb", "wandb") from None
        self._init: Callable[..., Any] = wandb.init
        self.project, self.options = project, options
        self.run: Any = None

    def on_start(self, config: ConfigRecord) -> None:
        given = {"project": self.project, "name": run_title(config), "config": run_parameters(config)}
        self.run = self._init(**{**given, **self.options})

    def on_generation(self, generation: Generation, settings: Settings) -> None:
        self.run.log(generation_metrics(generation), step=generation.number)

    def on_end(self, result: ResultRecord | None, error: BaseException | None) -> None:
        if self.run is None:
            return
        self.run.summary.update(result_metrics(result))
        self.run.finish(exit_code=0 if error is None else 1)


TRACKERS: dict[str, Callable[[Path], Callback]] = {
    "mlflow": lambda out: MLflow(name=out.name),
    "tensorboard": lambda out: TensorBoard(out / "tensorboard"),
    "wandb": lambda out: WandB(name=out.name),
}


def make_tracker(name: str, out: Path) -> Callback:
    """The tracker of this name, for a run in this folder."""
    if name not in TRACKERS:
        raise InputError(unknown("tracker", name, TRACKERS))
    return TRACKERS[name](out)


def run_title(config: ConfigRecord) -> str:
    """A run in a few words, for a list of runs."""
    return f"{config.settings.method} {'+'.join(config.forget)} seed {config.settings.seed}"[:120]


def run_parameters(config: ConfigRecord) -> dict[str, str]:
    """What a run is made of: its settings, model, data and classes to forget."""
    facts = {"forget": ", ".join(config.forget), "model": config.model.name, "data": config.data.name}
    return {name: str(value) for name, value in (facts | config.settings.as_dict()).items()}


def generation_metrics(generation: Generation) -> dict[str, float]:
    """The numbers of a generation: losses, the best validation scores so far, cost."""
    found = {
        "loss/best": float(generation.losses.min()),
        "loss/mean": float(generation.losses.mean()),
        "cost/candidates": float(generation.candidates),
        "cost/image_queries": float(generation.ledger.get("image_queries", 0)),
    }
    scores = {} if generation.valid is None else generation.valid.as_dict()
    return found | {f"valid/{name}": float(value) for name, value in scores.items()}


def result_metrics(result: ResultRecord | None) -> dict[str, float]:
    """Test scores: of the prompt alone, and as served; none without a result."""
    if result is None:
        return {}
    parts = {
        "test/prompt_alone": result.test,
        "test/as_served": None if result.served is None else result.served.scores,
    }
    return {
        f"{part}_{name}": float(value)
        for part, scores in parts.items()
        if scores is not None
        for name, value in scores.as_dict().items()
    }
